//! What a person sees while a load test runs.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    collector::{Collector, Slice},
    plan::Timeline,
    tally::Tally,
};

/// How a run goes.
pub(super) struct Live<'a> {
    timeline: &'a Timeline,
    latest: Option<&'a Slice>,
    total: &'a Tally,
}

impl<'a> Live<'a> {
    pub(super) fn new(timeline: &'a Timeline, collector: &'a Collector) -> Self {
        Self { timeline, latest: collector.latest(), total: collector.total() }
    }

    fn message(&self) -> String {
        let Some(Slice { tally, p50_us, p99_us }) = self.latest else { return "warming up".into() };
        let rate_per_s = tally.decided() as f64 / self.timeline.interval.as_secs_f64();
        let count = |count: u64| HumanCount(count).to_string();
        format!(
            "{}/s  p50 {p50_us} us  p99 {p99_us} us  allowed {}  denied {}  failed {}",
            count(rate_per_s as u64),
            count(self.total.allowed),
            count(self.total.denied),
            count(self.total.failed()),
        )
    }
}

/// A bar on the standard error; nothing where that is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar; `quiet`: none.
    pub fn new(quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{prefix}[{bar:20}] {msg}");
        // The template is a constant; a bar without it would do as well.
        Self(if let Ok(style) = style { bar.with_style(style.progress_chars("=> ")) } else { bar })
    }

    /// Says which run of several this is.
    pub(super) fn name(&self, name: String) {
        self.0.set_prefix(name);
    }

    pub(super) fn show(&self, live: &Live<'_>) {
        let Timeline { begin, end, .. } = *live.timeline;
        let millis = |time: Duration| time.as_millis() as u64;
        self.0.set_length(millis(end - begin));
        self.0.set_position(millis((Instant::now() - begin).min(end - begin)));
        self.0.set_message(live.message());
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
