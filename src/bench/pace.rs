//! When calls are due.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use super::plan::Timeline;

/// How soon a thread that sleeps sees that it is to stop.
const STOP_LATENCY: Duration = Duration::from_millis(50);

/// Set once: no call is sent any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The turn of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When it was to be sent.
    pub(super) due: Instant,
    /// When it may be sent.
    pub(super) now: Instant,
}

/// When calls are due.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    /// As soon as one before it was answered.
    Closed { end: Instant, stop: Stop },
    /// By a schedule, whatever the answers.
    Open(Arc<Schedule>),
}

impl Pace {
    /// Waits for the turn of the next call; `None` where there is none.
    pub(super) async fn next(&self) -> Option<Turn> {
        match self {
            Self::Closed { end, stop } => {
                let now = Instant::now();
                (now < *end && !stop.is_set()).then_some(Turn { due: now, now })
            }
            Self::Open(schedule) => {
                let due = schedule.next().await?;
                Some(Turn { due, now: Instant::now() })
            }
        }
    }

    /// Calls that were due and never sent.
    pub(super) fn not_sent(&self) -> u64 {
        match self {
            Self::Closed { .. } => 0,
            Self::Open(schedule) => schedule.due.available_permits() as u64,
        }
    }
}

/// Calls that are due at a steady rate. Those that wait share it: each call is taken by the first that is free.
#[derive(Debug)]
pub(super) struct Schedule {
    begin: Instant,
    end: Instant,
    calls_per_s: f64,
    /// Calls that are due and not taken; closed in the end.
    due: Semaphore,
    taken: AtomicU64,
    stop: Stop,
}

impl Schedule {
    /// Starts a thread that says when calls are due: timers of tokio are as coarse as a millisecond.
    pub(super) fn start(timeline: &Timeline, calls_per_s: f64, stop: Stop) -> Arc<Self> {
        let Timeline { begin, end, .. } = *timeline;
        let (due, taken) = (Semaphore::new(0), AtomicU64::new(0));
        let schedule = Arc::new(Self { begin, end, calls_per_s, due, taken, stop });
        thread::spawn({
            let schedule = Arc::clone(&schedule);
            move || schedule.run()
        });
        schedule
    }

    fn run(&self) {
        let mut released = 0;
        loop {
            let now = Instant::now();
            if now >= self.end || self.stop.is_set() {
                break;
            }
            let due = self.calls_until(now);
            self.due.add_permits((due - released) as usize);
            released = due;
            let next = self.due_at(due).min(self.end);
            thread::sleep(next.saturating_duration_since(now).min(STOP_LATENCY));
        }
        self.due.close();
    }

    /// Calls that are due before an instant.
    fn calls_until(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.begin).as_secs_f64() * self.calls_per_s).ceil() as u64
    }

    fn due_at(&self, call: u64) -> Instant {
        self.begin + Duration::from_secs_f64(call as f64 / self.calls_per_s)
    }

    async fn next(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        Some(self.due_at(self.taken.fetch_add(1, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    fn schedule(past: Duration, calls_per_s: f64, stop: &Stop) -> Pace {
        let begin = Instant::now() - past;
        let timeline = Timeline { begin, measure: begin, end: begin + LONG, interval: LONG };
        Pace::Open(Schedule::start(&timeline, calls_per_s, stop.clone()))
    }

    #[tokio::test]
    async fn a_schedule_hands_out_every_call_when_it_is_due() {
        let stop = Stop::default();
        let begin = Instant::now();
        let pace = schedule(Duration::ZERO, 1_000.0, &stop);
        let mut last = begin;
        for call in 0..50 {
            let Turn { due, now } = pace.next().await.expect("a call");
            assert!(due <= now, "call {call} came too soon");
            if call > 0 {
                let gap = due - last;
                assert!(gap.abs_diff(Duration::from_millis(1)) < Duration::from_micros(1), "{gap:?}");
            }
            last = due;
        }
        stop.set();
        while pace.next().await.is_some() {}
    }

    #[tokio::test]
    async fn calls_that_nobody_took_are_told() {
        let stop = Stop::default();
        let pace = schedule(Duration::from_secs(1), 1_000.0, &stop);
        pace.next().await.expect("a call");
        stop.set();
        while pace.next().await.is_some() {}
        // All that were due in the second that had passed came at once; some were taken.
        assert_eq!(pace.next().await, None);
        let Pace::Open(schedule) = &pace else { panic!("it is open") };
        let taken = schedule.taken.load(Ordering::Relaxed);
        assert!(pace.not_sent() + taken >= 1_000, "{} and {taken}", pace.not_sent());
    }

    #[tokio::test]
    async fn without_a_schedule_calls_are_due_until_the_end() {
        let stop = Stop::default();
        let closed = |end| Pace::Closed { end, stop: stop.clone() };
        assert!(closed(Instant::now() + LONG).next().await.is_some());
        assert!(closed(Instant::now()).next().await.is_none());
        stop.set();
        assert!(closed(Instant::now() + LONG).next().await.is_none());
    }
}
