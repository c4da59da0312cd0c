//! What a load test is to do.

use std::time::{Duration, Instant};

use tollgate_client::Limits;

use super::workload::Workload;

/// Shortest and longest interval of the series.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Intervals that a short load test is divided into.
const INTERVALS: u32 = 100;

/// One run of load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers, `host:port`.
    pub servers: Vec<String>,
    /// The policy of all checks.
    pub policy: PolicyChoice,
    /// What is asked.
    pub workload: Workload,
    /// Clients, each with a connection to each server; at least 1.
    pub connections: usize,
    /// What waits for an answer at a time.
    pub load: Load,
    /// Checks a second that are to be sent, whatever the answers; `None`: each call follows an answer.
    pub rate_per_s: Option<f64>,
    /// Time before the measuring begins.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
    /// Threads that make the load; at least 1.
    pub threads: usize,
}

/// A policy, as it is asked for.
#[derive(Clone, Debug)]
pub enum PolicyChoice {
    /// One that the servers' configuration names.
    Named(String),
    /// One that the load test defines.
    Inline(Limits),
}

/// What waits for an answer at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// On each connection `in_flight` calls of `batch` checks each; both at least 1.
    Batches {
        /// Calls on a connection.
        in_flight: usize,
        /// Checks in a call.
        batch: usize,
    },
    /// `tasks` calls of one check each, spread over the connections; at least 1.
    Calls {
        /// Calls on all connections.
        tasks: usize,
    },
}

impl Plan {
    /// Checks in a call.
    pub fn batch(&self) -> usize {
        match self.load {
            Load::Batches { batch, .. } => batch,
            Load::Calls { .. } => 1,
        }
    }

    /// Calls that wait at a time, on all connections.
    pub fn in_flight(&self) -> usize {
        (0..self.connections).map(|connection| self.tasks_of(connection)).sum()
    }

    /// Calls that wait at a time on a connection.
    pub(super) fn tasks_of(&self, connection: usize) -> usize {
        match self.load {
            Load::Batches { in_flight, .. } => in_flight,
            Load::Calls { tasks } => {
                tasks / self.connections + usize::from(connection < tasks % self.connections)
            }
        }
    }
}

/// When what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    /// The load begins.
    pub(super) begin: Instant,
    /// The measuring begins.
    pub(super) measure: Instant,
    /// Both end.
    pub(super) end: Instant,
    /// Length of the intervals of the series; the last may be shorter.
    pub(super) interval: Duration,
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    WarmUp,
    /// In the measured interval of this index.
    Measured(usize),
    After,
}

impl Timeline {
    pub(super) fn new(begin: Instant, plan: &Plan) -> Self {
        let measure = begin + plan.warm_up;
        let interval = (plan.duration / INTERVALS).clamp(INTERVAL_MIN, INTERVAL_MAX);
        Self { begin, measure, end: measure + plan.duration, interval }
    }

    pub(super) fn phase(&self, at: Instant) -> Phase {
        if at < self.measure {
            Phase::WarmUp
        } else if at < self.end {
            Phase::Measured(self.index(at))
        } else {
            Phase::After
        }
    }

    fn index(&self, at: Instant) -> usize {
        ((at - self.measure).as_nanos() / self.interval.as_nanos()) as usize
    }

    /// Index of the last interval.
    pub(super) fn last(&self) -> usize {
        self.index(self.end - Duration::from_nanos(1))
    }

    /// When an interval ends.
    pub(super) fn end_of(&self, index: usize) -> Instant {
        self.end.min(self.measure + self.interval * (index as u32 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workload::Distribution;

    fn plan(load: Load, connections: usize, duration: Duration) -> Plan {
        Plan {
            servers: Vec::new(),
            policy: PolicyChoice::Named("api".into()),
            workload: Workload::new(1, Distribution::Hot, 1, 1),
            connections,
            load,
            rate_per_s: None,
            warm_up: Duration::from_secs(1),
            duration,
            threads: 1,
        }
    }

    #[test]
    fn tasks_are_spread_evenly_over_the_connections() {
        let second = Duration::from_secs(1);
        let spread = plan(Load::Calls { tasks: 10 }, 4, second);
        assert_eq!([0, 1, 2, 3].map(|connection| spread.tasks_of(connection)), [3, 3, 2, 2]);
        assert_eq!((spread.in_flight(), spread.batch()), (10, 1));
        let batches = plan(Load::Batches { in_flight: 3, batch: 64 }, 4, second);
        assert_eq!((batches.in_flight(), batches.batch()), (12, 64));
    }

    #[test]
    fn every_instant_is_in_one_interval_and_intervals_are_neither_many_nor_long() {
        for (duration_ms, count, interval_ms) in
            [(10, 1, 50), (120, 3, 50), (10_000, 100, 100), (3_600_000, 3_600, 1_000)]
        {
            let load = Load::Calls { tasks: 1 };
            let begin = Instant::now();
            let timeline = Timeline::new(begin, &plan(load, 1, Duration::from_millis(duration_ms)));
            assert_eq!(timeline.interval, Duration::from_millis(interval_ms));
            assert_eq!(timeline.last() + 1, count);
            assert_eq!(timeline.phase(begin), Phase::WarmUp);
            assert_eq!(timeline.phase(timeline.measure), Phase::Measured(0));
            assert_eq!(timeline.phase(timeline.end), Phase::After);
            let last = timeline.end - Duration::from_nanos(1);
            assert_eq!(timeline.phase(last), Phase::Measured(count - 1));
            assert_eq!(timeline.end_of(count - 1), timeline.end);
        }
    }
}
