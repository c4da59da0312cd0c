//! Token bucket, kept as a debt.
//!
//! A bucket of capacity C that gains R tokens each P. With the quantum q and `g = gcd(R, P/q)`, the bucket
//! gains `r = R/g` units each quantum, and a token is `p = (P/q)/g` units; both are whole, so nothing is ever
//! rounded. The debt d is what is missing from a full bucket, in units: no state is a full bucket.
//!
//! Promise, for every interval of length T: the admitted cost is at most `floor((C*P + R*T) / P)`. It is tight.
//! Where the quantum is above 1 us, which only huge amounts need, T counts in whole quanta, a begun one as a whole.

use super::{AMOUNT_MAX, CLOCK_STEP_US_MAX, quantum::Quantum, state::State};

/// A token bucket made ready to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    quantum: Quantum,
    /// C.
    capacity: u64,
    /// p: units that are one token.
    units_per_token: u64,
    /// r: units gained each quantum.
    units_per_quantum: u64,
}

/// State of a key under a token bucket, with the numbers needed to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Unit of `at`.
    pub quantum: Quantum,
    /// Units that are one token.
    pub units_per_token: u64,
    /// Units gained each quantum.
    pub units_per_quantum: u64,
    /// When it was written, in quanta.
    pub at: u64,
    /// Units missing from a full bucket at that time.
    pub debt: u64,
}

impl Bucket {
    /// Whether its times stay within the numbers that this module works with.
    pub(super) fn is_valid(&self) -> bool {
        let drain_us = self.debt.div_ceil(self.units_per_quantum).checked_mul(self.quantum.us());
        let at_us = self.at.checked_mul(self.quantum.us());
        self.debt <= AMOUNT_MAX && [drain_us, at_us].iter().all(|us| us.is_some_and(|us| us < 2 * AMOUNT_MAX))
    }

    /// When the bucket is full again, in quanta.
    fn drained_at(&self) -> u64 {
        self.at + self.debt.div_ceil(self.units_per_quantum)
    }

    /// When the bucket is full again, in microseconds.
    pub fn drained_at_us(&self) -> u64 {
        self.drained_at() * self.quantum.us()
    }

    /// The same bucket at `now_us`. A clock behind the stored time counts as the stored time; one more than
    /// [`CLOCK_STEP_US_MAX`] behind is believed and the debt kept.
    fn roll(self, now_us: u64) -> Self {
        let now = now_us / self.quantum.us();
        if now >= self.drained_at() {
            Self { at: now, debt: 0, ..self }
        } else if now >= self.at {
            Self { at: now, debt: self.debt - (now - self.at) * self.units_per_quantum, ..self }
        } else if self.at * self.quantum.us() - now_us > CLOCK_STEP_US_MAX {
            Self { at: now, ..self }
        } else {
            self
        }
    }
}

/// Whole tokens in use at `now_us`, rounded up.
pub fn used(bucket: &Bucket, now_us: u64) -> u64 {
    bucket.roll(now_us).debt.div_ceil(bucket.units_per_token)
}

impl TokenBucket {
    /// A bucket of `capacity` tokens that gains `rate` tokens each `period_us`; all at least 1. `None` where no
    /// quantum keeps `C*p` below [`AMOUNT_MAX`], or where an empty bucket takes 2^52 us to fill.
    pub fn new(rate: u64, period_us: u64, capacity: u64) -> Option<Self> {
        let scale = |quantum: Quantum| {
            let period = period_us / quantum.us();
            let divisor = gcd(rate, period);
            (period / divisor, rate / divisor)
        };
        let quantum = Quantum::smallest(period_us, |quantum| {
            let (units_per_token, units_per_quantum) = scale(quantum);
            let units_max = (AMOUNT_MAX - 1).min(debt_max(quantum, units_per_quantum));
            units_per_quantum < AMOUNT_MAX
                && capacity.checked_mul(units_per_token).is_some_and(|units| units <= units_max)
        })?;
        let (units_per_token, units_per_quantum) = scale(quantum);
        Some(Self { quantum, capacity, units_per_token, units_per_quantum })
    }

    /// The most that can pass at once.
    pub fn ceiling(&self) -> u64 {
        self.capacity
    }

    /// The numbers that a script needs: p, r, C, and the most that a debt can be.
    pub fn constants(&self) -> [u64; 4] {
        [self.units_per_token, self.units_per_quantum, self.capacity, self.debt_max()]
    }

    /// The quantum.
    pub fn quantum(&self) -> Quantum {
        self.quantum
    }

    fn debt_max(&self) -> u64 {
        debt_max(self.quantum, self.units_per_quantum)
    }

    fn capacity_units(&self) -> u64 {
        self.capacity * self.units_per_token
    }

    /// The bucket of a key at `now_us`, converted where it was written under another limit.
    pub fn roll(&self, state: Option<&State>, now_us: u64) -> Bucket {
        match state {
            Some(State::TokenBucket(bucket)) if self.wrote(bucket) => bucket.roll(now_us),
            Some(other) => self.charge(self.full(now_us), other.used(now_us)),
            None => self.full(now_us),
        }
    }

    fn wrote(&self, bucket: &Bucket) -> bool {
        (bucket.quantum, bucket.units_per_token, bucket.units_per_quantum)
            == (self.quantum, self.units_per_token, self.units_per_quantum)
    }

    fn full(&self, now_us: u64) -> Bucket {
        Bucket {
            quantum: self.quantum,
            units_per_token: self.units_per_token,
            units_per_quantum: self.units_per_quantum,
            at: now_us / self.quantum.us(),
            debt: 0,
        }
    }

    /// Whether `cost` may pass now.
    pub fn admits(&self, bucket: &Bucket, cost: u64) -> bool {
        cost <= self.capacity && bucket.debt + cost * self.units_per_token <= self.capacity_units()
    }

    /// The most that may pass now.
    pub fn remaining(&self, bucket: &Bucket) -> u64 {
        self.capacity_units().saturating_sub(bucket.debt) / self.units_per_token
    }

    /// The bucket after `cost` was charged. A debt stops where it would take 2^52 us to drain.
    pub fn charge(&self, bucket: Bucket, cost: u64) -> Bucket {
        let fits = cost <= self.debt_max().saturating_sub(bucket.debt) / self.units_per_token;
        let debt = if fits { bucket.debt + cost * self.units_per_token } else { self.debt_max() };
        Bucket { debt, ..bucket }
    }

    /// The bucket after `cost` was given back, at most full.
    pub fn refund(&self, bucket: Bucket, cost: u64) -> Bucket {
        Bucket { debt: bucket.debt.saturating_sub(cost.saturating_mul(self.units_per_token)), ..bucket }
    }

    /// The first instant at which `cost` would pass, in microseconds. For a cost that is denied now and is at
    /// most [`TokenBucket::ceiling`].
    pub fn admits_at_us(&self, bucket: &Bucket, cost: u64) -> u64 {
        let missing = (bucket.debt + cost * self.units_per_token).saturating_sub(self.capacity_units());
        (bucket.at + missing.div_ceil(self.units_per_quantum)) * self.quantum.us()
    }
}

/// The largest debt: at most [`AMOUNT_MAX`] units, and drained within [`AMOUNT_MAX`] microseconds.
fn debt_max(quantum: Quantum, units_per_quantum: u64) -> u64 {
    AMOUNT_MAX.min((AMOUNT_MAX / quantum.us()).saturating_mul(units_per_quantum))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
