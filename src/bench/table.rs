//! A report for people.

use indicatif::HumanCount;

use super::report::{Measured, Report, Settings, Sweep};

/// Rows of a name and what is to be said of it.
pub fn rows(report: &Report) -> Vec<[String; 2]> {
    let mut rows = settings_rows(&report.settings);
    rows.extend(measured_rows(&report.measured));
    rows.extend(report.sweep.iter().flat_map(sweep_rows));
    rows
}

fn settings_rows(settings: &Settings) -> Vec<[String; 2]> {
    let Settings { servers, store, policy, connections, in_flight, batch, rate_per_s, .. } = settings;
    let target = match store {
        Some(store) => format!("a server in this process, store {store}"),
        None => servers.join(", "),
    };
    let rate = match rate_per_s {
        Some(rate) => format!("{} checks/s, whatever the answers", count(*rate as u64)),
        None => "a call for each answer".into(),
    };
    vec![
        row("target", target),
        row("policy", policy.clone()),
        row("keys", format!("{}, {}", count(settings.keys), settings.distribution)),
        row("load", format!("{rate}; {connections} connections, {in_flight} calls of {batch} in flight")),
    ]
}

fn measured_rows(measured: &Measured) -> Vec<[String; 2]> {
    let Measured { p50_us, p99_us, p999_us, max_us, .. } = measured;
    let mut rows = vec![
        row("checks", format!("{}/s over {:.1} s", count(measured.checks_per_s as u64), measured.elapsed_s)),
        row("allowed", count(measured.allowed)),
        row("denied", format!("{}, {} from memory", count(measured.denied), count(measured.denied_cached))),
        row("errors", failures(measured)),
        row("degraded", count(measured.degraded)),
        row("call", format!("p50 {p50_us} us, p99 {p99_us} us, p99.9 {p999_us} us, longest {max_us} us")),
        row("promise", promise(measured)),
    ];
    if measured.not_sent > 0 {
        rows.push(row("not sent", format!("{} were due, and no call was free", count(measured.not_sent))));
    }
    if let Some(cpu_us) = measured.cpu_us_per_check {
        let generator = measured.generator_cpu_us_per_check.unwrap_or(0.0);
        rows.push(row("CPU", format!("{cpu_us:.3} us a check, {generator:.3} of it to make the load")));
    }
    rows
}

fn failures(measured: &Measured) -> String {
    match &measured.first_error {
        Some(error) => format!("{}; the first: {error}", count(measured.errors)),
        None => count(measured.errors),
    }
}

fn promise(measured: &Measured) -> String {
    match (measured.worst_admitted_over_promised, &measured.worst) {
        (None, _) => "-, the limits of the policy are not known or were changed".into(),
        (Some(_), None) => format!("nothing passed for the {} watched keys", measured.watched_keys),
        (Some(ratio), Some(worst)) => format!(
            "at most {ratio:.4} of it passed: {} of {} in {} us, {} under {} ({} keys watched)",
            worst.admitted, worst.promised, worst.interval_us, worst.key, worst.limit, measured.watched_keys,
        ),
    }
}

fn sweep_rows(sweep: &Sweep) -> Vec<[String; 2]> {
    let steps = sweep.steps.iter().map(|step| {
        let verdict = if step.held { "held" } else { "failed" };
        let (rate, checks) = (count(step.rate_per_s as u64), count(step.checks_per_s as u64));
        let text = format!("{verdict}: {checks}/s, p50 {} us, p99 {} us", step.p50_us, step.p99_us);
        row(&format!("at {rate}/s"), text)
    });
    let knee = match sweep.knee_per_s {
        Some(rate) => format!("{} checks/s with p99 within {} us", count(rate as u64), sweep.p99_max_us),
        None => format!("no rate held p99 within {} us", sweep.p99_max_us),
    };
    steps.chain([row("knee", knee)]).collect()
}

fn row(name: &str, text: String) -> [String; 2] {
    [name.into(), text]
}

fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Worst;

    #[test]
    fn the_promise_is_told_as_far_as_it_is_known() {
        let mut measured = Measured { watched_keys: 3, ..Measured::default() };
        assert!(promise(&measured).starts_with("-, the limits"));
        measured.worst_admitted_over_promised = Some(0.0);
        assert_eq!(promise(&measured), "nothing passed for the 3 watched keys");
        measured.worst_admitted_over_promised = Some(0.5);
        measured.worst = Some(Worst {
            key: "key:00000000".into(),
            limit: "token-bucket:10/1s".into(),
            interval_us: 100,
            admitted: 5,
            promised: 10,
        });
        let text = "at most 0.5000 of it passed: 5 of 10 in 100 us, key:00000000 under token-bucket:10/1s (3 keys watched)";
        assert_eq!(promise(&measured), text);
    }
}
