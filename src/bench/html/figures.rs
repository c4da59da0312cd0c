//! The figures of a report.

use super::{
    axis::{Axis, short, time},
    chart::{Chart, Line},
};
use crate::bench::report::{Measured, Point, Report};

/// Above this ratio of what may pass to what passed a linear axis would show the latter as nothing.
const LINEAR_RATIO_MAX: f64 = 20.0;

/// A chart with what it shows in words.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) text: String,
    pub(super) chart: Chart,
}

/// All figures of a report.
pub(super) fn figures(report: &Report) -> [Figure; 3] {
    [throughput(&report.measured), latency(&report.measured), promise(report)]
}

fn throughput(measured: &Measured) -> Figure {
    let line = |name, count: fn(&Point) -> u64| Line {
        name,
        points: measured.series.iter().map(|point| (middle_s(point), per_s(point, count(point)))).collect(),
    };
    let mut lines = vec![line("decided", |point| point.checks), line("allowed", |point| point.allowed)];
    if measured.series.iter().any(|point| point.failed > 0) {
        lines.push(line("without a decision", |point| point.failed));
    }
    let decided = || lines[0].points.iter().map(|(_, rate)| *rate);
    let text = format!(
        "{} checks were decided a second on average: between {} and {} in the intervals of this line.",
        short(measured.checks_per_s),
        short(decided().reduce(f64::min).unwrap_or(0.0)),
        short(decided().reduce(f64::max).unwrap_or(0.0)),
    );
    let chart = Chart { x: seconds(measured), y: Axis::linear(highest(&lines)), lines };
    Figure { id: "throughput", title: "Checks a second, over time", text, chart }
}

fn latency(measured: &Measured) -> Figure {
    // The axis has no end: the longest call is told in words.
    let percentiles = measured.percentiles.iter().filter(|percentile| percentile.percentile < 100.0);
    let points: Vec<_> =
        percentiles.map(|percentile| (percentile.percentile, (percentile.us as f64).max(1.0))).collect();
    let (last, us) = points.last().copied().unwrap_or((0.0, 1.0));
    let least_us = points.first().map_or(1.0, |(_, us)| *us);
    let [p50, p99, p999, longest] =
        [measured.p50_us, measured.p99_us, measured.p999_us, measured.max_us].map(|us| time(us as f64));
    let text = format!(
        "Half of the calls took at most {p50}, 99 % at most {p99}, 99.9 % at most {p999}; the longest took {longest}."
    );
    let lines = vec![Line { name: "time of a call", points }];
    let x = Axis::percentiles("share of the calls that took at most this long", last.max(90.0));
    let chart = Chart { x, y: Axis::log(least_us, us, time), lines };
    Figure { id: "latency", title: "Time of a call, by percentile", text, chart }
}

/// Both lines count from the beginning of the load. Of a single interval more may pass than its rate says, as far
/// as what was let pass before left room; of all that passed since the beginning, never.
fn promise(report: &Report) -> Figure {
    let (measured, warm_up_s) = (&report.measured, report.settings.warm_up_s);
    let line = |name, total: fn(&Point) -> Option<u64>| Line {
        name,
        points: measured
            .series
            .iter()
            .filter_map(|point| Some((point.end_s, total(point)? as f64 / (warm_up_s + point.end_s))))
            .collect(),
    };
    let allowed = line("allowed", |point| Some(point.admitted_total));
    let promised = line("promised at most", |point| point.promised_total);
    let is_known = !promised.points.is_empty();
    let lines: Vec<_> = [allowed, promised].into_iter().filter(|line| !line.points.is_empty()).collect();
    let y = promise_axis(&lines);
    let text = promise_text(measured, is_known);
    let chart = Chart { x: seconds(measured), y, lines };
    Figure { id: "promise", title: "Allowed a second, against what is promised", text, chart }
}

fn promise_axis(lines: &[Line]) -> Axis {
    let max = highest(lines);
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    match values.filter(|value| *value > 0.0).reduce(f64::min) {
        Some(min) if max > LINEAR_RATIO_MAX * min => Axis::log(min, max, short),
        _ => Axis::linear(max),
    }
}

fn promise_text(measured: &Measured, is_known: bool) -> String {
    let lines =
        "Both lines are the cost of all keys together, on average since the load began, with the warm-up.";
    match (&measured.worst, measured.worst_admitted_over_promised) {
        (Some(worst), Some(ratio)) => format!(
            "{lines} The key that came closest to its limit, of {} that were watched: {} passed within {} where {} \
             may, {ratio:.4} of it.",
            measured.watched_keys,
            worst.admitted,
            time(worst.interval_us as f64),
            worst.promised,
        ),
        _ if is_known => format!("{lines} Nothing passed for the keys that were watched one by one."),
        _ => "What may pass is not known: the limits of the policy were not told, or were changed.".into(),
    }
}

fn seconds(measured: &Measured) -> Axis {
    Axis::seconds("seconds since the measuring began", measured.elapsed_s)
}

fn middle_s(point: &Point) -> f64 {
    point.end_s - point.length_s / 2.0
}

fn per_s(point: &Point, count: u64) -> f64 {
    if point.length_s > 0.0 { count as f64 / point.length_s } else { 0.0 }
}

fn highest(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value).fold(0.0, f64::max)
}
