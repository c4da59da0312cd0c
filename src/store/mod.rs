//! Where states are kept and decisions made: the server's own memory, or Redis.

pub mod memory;
pub mod redis;

use std::{convert::Infallible, future::pending, ops::Range};

use tollgate_protocol::{check::CheckItem, reply::Reason};

use crate::{
    batch::Batch,
    limit::{Decision, decide::refuse},
};

/// A store.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one store")]
pub enum Store {
    /// This process's memory.
    Memory(memory::MemoryStore),
    /// One Redis or a Redis Cluster.
    Redis(redis::RedisStore),
}

impl Store {
    /// Waits until the store can decide.
    pub async fn ready(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(redis) => redis.ready().await,
        }
    }

    /// What a store does besides answering: the embedded one removes expired states.
    pub async fn maintain(&self) -> Infallible {
        match self {
            Self::Memory(memory) => memory.sweep().await,
            // Redis expires states by itself.
            Self::Redis(_) => pending().await,
        }
    }
}

/// Answers for a group of linked items of which at least one is not a valid request: that one gets its own
/// reason, the others did not pass together. `None` where all are valid. Linked items must charge something.
pub(crate) fn refuse_invalid(batch: &Batch, group: Range<usize>) -> Option<Vec<Decision>> {
    let items = &batch.items()[group];
    let reason = |item: &CheckItem| match batch.request(item) {
        Ok(request) if request.cost == 0 && items.len() > 1 => Some(Reason::BadCost),
        Ok(_) => None,
        Err(reason) => Some(reason),
    };
    if !items.iter().any(|item| reason(item).is_some()) {
        return None;
    }
    Some(items.iter().map(|item| refuse(reason(item).unwrap_or(Reason::Linked))).collect())
}
