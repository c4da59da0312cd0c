//! What is remembered of one key under one limit.
//!
//! A state holds all that is needed to read it after its limit was changed: it is read as it was written and
//! then converted, so that a change neither forgets what was used nor misreads it. No state is the same as a
//! limit that was never used.

use super::{
    quantum::Quantum,
    sliding_window::{self, Window},
    token_bucket::{self, Bucket},
};

/// Names the state of one limit of one policy, the same on all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u64);

/// The state of one key under one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a token bucket.
    TokenBucket(Bucket),
    /// Of a sliding window counter.
    SlidingWindow(Window),
}

/// Bytes of a state in a store: kind, exponent of the quantum, four numbers.
pub const STATE_BYTES: usize = 2 + 4 * 8;

/// Kind of a state in its bytes; scripts know it too.
pub const KIND_TOKEN_BUCKET: u8 = 1;
/// See [`KIND_TOKEN_BUCKET`].
pub const KIND_SLIDING_WINDOW: u8 = 2;

impl State {
    /// Cost that counts as used at `now_us`, rounded up to whole units: what a change of the limit keeps.
    pub fn used(&self, now_us: u64) -> u64 {
        match self {
            Self::TokenBucket(bucket) => token_bucket::used(bucket, now_us),
            Self::SlidingWindow(window) => sliding_window::used(window, now_us),
        }
    }

    /// The instant from which the state is the same as none, in microseconds.
    pub fn expires_at_us(&self) -> u64 {
        match self {
            Self::TokenBucket(bucket) => bucket.drained_at_us(),
            Self::SlidingWindow(window) => window.ends_at_us(),
        }
    }

    /// The state as a store writes it: kind, exponent of the quantum, and four numbers below 2^53.
    pub fn to_parts(self) -> (u8, u8, [u64; 4]) {
        match self {
            Self::TokenBucket(Bucket { quantum, units_per_token, units_per_quantum, at, debt }) => {
                (KIND_TOKEN_BUCKET, quantum.exponent(), [units_per_token, units_per_quantum, at, debt])
            }
            Self::SlidingWindow(Window { quantum, length, index, current, previous }) => {
                (KIND_SLIDING_WINDOW, quantum.exponent(), [length, index, current, previous])
            }
        }
    }

    /// Reads what [`State::to_parts`] gave; `None` for another kind or exponent. The numbers are not checked.
    pub fn from_parts(kind: u8, exponent: u8, [first, second, third, fourth]: [u64; 4]) -> Option<Self> {
        let quantum = Quantum::from_exponent(exponent)?;
        match kind {
            KIND_TOKEN_BUCKET => {
                let (units_per_token, units_per_quantum, at, debt) = (first, second, third, fourth);
                Some(Self::TokenBucket(Bucket { quantum, units_per_token, units_per_quantum, at, debt }))
            }
            KIND_SLIDING_WINDOW => {
                let (length, index, current, previous) = (first, second, third, fourth);
                Some(Self::SlidingWindow(Window { quantum, length, index, current, previous }))
            }
            _ => None,
        }
    }

    /// The bytes that the Redis store holds. Numbers are IEEE doubles, as Lua's are; all are below 2^53.
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        let (kind, exponent, numbers) = self.to_parts();
        let mut bytes = [0; STATE_BYTES];
        bytes[0] = kind;
        bytes[1] = exponent;
        for (slot, number) in bytes[2..].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&(number as f64).to_le_bytes());
        }
        bytes
    }

    /// Reads the bytes that [`State::to_bytes`] or a script wrote; `None` where they are not a state.
    pub fn from_bytes(bytes: &[u8; STATE_BYTES]) -> Option<Self> {
        let mut numbers = [0; 4];
        for (number, slot) in numbers.iter_mut().zip(bytes[2..].chunks_exact(8)) {
            *number = whole(f64::from_le_bytes(slot.try_into().ok()?))?;
        }
        let state = Self::from_parts(bytes[0], bytes[1], numbers)?;
        let valid = match &state {
            Self::TokenBucket(bucket) => {
                bucket.units_per_token > 0 && bucket.units_per_quantum > 0 && bucket.is_valid()
            }
            Self::SlidingWindow(window) => window.length > 0 && window.is_valid(),
        };
        valid.then_some(state)
    }
}

/// A double as the whole number that it is.
fn whole(number: f64) -> Option<u64> {
    const BOUND: u64 = 1 << 53;
    let whole = number as u64;
    (whole < BOUND && whole as f64 == number).then_some(whole)
}
