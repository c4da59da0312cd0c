//! The list of algorithms: a limit made ready to be applied.

use tollgate_protocol::limit::Limit;

use super::{
    sliding_window::{RolledWindow, SlidingWindow},
    state::{KIND_SLIDING_WINDOW, KIND_TOKEN_BUCKET, State},
    token_bucket::{Bucket, TokenBucket},
};

/// A limit made ready to be applied. To add an algorithm: a file beside this one, an arm in each `match` here
/// and in [`State`], its text and wire form in the protocol crate, and its Lua in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// See [`super::token_bucket`].
    TokenBucket(TokenBucket),
    /// See [`super::sliding_window`].
    SlidingWindow(SlidingWindow),
}

/// A limit that cannot be enforced exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{limit}` cannot be enforced exactly: {what} times the period, in a power of ten of microseconds that \
     divides it, reaches 2^52; lower the amount, or choose a shorter or rounder period"
)]
pub struct UnsupportedLimit {
    limit: Limit,
    what: &'static str,
}

/// The state of a key at an instant, ready for questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rolled {
    /// Under a token bucket.
    TokenBucket(Bucket),
    /// Under a sliding window counter.
    SlidingWindow(RolledWindow),
}

impl Rolled {
    /// The first instant at which this is the same as nothing, in microseconds; not after `now_us` where it is.
    pub fn resets_at_us(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.drained_at_us(),
            Self::SlidingWindow(rolled) => rolled.window.ends_at_us(),
        }
    }

    /// What a store keeps; `None` where that is the same as nothing.
    pub fn to_state(self) -> Option<State> {
        match self {
            Self::TokenBucket(bucket) => (bucket.debt > 0).then_some(State::TokenBucket(bucket)),
            Self::SlidingWindow(RolledWindow { window, .. }) => {
                (window.current > 0 || window.previous > 0).then_some(State::SlidingWindow(window))
            }
        }
    }
}

/// Applies a method of an algorithm to its rolled state. A rolled state comes from the rule that it is used
/// with, so the arms agree; where a caller mixed them up, `$otherwise` is the careful answer.
macro_rules! apply {
    ($rule:expr, $rolled:expr, $otherwise:expr, $method:ident $(, $argument:expr)*) => {
        match ($rule, $rolled) {
            (Rule::TokenBucket(rule), Rolled::TokenBucket(rolled)) => rule.$method(rolled $(, $argument)*),
            (Rule::SlidingWindow(rule), Rolled::SlidingWindow(rolled)) => rule.$method(rolled $(, $argument)*),
            _ => $otherwise,
        }
    };
}

/// As `apply`, where the method gives the rolled state back.
macro_rules! apply_change {
    ($rule:expr, $rolled:expr, $method:ident, $cost:expr) => {
        match ($rule, $rolled) {
            (Rule::TokenBucket(rule), Rolled::TokenBucket(rolled)) => {
                Rolled::TokenBucket(rule.$method(rolled, $cost))
            }
            (Rule::SlidingWindow(rule), Rolled::SlidingWindow(rolled)) => {
                Rolled::SlidingWindow(rule.$method(rolled, $cost))
            }
            (_, rolled) => rolled,
        }
    };
}

impl Rule {
    /// Makes a limit ready.
    ///
    /// # Errors
    /// [`UnsupportedLimit`] where its products would reach 2^52 at every quantum that divides its period.
    pub fn new(limit: &Limit) -> Result<Self, UnsupportedLimit> {
        let (rule, what) = match *limit {
            Limit::TokenBucket { rate, period_us, capacity } => {
                (TokenBucket::new(rate, period_us, capacity).map(Self::TokenBucket), "the burst")
            }
            Limit::SlidingWindow { limit, window_us } => {
                (SlidingWindow::new(limit, window_us).map(Self::SlidingWindow), "the amount")
            }
            _ => (None, "the amount"),
        };
        rule.ok_or(UnsupportedLimit { limit: *limit, what })
    }

    /// What a script needs: the kind and the exponent of the quantum, as in a state, and four numbers.
    pub fn constants(&self) -> (u8, u8, [u64; 4]) {
        match self {
            Self::TokenBucket(rule) => (KIND_TOKEN_BUCKET, rule.quantum().exponent(), rule.constants()),
            Self::SlidingWindow(rule) => (KIND_SLIDING_WINDOW, rule.quantum().exponent(), rule.constants()),
        }
    }

    /// The most that can pass at once.
    pub fn ceiling(&self) -> u64 {
        match self {
            Self::TokenBucket(rule) => rule.ceiling(),
            Self::SlidingWindow(rule) => rule.ceiling(),
        }
    }

    /// The state of a key at `now_us`, converted where it was written under another limit.
    pub fn roll(&self, state: Option<&State>, now_us: u64) -> Rolled {
        match self {
            Self::TokenBucket(rule) => Rolled::TokenBucket(rule.roll(state, now_us)),
            Self::SlidingWindow(rule) => Rolled::SlidingWindow(rule.roll(state, now_us)),
        }
    }

    /// Whether `cost` may pass now.
    pub fn admits(&self, rolled: &Rolled, cost: u64) -> bool {
        apply!(self, rolled, false, admits, cost)
    }

    /// The most that may pass now.
    pub fn remaining(&self, rolled: &Rolled) -> u64 {
        apply!(self, rolled, 0, remaining)
    }

    /// The first instant at which `cost` would pass, in microseconds; for a cost that is denied now and is at
    /// most [`Rule::ceiling`].
    pub fn admits_at_us(&self, rolled: &Rolled, cost: u64) -> u64 {
        apply!(self, rolled, u64::MAX, admits_at_us, cost)
    }

    /// The state after `cost` was charged.
    pub fn charge(&self, rolled: Rolled, cost: u64) -> Rolled {
        apply_change!(self, rolled, charge, cost)
    }

    /// The state after `cost` was given back.
    pub fn refund(&self, rolled: Rolled, cost: u64) -> Rolled {
        apply_change!(self, rolled, refund, cost)
    }
}
