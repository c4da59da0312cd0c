//! The embedded store.

use std::sync::Arc;

use crate::{batch::Batch, clock::Clock, limit::Decision, metrics::Metrics};

/// Bounds of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Most bytes counted for keys and states.
    pub bytes_max: u64,
    /// Most keys.
    pub keys_max: u64,
}

/// States in this process's memory.
#[derive(Debug)]
pub struct MemoryStore {}

impl MemoryStore {
    /// An empty store.
    pub fn new(_config: MemoryConfig, _clock: Clock, _metrics: Arc<Metrics>) -> Self {
        Self {}
    }

    /// Decides a batch and appends a decision for each of its items, in order.
    pub fn decide(&self, _batch: &Batch, _out: &mut Vec<Decision>) {}
}
