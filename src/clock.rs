//! The clock of the embedded store: a parameter, so that tests own it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Where the time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's monotonic clock, set once by its wall clock: it never steps.
    Monotonic {
        /// When the clock was made.
        start: Instant,
        /// The wall clock at that instant, in microseconds since 1970.
        start_us: u64,
    },
    /// A time that its holder sets.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock.
    pub fn monotonic() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::Monotonic { start: Instant::now(), start_us: since_epoch.as_micros() as u64 }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        match self {
            Self::Monotonic { start, start_us } => start_us + start.elapsed().as_micros() as u64,
            Self::Manual(now_us) => now_us.load(Ordering::Acquire),
        }
    }
}
