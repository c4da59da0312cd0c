//! The embedded store: states in this process's memory.
//!
//! # Stripes
//!
//! A key's hash, seeded anew in each process, chooses one of 64 stripes, each with a lock of its own. All
//! states of a key are in one stripe: policies of several limits and linked checks are decided under one lock.
//! A batch holds one lock at a time, for at most 32 of its checks or groups of linked checks.
//!
//! # Memory
//!
//! A state is a row: id, state and key side by side, no pointer. Rows of equal length stand in a table without
//! gaps; a hash table holds their places. In bytes, over the key:
//!
//! | part | least | most |
//! |---|---|---|
//! | id, kind, quantum, four numbers, length of the key | 40 | 40 |
//! | the row made a multiple of 8 | 0 | 7 |
//! | hash table: 4 + 1 bytes a slot, 7/8 to 7/16 of the slots in use | 6 | 12 |
//! | chunks of 16 rows: their list, and the allocator's part | 2 | 3 |
//! | together | 48 | 62 |
//!
//! Besides, the last chunk of each row length in each stripe is on average half empty. Counted for
//! [`MemoryConfig::bytes_max`] is the row and 16 bytes, which is at most 63 over the key.
//!
//! # Bounds
//!
//! A state that is the same as none (a full bucket, a window that has passed) is removed in the background by
//! [`MemoryStore::sweep`], and by whoever needs room, who looks at a bounded number of states. What is left is
//! limited, and never removed: a new key is then answered `store_full`, with the verdict that its policy has
//! for that, and known keys go on.
//!
//! What is removed goes back to the allocator, and so serves the next keys. When the system gets it back is up
//! to the allocator: glibc's gives back only what lies above all else that is in use.

mod bounds;
mod cells;
mod execution;
#[cfg(all(test, tollgate_loom))]
mod loom_tests;
mod plan;
mod row;
mod rows;
mod stripe;
mod sweep;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use ahash::RandomState;

use self::{bounds::Bounds, stripe::Stripe};
use crate::{
    batch::Batch,
    clock::Clock,
    limit::Decision,
    metrics::Metrics,
    sync::{Mutex, atomic::AtomicUsize},
};

/// In models fewer, since each lock multiplies the orders that there are.
const STRIPES: usize = if cfg!(tollgate_loom) { 2 } else { 64 };

/// Bounds of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Most bytes counted for keys and states.
    pub bytes_max: u64,
    /// Most keys. A key counts once for each limit that it has a state under.
    pub keys_max: u64,
}

/// States in this process's memory.
pub struct MemoryStore {
    stripes: Box<[PaddedStripe]>,
    hasher: RandomState,
    clock: Clock,
    bounds: Bounds,
    /// The stripe where those who need room look next.
    next_stripe: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// A stripe on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct PaddedStripe(Mutex<Stripe>);

impl MemoryStore {
    /// An empty store.
    pub fn new(config: MemoryConfig, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            stripes: std::iter::repeat_with(PaddedStripe::default).take(STRIPES).collect(),
            hasher: RandomState::new(),
            clock,
            bounds: Bounds::new(config),
            next_stripe: AtomicUsize::new(0),
            metrics,
        }
    }

    /// Decides a batch and appends a decision for each of its items, in order. The clock is read once.
    pub fn decide(&self, batch: &Batch, out: &mut Vec<Decision>) {
        execution::execute(self, batch, out);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.bounds.keys()).finish_non_exhaustive()
    }
}
