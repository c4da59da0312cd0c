//! A token bucket: what is missing from a full one, in token-microseconds.
//!
//! A token is worth `period_us` of them, and `rate` drain each microsecond, so that nothing is ever divided.

use tollgate_protocol::limit::Limit;

use super::{EXACT, STEP_US, ceil_to, floor_to, quanta};

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    rate: i128,
    period_us: i128,
    pub(super) capacity: i128,
    quantum_us: i128,
    /// Token-microseconds missing at `since_us`.
    pub(super) owed: i128,
    since_us: i128,
}

impl Bucket {
    /// A full bucket; `None` where no quantum keeps the numbers exact.
    pub(super) fn unused(limit: &Limit, now_us: i128) -> Option<Self> {
        let Limit::TokenBucket { rate, period_us, capacity } = *limit else { return None };
        let (rate, period_us, capacity) = (i128::from(rate), i128::from(period_us), i128::from(capacity));
        let quantum_us = quanta(period_us).find(|&quantum_us| {
            // See `unit`.
            let unit = gcd(rate * quantum_us, period_us);
            let fills_us = floor_to(EXACT, quantum_us);
            capacity * (period_us / unit) < EXACT
                && rate * quantum_us / unit < EXACT
                && capacity * period_us <= rate * fills_us
        })?;
        let since_us = floor_to(now_us, quantum_us);
        Some(Self { rate, period_us, capacity, quantum_us, owed: 0, since_us })
    }

    /// The largest amount of which a quantum's gain and a token are both multiples.
    fn unit(&self) -> i128 {
        gcd(self.rate * self.quantum_us, self.period_us)
    }

    fn owed_max(&self) -> i128 {
        (EXACT * self.unit()).min(self.rate * floor_to(EXACT, self.quantum_us))
    }

    /// Whether this one's debt can be read as another's: the same gain in the same quanta.
    pub(super) fn drains_as(&self, other: &Self) -> bool {
        self.quantum_us == other.quantum_us && self.rate * other.period_us == other.rate * self.period_us
    }

    /// Takes over what `stored` says is owed at `now_us`.
    pub(super) fn carry(&mut self, stored: &Self, now_us: i128) {
        let stored = stored.at(now_us);
        self.owed = stored.owed / stored.unit() * self.unit();
        self.since_us = stored.since_us;
    }

    /// The bucket at `now_us`. A clock slightly behind stands still; one far behind is believed.
    pub(super) fn at(&self, now_us: i128) -> Self {
        let now_floored_us = floor_to(now_us, self.quantum_us);
        let elapsed_us = (now_floored_us - self.since_us).max(0);
        let behind = now_floored_us < self.since_us && self.since_us - now_us <= STEP_US;
        Self {
            owed: (self.owed - self.rate * elapsed_us).max(0),
            since_us: if behind { self.since_us } else { now_floored_us },
            ..self.clone()
        }
    }

    pub(super) fn used(&self) -> i128 {
        ceil_to(self.owed, self.period_us, 1)
    }

    pub(super) fn admits(&self, cost: i128) -> bool {
        self.owed + cost * self.period_us <= self.capacity * self.period_us
    }

    pub(super) fn remaining(&self) -> i128 {
        (self.capacity - self.used()).max(0)
    }

    pub(super) fn admits_at_us(&self, cost: i128) -> i128 {
        self.drained_to_us((self.capacity - cost) * self.period_us)
    }

    pub(super) fn unused_at_us(&self) -> i128 {
        self.drained_to_us(0)
    }

    /// The first instant at which no more than `owed` is owed.
    fn drained_to_us(&self, owed: i128) -> i128 {
        self.since_us + ceil_to((self.owed - owed).max(0), self.rate, self.quantum_us)
    }

    pub(super) fn charge(&mut self, cost: i128) {
        self.owed = (self.owed + cost * self.period_us).min(self.owed_max());
    }

    pub(super) fn refund(&mut self, cost: i128) {
        self.owed = (self.owed - cost * self.period_us).max(0);
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
