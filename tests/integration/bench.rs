//! `tollgate bench`: what is counted adds up, schedules are kept, broken promises are found.

use serde_json::Value;

use crate::harness::{
    Process, REDIS, eventually, eventually_some, http_get,
    tollgate::{Output, ServeProcess, command, run},
};

/// A short load test with `arguments`, and its report.
fn bench(arguments: &[&str]) -> (Output, Value) {
    let short = ["bench", "--duration", "500ms", "--warm-up", "100ms", "--json", "-"];
    let output = run(&[&short, arguments].concat());
    let report = report(&output);
    (output, report)
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} in {report}"))
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} in {report}"))
}

fn points(report: &Value) -> &[Value] {
    report["series"].as_array().expect("a list")
}

fn sum(report: &Value, field: &str) -> u64 {
    points(report).iter().map(|point| count(point, field)).sum()
}

/// That the figures of a report do not contradict each other, and that no limit was broken.
fn assert_consistent(report: &Value) {
    let decided = count(report, "allowed") + count(report, "denied");
    assert!(decided > 0, "{report}");
    let per_s = decided as f64 / number(report, "elapsed_s");
    assert!((number(report, "checks_per_s") - per_s).abs() < 1.0, "{report}");
    assert_eq!(sum(report, "checks"), decided);
    assert_eq!(sum(report, "allowed"), count(report, "allowed"));
    assert_eq!(sum(report, "failed"), count(report, "errors") + count(report, "degraded"));
    let times = ["p50_us", "p99_us", "p999_us", "max_us"].map(|field| count(report, field));
    assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
    let percentiles = report["percentiles"].as_array().expect("a list");
    assert!(percentiles.iter().map(|percentile| count(percentile, "us")).is_sorted());
    for point in points(report) {
        assert!(count(point, "admitted_total") <= count(point, "promised_total"), "{point}");
    }
    let ratio = number(report, "worst_admitted_over_promised");
    assert!(ratio <= 1.0, "{}", report["worst"]);
}

