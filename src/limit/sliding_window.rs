//! Sliding window counter.
//!
//! A limit of L per window W, in windows aligned to the epoch. With c in the present window, v in the one
//! before and e elapsed of the present one, a cost n may pass if and only if
//! `v*(W-e) + (c+n)*W <= L*W`: nothing is divided, so nothing is cut off.
//!
//! Promise, for every interval of length T: the admitted cost is at most `L + floor(L*T/W)`; in a trailing
//! window at most `2L-1`, and that is reached. Over time it admits at most L per W.

use super::{AMOUNT_MAX, CLOCK_STEP_US_MAX, quantum::Quantum, state::State};

/// A sliding window counter made ready to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quantum: Quantum,
    /// L.
    limit: u64,
    /// W, in quanta.
    length: u64,
}

/// State of a key under a sliding window counter, with the numbers needed to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Unit of `length`.
    pub quantum: Quantum,
    /// Length of a window, in quanta.
    pub length: u64,
    /// Number of the present window since the epoch.
    pub index: u64,
    /// Cost in the present window.
    pub current: u64,
    /// Cost in the window before.
    pub previous: u64,
}

/// A window at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledWindow {
    /// The state, rolled to the instant.
    pub window: Window,
    /// Quanta that have passed of the present window.
    elapsed: u64,
}

impl Window {
    /// Whether its products stay within the numbers that this module works with.
    pub(super) fn is_valid(&self) -> bool {
        let end_us =
            (self.index + 2).checked_mul(self.length).and_then(|end| end.checked_mul(self.quantum.us()));
        end_us.is_some_and(|end_us| end_us < 4 * AMOUNT_MAX)
            && [self.current, self.previous]
                .iter()
                .all(|count| count.checked_mul(self.length).is_some_and(|product| product <= AMOUNT_MAX))
    }

    fn length_us(&self) -> u64 {
        self.length * self.quantum.us()
    }

    /// When nothing that was counted matters any more, in microseconds.
    pub fn ends_at_us(&self) -> u64 {
        let windows = match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        (self.index + windows) * self.length_us()
    }

    /// The same window at `now_us`. A clock behind the stored window counts as that window's first instant; one
    /// more than [`CLOCK_STEP_US_MAX`] behind it is believed and the counts kept.
    fn roll(self, now_us: u64) -> RolledWindow {
        let now = now_us / self.quantum.us();
        let index = now / self.length;
        let elapsed = now % self.length;
        if index < self.index && self.index * self.length_us() - now_us <= CLOCK_STEP_US_MAX {
            return RolledWindow { window: self, elapsed: 0 };
        }
        let (current, previous) = match index.checked_sub(self.index) {
            None | Some(0) => (self.current, self.previous),
            Some(1) => (0, self.current),
            Some(_) => (0, 0),
        };
        RolledWindow { window: Self { index, current, previous, ..self }, elapsed }
    }
}

impl RolledWindow {
    /// Share of the window before that still counts, times W.
    fn previous_weighted(&self) -> u64 {
        self.window.previous * (self.window.length - self.elapsed)
    }

    /// The instant, in quanta.
    fn now(&self) -> u64 {
        self.window.index * self.window.length + self.elapsed
    }
}

/// Cost in use at `now_us`, rounded up.
pub fn used(window: &Window, now_us: u64) -> u64 {
    let rolled = window.roll(now_us);
    rolled.window.current + rolled.previous_weighted().div_ceil(window.length)
}

impl SlidingWindow {
    /// A limit of `limit` each `window_us`; both at least 1. `None` where no quantum keeps `L*W` below
    /// [`AMOUNT_MAX`].
    pub fn new(limit: u64, window_us: u64) -> Option<Self> {
        let quantum = Quantum::smallest(window_us, |quantum| {
            limit.checked_mul(window_us / quantum.us()).is_some_and(|product| product < AMOUNT_MAX)
        })?;
        Some(Self { quantum, limit, length: window_us / quantum.us() })
    }

    /// The most that can pass at once.
    pub fn ceiling(&self) -> u64 {
        self.limit
    }

    /// The numbers that a script needs: W, L, and the most that a window counts.
    pub fn constants(&self) -> [u64; 4] {
        [self.length, self.limit, self.count_max(), 0]
    }

    /// The quantum.
    pub fn quantum(&self) -> Quantum {
        self.quantum
    }

    /// The most that a window counts: its product with W stays within [`AMOUNT_MAX`].
    fn count_max(&self) -> u64 {
        AMOUNT_MAX / self.length
    }

    /// The window of a key at `now_us`, converted where it was written under another limit.
    pub fn roll(&self, state: Option<&State>, now_us: u64) -> RolledWindow {
        match state {
            Some(State::SlidingWindow(window)) if self.wrote(window) => window.roll(now_us),
            Some(other) => self.charge(self.empty(now_us), other.used(now_us)),
            None => self.empty(now_us),
        }
    }

    fn wrote(&self, window: &Window) -> bool {
        (window.quantum, window.length) == (self.quantum, self.length)
    }

    fn empty(&self, now_us: u64) -> RolledWindow {
        Window { quantum: self.quantum, length: self.length, index: 0, current: 0, previous: 0 }.roll(now_us)
    }

    /// Whether `cost` may pass now.
    pub fn admits(&self, rolled: &RolledWindow, cost: u64) -> bool {
        // The first test keeps the products of the second within bounds.
        cost <= self.limit
            && rolled.window.current + cost <= self.limit
            && rolled.previous_weighted() + (rolled.window.current + cost) * self.length
                <= self.limit * self.length
    }

    /// The most that may pass now.
    pub fn remaining(&self, rolled: &RolledWindow) -> u64 {
        let previous = rolled.previous_weighted().div_ceil(self.length);
        self.limit.saturating_sub(rolled.window.current + previous)
    }

    /// The window after `cost` was charged. The count stops where its product with W reaches [`AMOUNT_MAX`].
    pub fn charge(&self, mut rolled: RolledWindow, cost: u64) -> RolledWindow {
        rolled.window.current = rolled.window.current.saturating_add(cost).min(self.count_max());
        rolled
    }

    /// The window after `cost` was given back: from the present window first, then from the one before.
    pub fn refund(&self, mut rolled: RolledWindow, cost: u64) -> RolledWindow {
        let from_current = rolled.window.current.min(cost);
        rolled.window.current -= from_current;
        rolled.window.previous = rolled.window.previous.saturating_sub(cost - from_current);
        rolled
    }

    /// The first instant at which `cost` would pass, in microseconds. For a cost that is denied now and is at
    /// most [`SlidingWindow::ceiling`].
    pub fn admits_at_us(&self, rolled: &RolledWindow, cost: u64) -> u64 {
        let Window { current, previous, length, index, .. } = rolled.window;
        let instant = match (self.limit - cost).checked_sub(current) {
            // Within this window, when enough of the one before has slid out.
            Some(spare) if previous > 0 => (index + 1) * length - (spare * length / previous).min(length),
            Some(_) => rolled.now(),
            // Within the next window, when enough of this one has slid out.
            None => (index + 2) * length - (self.limit - cost) * length / current,
        };
        instant * self.quantum.us()
    }
}
