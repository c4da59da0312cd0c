//! The bounds of the store, over all stripes.

use super::{MemoryConfig, row::row_bytes};
use crate::sync::atomic::{AtomicU64, Ordering};

/// What a row takes outside itself: at most 12 bytes in the index, at most 3 for the chunks.
const INDEX_BYTES: usize = 16;

/// Bytes counted for a state of a key of `key_bytes`: at most 63 over the key.
pub(super) const fn counted_bytes(key_bytes: usize) -> u64 {
    (row_bytes(key_bytes) + INDEX_BYTES) as u64
}

/// What is held now, and how much it may be. Touched only where a state is added or removed; on cache lines of
/// its own.
#[repr(align(128))]
pub(super) struct Bounds {
    config: MemoryConfig,
    keys: AtomicU64,
    bytes: AtomicU64,
}

impl Bounds {
    /// Bounds of an empty store.
    pub(super) fn new(config: MemoryConfig) -> Self {
        Self { config, keys: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// States held.
    pub(super) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes counted for them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes room for one state of `bytes`, if there is any.
    pub(super) fn take(&self, bytes: u64) -> bool {
        if !add_within(&self.keys, 1, self.config.keys_max) {
            return false;
        }
        let fits = add_within(&self.bytes, bytes, self.config.bytes_max);
        if !fits {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back the room of `keys` states of together `bytes`.
    pub(super) fn give_back(&self, keys: u64, bytes: u64) {
        self.keys.fetch_sub(keys, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn add_within(counter: &AtomicU64, amount: u64, max: u64) -> bool {
    let within = |held: u64| held.checked_add(amount).filter(|&sum| sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}
