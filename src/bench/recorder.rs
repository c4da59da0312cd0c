//! What a thread of the load generator notes. Nothing is shared with other threads: closed intervals are sent to
//! the collector, the rest is merged in the end.

use std::time::Instant;

use hdrhistogram::Histogram;
use tokio::sync::mpsc::UnboundedSender;
use tollgate_client::{CheckError, Decision, Limit};
use tollgate_protocol::limits::LIMITS_MAX;

use super::{
    plan::{Phase, Timeline},
    promise::Monitor,
    tally::{self, Tally},
};

/// The longest time that is told, in microseconds; longer ones count as this.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Significant digits of the times that are told.
const LATENCY_DIGITS: u8 = 3;

/// A histogram of times in microseconds.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, LATENCY_DIGITS).expect("the bounds are constants that fit")
}

/// When a call happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// When it was to be sent: its time counts from here.
    pub(super) due: Instant,
    /// When it was sent.
    pub(super) sent: Instant,
    /// When all answers were there.
    pub(super) answered: Instant,
}

/// What a thread saw in an interval.
#[derive(Debug)]
pub(super) struct Interval {
    pub(super) thread: usize,
    /// `None` for a part of the warm-up.
    pub(super) index: Option<usize>,
    pub(super) tally: Tally,
    pub(super) latencies: Histogram<u64>,
}

/// The limits of the policy, as the answers tell them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// By their index in the policy, as far as they were told.
    pub(super) known: [Option<Limit>; LIMITS_MAX],
    /// Whether one was told in two ways: the policy was changed meanwhile.
    pub(super) changed: bool,
}

impl Limits {
    pub(super) fn learn(&mut self, index: usize, limit: Limit) {
        if let Some(known) = self.known.get_mut(index) {
            self.changed |= known.is_some_and(|known| known != limit);
            *known = Some(limit);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.changed |= other.changed;
        for (index, limit) in other.known.iter().enumerate() {
            if let Some(limit) = limit {
                self.learn(index, *limit);
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Recorder {
    timeline: Timeline,
    cost: u64,
    open: Interval,
    closed: UnboundedSender<Interval>,
    pub(super) monitor: Monitor,
    pub(super) limits: Limits,
    pub(super) first_error: Option<String>,
}

impl Recorder {
    pub(super) fn new(
        thread: usize,
        timeline: Timeline,
        cost: u64,
        monitor: Monitor,
        closed: UnboundedSender<Interval>,
    ) -> Self {
        let open = Interval { thread, index: None, tally: Tally::default(), latencies: latencies() };
        Self { timeline, cost, open, closed, monitor, limits: Limits::default(), first_error: None }
    }

    /// Notes a call. `watched` has the position and the slot of each answer whose key is watched.
    pub(super) fn record(
        &mut self,
        call: Call,
        answers: &[Result<Decision, CheckError>],
        watched: &[(usize, usize)],
    ) {
        let mut tally = Tally::default();
        answers.iter().for_each(|answer| tally.count(answer));
        self.watch(call, answers, watched);
        if tally.errors > 0 && self.first_error.is_none() {
            self.first_error = answers.iter().find_map(tally::error_text);
        }
        self.count(call, &tally);
    }

    fn watch(&mut self, call: Call, answers: &[Result<Decision, CheckError>], watched: &[(usize, usize)]) {
        let sent_us = (call.sent - self.timeline.begin).as_micros() as u64;
        let answered_us = (call.answered - self.timeline.begin).as_nanos().div_ceil(1_000) as u64;
        for &(position, slot) in watched {
            let answer = &answers[position];
            if let Ok(Decision { limit: Some(limit), limit_index: Some(index), .. }) = answer {
                self.limits.learn(usize::from(*index), *limit);
            }
            if tally::is_admitted(answer) {
                self.monitor.admitted(slot, sent_us, answered_us, self.cost);
            }
        }
    }

    fn count(&mut self, call: Call, tally: &Tally) {
        let latency_us = (call.answered - call.due).as_nanos().div_ceil(1_000) as u64;
        match self.timeline.phase(call.answered) {
            Phase::WarmUp => {}
            Phase::Measured(index) => self.open(index),
            // It was due while it was measured: its time counts, what it did does not.
            Phase::After if call.due < self.timeline.end => {
                self.open(self.timeline.last());
                self.open.latencies.saturating_record(latency_us);
                return;
            }
            Phase::After => return,
        }
        self.open.tally.add(tally);
        self.open.latencies.saturating_record(latency_us);
    }

    fn open(&mut self, index: usize) {
        if self.open.index != Some(index) {
            self.close(Some(index));
        }
    }

    /// Sends what is open, and opens another interval.
    fn close(&mut self, index: Option<usize>) {
        let open =
            Interval { thread: self.open.thread, index, tally: Tally::default(), latencies: latencies() };
        // Nobody listens any more where the load test was given up.
        let _ = self.closed.send(std::mem::replace(&mut self.open, open));
    }

    /// Sends what is open.
    pub(super) fn finish(&mut self) {
        self.close(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::bench::{
        promise::Watch,
        workload::{Distribution, Workload},
    };

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn calls_are_noted_in_the_interval_of_their_answers_and_timed_from_when_they_were_due() {
        let begin = Instant::now();
        let timeline =
            Timeline { begin, measure: begin + 100 * MS, end: begin + 300 * MS, interval: 100 * MS };
        let watch = Watch::new(&Workload::new(1, Distribution::Hot, 1, 1));
        let (closed, mut intervals) = unbounded_channel();
        let mut recorder = Recorder::new(7, timeline, 1, Monitor::new(watch, 1_000), closed);
        // When each was due and when it was answered: before, at, and after the measuring.
        for (due_ms, answered_ms) in [(0, 99), (90, 100), (110, 199), (200, 299), (250, 400), (300, 500)] {
            let at = |ms| begin + ms * MS;
            let call = Call { due: at(due_ms), sent: at(answered_ms), answered: at(answered_ms) };
            recorder.record(call, &[Err(CheckError::ZeroCost)], &[]);
        }
        recorder.finish();
        drop(recorder);
        let mut seen = Vec::new();
        while let Some(Interval { thread, index, tally, latencies }) = intervals.blocking_recv() {
            assert_eq!(thread, 7);
            // Times are told with three digits.
            seen.push((index, tally.errors, latencies.len(), latencies.max().div_euclid(1_000)));
        }
        assert_eq!(seen, [(None, 1, 1, 99), (Some(0), 2, 2, 89), (Some(1), 1, 2, 150)]);
    }

    #[test]
    fn limits_that_are_told_in_two_ways_were_changed() {
        let (first, second) = ("token-bucket:1/1s", "token-bucket:2/1s");
        let learn = |told: &[(usize, &str)]| {
            let mut limits = Limits::default();
            told.iter().for_each(|(index, limit)| limits.learn(*index, limit.parse().unwrap()));
            limits
        };
        assert!(!learn(&[(0, first), (1, second), (0, first), (9, first)]).changed);
        assert!(learn(&[(0, first), (0, second)]).changed);
        let mut merged = learn(&[(0, first)]);
        merged.merge(&learn(&[(1, second)]));
        assert!(!merged.changed);
        merged.merge(&learn(&[(0, second)]));
        assert!(merged.changed);
    }
}
