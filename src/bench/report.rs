//! What a load test found: for machines as one JSON object, for people as a table.

use serde::Serialize;

/// A whole load test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: &'static str,
    /// What was asked for.
    pub settings: Settings,
    /// What was measured, after the warm-up. Of a sweep: at the highest rate that held.
    #[serde(flatten)]
    pub measured: Measured,
    /// The steps of a sweep, if it was one.
    pub sweep: Option<Sweep>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The servers under load; empty where this process ran one.
    pub servers: Vec<String>,
    /// Where the server in this process kept its states, without credentials; `None` with other servers.
    pub store: Option<String>,
    /// Name of the policy, or its limits.
    pub policy: String,
    /// Clients, each with a connection to each server.
    pub connections: usize,
    /// Calls that wait for their answer at a time, on all connections together.
    pub in_flight: usize,
    /// Checks in a call.
    pub batch: usize,
    /// Checks a second that were to be sent, whatever the answers; `None`: each call follows an answer. Of a sweep,
    /// the highest rate that held.
    pub rate_per_s: Option<f64>,
    /// Keys that are drawn from.
    pub keys: u64,
    /// How they are drawn: `uniform`, `zipf:S`, `hot`.
    pub distribution: String,
    /// Cost of each check.
    pub cost: u64,
    /// Seed of the drawing.
    pub seed: u64,
    /// Threads that make the load.
    pub threads: usize,
    /// Time before the measuring began, in seconds.
    pub warm_up_s: f64,
    /// Time that the measuring was to take, in seconds.
    pub duration_s: f64,
}

/// What was measured. Times are those of a whole call: from when it was sent, or with a rate was to be sent, until
/// all its answers were there.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Time that was measured, in seconds; shorter than asked where it was ended early.
    pub elapsed_s: f64,
    /// Checks that were decided, a second: allowed and denied.
    pub checks_per_s: f64,
    /// Checks that passed.
    pub allowed: u64,
    /// Checks that did not pass, those of `denied_cached` included.
    pub denied: u64,
    /// Checks that the server denied from memory, without asking its store.
    pub denied_cached: u64,
    /// Checks that were not decided: no answer, or not taken by the server.
    pub errors: u64,
    /// Checks answered by the policy's verdict, as the store could not answer.
    pub degraded: u64,
    /// The first error, as the client or the server worded it.
    pub first_error: Option<String>,
    /// Checks that were due by the rate, and never sent because all calls in flight waited for answers.
    pub not_sent: u64,
    /// Half of the calls took at most this long, in microseconds.
    pub p50_us: u64,
    /// 99 % did.
    pub p99_us: u64,
    /// 99.9 % did.
    pub p999_us: u64,
    /// The longest call.
    pub max_us: u64,
    /// CPU time of this process for each decided check, in microseconds. It holds the load generator, and the
    /// server where this process ran one; never Redis. `None` where the system does not tell.
    pub cpu_us_per_check: Option<f64>,
    /// The part of it that the threads took that make the load.
    pub generator_cpu_us_per_check: Option<f64>,
    /// The worst, over any interval and any watched key, of the cost that certainly passed over the cost that may
    /// pass; above 1 the promise is broken. `None` where the limits are not known.
    pub worst_admitted_over_promised: Option<f64>,
    /// The interval in which that was.
    pub worst: Option<Worst>,
    /// Keys that were watched for it.
    pub watched_keys: usize,
    /// Times at many percentiles, ascending.
    pub percentiles: Vec<Percentile>,
    /// What happened over time, in intervals of the same length but for the last.
    pub series: Vec<Point>,
}

/// An interval in which most passed of what may.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The key.
    pub key: String,
    /// The limit, as text.
    pub limit: String,
    /// Length of the interval, in microseconds.
    pub interval_us: u64,
    /// Cost that certainly passed in it.
    pub admitted: u64,
    /// Cost that may pass in it.
    pub promised: u64,
}

/// A percentile of the calls' times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percentile: f64,
    /// That share of the calls took at most this long, in microseconds.
    pub us: u64,
}

/// What happened in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its end, in seconds since the measuring began.
    pub end_s: f64,
    /// Its length, in seconds.
    pub length_s: f64,
    /// Checks that were decided in it.
    pub checks: u64,
    /// Those of them that passed.
    pub allowed: u64,
    /// Checks that were answered without a decision, or not at all.
    pub failed: u64,
    /// Half of its calls took at most this long, in microseconds; 0 where none ended.
    pub p50_us: u64,
    /// 99 % did.
    pub p99_us: u64,
    /// Cost that passed for all keys since the load began, warm-up included.
    pub admitted_total: u64,
    /// Cost that may have passed for all keys since then: never below `admitted_total` while the promise is kept.
    /// `None` where the limits are not known.
    pub promised_total: Option<u64>,
}

/// The search for the highest rate at which calls are answered in time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// The bound that 99 % of the calls must keep, in microseconds.
    pub p99_max_us: u64,
    /// The highest rate that held, in checks a second; `None` where none did.
    pub knee_per_s: Option<f64>,
    /// What was tried, in that order.
    pub steps: Vec<SweepStep>,
}

/// One rate of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SweepStep {
    /// Checks a second that were to be sent.
    pub rate_per_s: f64,
    /// Checks a second that were decided.
    pub checks_per_s: f64,
    /// Half of the calls took at most this long, in microseconds.
    pub p50_us: u64,
    /// 99 % did.
    pub p99_us: u64,
    /// Whether the bound was kept, with every check sent and decided.
    pub held: bool,
}
