//! The pipeline to one shard: what has arrived from all connections goes out together.
//!
//! There is no timer. While fewer than [`PIPELINES_MAX`] pipelines are on their way, what waits is sent at once;
//! otherwise it gathers. A slow shard delays nobody else: each has a lane of its own, and a bounded queue.

use std::{
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::DropGuard;
use tollgate_protocol::reply::Reason;

use super::{flight, node::Node, topology::Topology};
use crate::{batch::Batch, limit::Decision};

/// Pipelines on their way to a shard: one that it works on, and one that is there when it is done.
const PIPELINES_MAX: usize = 2;

/// Most checks that wait for a shard; more are answered `overload`.
const QUEUED_ITEMS_MAX: usize = 8_192;

/// Most batches that are looked at for one pipeline.
const WORKS_MAX: usize = 256;

/// The checks of one batch that belong to one shard.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) batch: Arc<Batch>,
    /// Groups of linked items, with their partition.
    pub(super) groups: Vec<(usize, Range<usize>)>,
    /// When it was queued.
    pub(super) queued: Instant,
    /// Takes the decisions with the index of their item.
    pub(super) answer: oneshot::Sender<Vec<(usize, Decision)>>,
}

impl Work {
    /// Number of checks.
    pub(super) fn items_count(&self) -> usize {
        self.groups.iter().map(|(_, items)| items.len()).sum()
    }

    /// Why it is too late to execute this; `None` where it is not.
    pub(super) fn late(&self, now: Instant, timeout: Duration) -> Option<Reason> {
        if self.batch.deadline.is_some_and(|deadline| deadline <= now) {
            Some(Reason::Deadline)
        } else {
            (now - self.queued > timeout).then_some(Reason::Unavailable)
        }
    }

    /// Answers all of it with what the policies say for `reason`.
    pub(super) fn refuse(self, reason: Reason) {
        let items = self.groups.iter().flat_map(|(_, items)| items.clone());
        let decisions = items.map(|index| (index, self.batch.undecided(index, reason))).collect();
        // Whoever asked may be gone.
        let _ = self.answer.send(decisions);
    }
}

/// The lane of one shard.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) node: Arc<Node>,
    queue: mpsc::UnboundedSender<Work>,
    queued_items: Arc<AtomicUsize>,
    /// Ends the node's connection with the lane.
    _node_guard: DropGuard,
}

impl Lane {
    /// A lane and the task that empties it, which ends when the lane is dropped.
    pub(super) fn start(node: Arc<Node>, node_guard: DropGuard, topology: Weak<Topology>) -> Arc<Self> {
        let (queue, works) = mpsc::unbounded_channel();
        let queued_items = Arc::new(AtomicUsize::new(0));
        tokio::spawn(run(Arc::clone(&node), works, Arc::clone(&queued_items), topology));
        Arc::new(Self { node, queue, queued_items, _node_guard: node_guard })
    }

    /// Queues work, or refuses it where too much is waiting.
    pub(super) fn submit(&self, work: Work) {
        let items = work.items_count();
        let waiting = self.queued_items.fetch_add(items, Ordering::Relaxed);
        if waiting > 0 && waiting + items > QUEUED_ITEMS_MAX {
            self.queued_items.fetch_sub(items, Ordering::Relaxed);
            work.refuse(Reason::Overload);
        } else if let Err(returned) = self.queue.send(work) {
            returned.0.refuse(Reason::Unavailable);
        }
    }
}

async fn run(
    node: Arc<Node>,
    mut queue: mpsc::UnboundedReceiver<Work>,
    queued_items: Arc<AtomicUsize>,
    topology: Weak<Topology>,
) {
    let mut flights = FuturesUnordered::new();
    let mut works = Vec::new();
    loop {
        tokio::select! {
            Some(()) = flights.next(), if !flights.is_empty() => {}
            count = queue.recv_many(&mut works, WORKS_MAX), if flights.len() < PIPELINES_MAX => {
                // No topology: the store is gone, and nobody waits for answers.
                let Some(topology) = topology.upgrade().filter(|_| count > 0) else { break };
                let items = works.iter().map(Work::items_count).sum();
                queued_items.fetch_sub(items, Ordering::Relaxed);
                flights.push(flight::fly(Arc::clone(&node), topology, std::mem::take(&mut works)));
            }
        }
    }
    while flights.next().await.is_some() {}
}
