//! Where states are kept and decisions made: the server's own memory, or Redis.

pub mod memory;
pub mod redis;

use crate::{
    batch::Batch,
    limit::{Decision, decide::refuse},
};
use tollgate_protocol::reply::Reason;

/// A store.
#[derive(Debug)]
pub enum Store {
    /// This process's memory.
    Memory(memory::MemoryStore),
    /// One Redis or a Redis Cluster.
    Redis(redis::RedisStore),
}

/// Answers for a group of linked items of which at least one is not a valid request: that one gets its own
/// reason, the others did not pass together. `None` where all are valid.
pub(crate) fn refuse_invalid(batch: &Batch, group: std::ops::Range<usize>) -> Option<Vec<Decision>> {
    let reasons: Vec<_> = batch.items()[group].iter().map(|item| batch.request(item).err()).collect();
    if reasons.iter().all(Option::is_none) {
        return None;
    }
    Some(reasons.into_iter().map(|reason| refuse(reason.unwrap_or(Reason::Linked))).collect())
}
