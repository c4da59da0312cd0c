//! A pace for log lines that strangers or a fault could otherwise write without end.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one line a second pass. What it stands for is counted in the metrics.
#[derive(Debug)]
pub(crate) struct Pace {
    started: Instant,
    /// When the next line may be written, in microseconds since the start.
    next_us: AtomicU64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), next_us: AtomicU64::new(0) }
    }

    /// Whether a line may be written now.
    pub(crate) fn is_due(&self) -> bool {
        let now_us = self.started.elapsed().as_micros() as u64;
        let next_us = |next_us| (now_us >= next_us).then(|| now_us + INTERVAL.as_micros() as u64);
        self.next_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next_us).is_ok()
    }
}
