//! From what a run has found to what is told.

use std::time::Duration;

use tollgate_client::Limit;

use super::{
    driver::Run,
    envelope::Envelope,
    plan::{Plan, PolicyChoice},
    report::{Measured, Percentile, Point, Worst},
};

/// The percentiles that are told.
const PERCENTILES: [f64; 21] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9,
    99.95, 99.99, 99.999, 100.0,
];

pub(super) fn measured(plan: &Plan, run: &Run) -> Measured {
    let (total, latencies) = (&run.collected.total, &run.collected.latencies);
    let us = |percentile: f64| latencies.value_at_quantile(percentile / 100.0).min(latencies.max());
    let per_check_us =
        |cpu_s: f64| (total.decided() > 0 && cpu_s > 0.0).then(|| cpu_s * 1e6 / total.decided() as f64);
    let limits = limits(plan, run);
    let envelopes: Option<Vec<_>> = limits.iter().map(Envelope::of).collect();
    let envelopes = envelopes.filter(|envelopes| !envelopes.is_empty());
    let worst = envelopes.as_ref().and_then(|envelopes| run.found.monitor.worst(envelopes));
    Measured {
        elapsed_s: run.elapsed.as_secs_f64(),
        checks_per_s: per_s(total.decided(), run.elapsed),
        allowed: total.allowed,
        denied: total.denied,
        denied_cached: total.denied_cached,
        errors: total.errors,
        degraded: total.degraded,
        first_error: run.found.first_error.clone(),
        not_sent: run.not_sent * plan.batch() as u64,
        p50_us: us(50.0),
        p99_us: us(99.0),
        p999_us: us(99.9),
        max_us: us(100.0),
        cpu_us_per_check: per_check_us(run.process_cpu_s),
        generator_cpu_us_per_check: per_check_us(run.found.cpu_s),
        worst_admitted_over_promised: envelopes
            .as_ref()
            .map(|_| worst.as_ref().map_or(0.0, |worst| worst.ratio())),
        worst: worst.map(|worst| Worst {
            key: worst.key.to_string(),
            limit: limits[worst.limit].to_string(),
            interval_us: worst.interval_us,
            admitted: worst.admitted,
            promised: u64::try_from(worst.promised).unwrap_or(u64::MAX),
        }),
        watched_keys: run.watch.count(),
        percentiles: PERCENTILES.map(|percentile| Percentile { percentile, us: us(percentile) }).to_vec(),
        series: series(plan, run, envelopes.as_deref()),
    }
}

/// The limits that the checks were under; none where they are not known, or were changed meanwhile.
fn limits(plan: &Plan, run: &Run) -> Vec<Limit> {
    match &plan.policy {
        PolicyChoice::Inline(limits) => limits.as_slice().to_vec(),
        PolicyChoice::Named(_) if run.found.limits.changed => Vec::new(),
        PolicyChoice::Named(_) => run.found.limits.known.iter().flatten().copied().collect(),
    }
}

fn series(plan: &Plan, run: &Run, envelopes: Option<&[Envelope]>) -> Vec<Point> {
    let cost = plan.workload.cost();
    let mut admitted_total = run.collected.warm_up.allowed * cost;
    let mut start_s = 0.0;
    let points = run.collected.slices.iter().enumerate().map(|(index, slice)| {
        let end = run.timeline.end_of(index);
        let end_s = (end - run.timeline.measure).min(run.elapsed).as_secs_f64();
        admitted_total += slice.tally.allowed * cost;
        let point = Point {
            end_s,
            length_s: end_s - start_s,
            checks: slice.tally.decided(),
            allowed: slice.tally.allowed,
            failed: slice.tally.failed(),
            p50_us: slice.p50_us,
            p99_us: slice.p99_us,
            admitted_total,
            promised_total: envelopes
                .map(|envelopes| promised_total(envelopes, end - run.timeline.begin, plan.workload.keys())),
        };
        start_s = end_s;
        point
    });
    points.collect()
}

/// What may pass for `keys` keys in a time: under each limit, so under the tightest.
fn promised_total(envelopes: &[Envelope], time: Duration, keys: u64) -> u64 {
    let promised = envelopes.iter().map(|envelope| envelope.promised(time.as_micros() as u64)).min();
    u64::try_from(promised.unwrap_or(0).saturating_mul(keys.into())).unwrap_or(u64::MAX)
}

/// A count per second; 0 where no time passed.
fn per_s(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