#[test]
fn batches_on_a_server_in_the_process() {
    let (output, report) = bench(&["--keys", "1000", "--batch", "64"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_consistent(&report);
    assert_eq!((count(&report, "errors"), count(&report, "degraded")), (0, 0));
    let settings = &report["settings"];
    assert_eq!((count(settings, "batch"), count(settings, "in_flight")), (64, 16));
    assert_eq!(settings["store"], "memory");
    assert!(output.stderr.contains("promise"), "the table is on the standard error: {output:?}");
}

#[test]
fn tasks_ask_one_check_after_another() {
    let (output, report) = bench(&["--tasks", "50", "--connections", "3", "--dist", "zipf:1.2"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_consistent(&report);
    assert_eq!((count(&report["settings"], "batch"), count(&report["settings"], "in_flight")), (1, 50));
}

#[test]
fn a_schedule_sends_what_is_due_and_no_more() {
    let (output, report) = bench(&["--rate", "2000", "--batch", "10"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_consistent(&report);
    let decided = count(&report, "allowed") + count(&report, "denied");
    // Those that are under way at each end may be counted or not.
    let due = 2_000 * 5 / 10;
    assert!((due / 2..=due + 16 * 10).contains(&decided), "{decided} of {due}");
}

/// A Redis-backed server that is asked by a name: its limits are known from its answers.
#[test]
fn a_hot_key_on_a_server_with_redis() {
    let config = format!("store = '{}'\n[policies.hot]\nlimits = ['token-bucket:1000/1s']", REDIS.url());
    let server = ServeProcess::start(&config);
    let address = server.address.to_string();
    let (output, report) = bench(&["--server", &address, "--policy", "hot", "--dist", "hot"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_consistent(&report);
    assert!(count(&report, "denied") > 0, "{report}");
    assert_eq!(report["worst"]["limit"], "token-bucket:1000/1s");
    assert!(number(&report, "worst_admitted_over_promised") > 0.5, "{}", report["worst"]);
    assert_eq!(report["settings"]["servers"][0], address);
    assert_eq!(report["settings"]["store"], Value::Null);
}

/// Whoever resets a key lets more pass than its limit does.
#[test]
fn a_broken_promise_is_told_and_fails_the_test() {
    let server = ServeProcess::start("");
    let address = server.address.to_string();
    let limit = ["--limit", "token-bucket:5/1h"];
    let load = [
        "bench",
        "--server",
        &address,
        "--dist",
        "hot",
        "--duration",
        "1s",
        "--warm-up",
        "0s",
        "--json",
        "-",
    ];
    let mut load = Process::start(command(&[&load[..], &limit].concat()), None).expect("the command starts");
    eventually("the load test has ended", || {
        run(&[&["reset", "--server", &address], &limit[..], &["key:00000000"]].concat());
        load.has_exited()
    });
    let output = Output::from(load.wait());
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(number(&report(&output), "worst_admitted_over_promised") > 1.0);
    let told = "the promise was broken";
    assert!(output.stderr.contains(told) && output.stderr.contains("key:00000000"), "{output:?}");
}

#[tokio::test]
async fn ctrl_c_ends_it_early_and_tells_what_was_measured() {
    let server = ServeProcess::start("");
    let address = server.address.to_string();
    let load = ["bench", "--server", &address, "--duration", "1h", "--warm-up", "0s", "--json", "-"];
    let mut load = Process::start(command(&load), None).expect("the command starts");
    eventually_some("the server is under load", async || {
        let (_, metrics) = http_get(server.admin, "/metrics").await;
        let mut decisions = metrics.lines().filter(|line| line.starts_with("tollgate_decisions_total"));
        decisions.any(|line| !line.ends_with(" 0")).then_some(())
    })
    .await;
    assert!(!load.has_exited());
    load.signal("INT");
    let output = Output::from(load.wait());
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_consistent(&report(&output));
}

#[test]
fn a_sweep_tells_the_highest_rate_that_held() {
    let short = ["bench", "--duration", "200ms", "--warm-up", "20ms", "--json", "-"];
    let output = run(&[&short[..], &["--sweep", "--sweep-p99", "10s", "--batch", "16"]].concat());
    let report = report(&output);
    assert_eq!(output.status, Some(0), "{output:?}");
    let steps = report["sweep"]["steps"].as_array().expect("a list");
    assert!(!steps.is_empty());
    let held = steps.iter().filter(|step| step["held"] == true).map(|step| number(step, "rate_per_s"));
    assert_eq!(report["sweep"]["knee_per_s"].as_f64(), held.reduce(f64::max));
}

#[test]
fn reports_go_to_files_and_tables_to_the_standard_output() {
    let directory = tempfile::tempdir().expect("a directory");
    let [file, page] =
        ["report.json", "report.html"].map(|name| directory.path().join(name).display().to_string());
    let short = ["bench", "--duration", "200ms", "--warm-up", "0s"];
    let output = run(&[&short[..], &["--json", &file, "--html", &page]].concat());
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("promise"), "{output:?}");
    let text = std::fs::read_to_string(&file).expect("the report");
    assert_consistent(&serde_json::from_str(&text).expect("an object"));
    let text = std::fs::read_to_string(&page).expect("the page");
    assert!(text.contains("<svg") && text.ends_with("</html>"), "{text}");

    let nowhere = directory.path().join("none/report.json").display().to_string();
    for flag in ["--json", "--html"] {
        let output = run(&[&short[..], &[flag, &nowhere]].concat());
        assert_eq!((output.status, output.stdout.as_str()), (Some(1), ""), "{output:?}");
        assert!(output.stderr.contains(&nowhere), "{output:?}");
    }
}

#[test]
fn wrong_usage_and_missing_servers_are_told_by_the_exit_status() {
    let server = ServeProcess::start("");
    let address = server.address.to_string();
    for (status, arguments) in [
        (2, ["--dist", "warm"]),
        (2, ["--duration", "0s"]),
        (2, ["--server", "127.0.0.1:1,127.0.0.1:1"]),
        (2, ["--sweep-p99", "1ms"]),
        (1, ["--server", "127.0.0.1:1"]),
        (1, ["--store", "redis://127.0.0.1:1"]),
    ] {
        let short = ["bench", "--duration", "100ms", "--warm-up", "0s"];
        let output = run(&[&short[..], &arguments].concat());
        assert_eq!(output.status, Some(status), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let output = run(&["bench", "--server", &address, "--policy", "none"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("no server knows the policy `none`"), "{output:?}");
}
