//! A sliding window counter: costs in two windows, each known by where it starts.

use tollgate_protocol::limit::Limit;

use super::{EXACT, STEP_US, ceil_to, floor_to, quanta};

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) limit: i128,
    length_us: i128,
    quantum_us: i128,
    start_us: i128,
    /// Where in the window the clock stands, counted from the epoch.
    now_us: i128,
    pub(super) count: i128,
    pub(super) before: i128,
}

impl Window {
    /// A window in which nothing was counted; `None` where no quantum keeps the numbers exact.
    pub(super) fn unused(limit: &Limit, now_us: i128) -> Option<Self> {
        let Limit::SlidingWindow { limit, window_us } = *limit else { return None };
        let (limit, length_us) = (i128::from(limit), i128::from(window_us));
        let quantum_us = quanta(length_us).find(|quantum_us| limit * (length_us / quantum_us) < EXACT)?;
        let (start_us, now_us) = (floor_to(now_us, length_us), floor_to(now_us, quantum_us));
        Some(Self { limit, length_us, quantum_us, start_us, now_us, count: 0, before: 0 })
    }

    /// Whether this one's counts can be read as another's.
    pub(super) fn slides_as(&self, other: &Self) -> bool {
        self.length_us == other.length_us && self.quantum_us == other.quantum_us
    }

    /// Takes over what `stored` counted, as of `now_us`.
    pub(super) fn carry(&mut self, stored: &Self, now_us: i128) {
        *self = Self { limit: self.limit, ..stored.at(now_us) };
    }

    /// The window at `now_us`. A clock slightly before the window stands at its start; one far before it is
    /// believed.
    pub(super) fn at(&self, now_us: i128) -> Self {
        let start_us = floor_to(now_us, self.length_us);
        let now_floored_us = floor_to(now_us, self.quantum_us);
        if start_us < self.start_us && self.start_us - now_us <= STEP_US {
            return Self { now_us: self.start_us, ..self.clone() };
        }
        let (count, before) = match (start_us - self.start_us) / self.length_us {
            ..=0 => (self.count, self.before),
            1 => (0, self.count),
            2.. => (0, 0),
        };
        Self { start_us, now_us: now_floored_us, count, before, ..self.clone() }
    }

    fn end_us(&self) -> i128 {
        self.start_us + self.length_us
    }

    /// Cost that counts, times the window's length.
    fn weighted(&self) -> i128 {
        self.before * (self.end_us() - self.now_us) + self.count * self.length_us
    }

    pub(super) fn used(&self) -> i128 {
        ceil_to(self.weighted(), self.length_us, 1)
    }

    pub(super) fn admits(&self, cost: i128) -> bool {
        self.weighted() + cost * self.length_us <= self.limit * self.length_us
    }

    pub(super) fn remaining(&self) -> i128 {
        (self.limit - self.used()).max(0)
    }

    pub(super) fn admits_at_us(&self, cost: i128) -> i128 {
        let spare = self.limit - cost;
        if self.count <= spare {
            self.slid_to_us(self.end_us(), self.before, spare - self.count)
        } else {
            self.slid_to_us(self.end_us() + self.length_us, self.count, spare)
        }
    }

    /// The first instant at which no more than `spare` of a `count` whose weight is gone at `end_us` counts.
    fn slid_to_us(&self, end_us: i128, count: i128, spare: i128) -> i128 {
        ceil_to(end_us * count - spare * self.length_us, count, self.quantum_us)
    }

    pub(super) fn unused_at_us(&self) -> i128 {
        if self.count > 0 { self.end_us() + self.length_us } else { self.end_us() }
    }

    pub(super) fn charge(&mut self, cost: i128) {
        let count_max = EXACT / (self.length_us / self.quantum_us);
        self.count = (self.count + cost).min(count_max);
    }

    pub(super) fn refund(&mut self, cost: i128) {
        let from_before = (cost - self.count).max(0);
        self.count = (self.count - cost).max(0);
        self.before = (self.before - from_before).max(0);
    }
}
