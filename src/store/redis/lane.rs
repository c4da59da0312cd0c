//! The pipeline to one shard: what has arrived from all connections goes out together.
//!
//! There is no timer. While fewer than [`PIPELINES_MAX`] pipelines are on their way, what waits is sent at once;
//! otherwise it gathers. A slow shard delays nobody else: each has a lane of its own, and a bounded queue.

use std::{
    ops::Range,
    sync::{Arc, Weak},
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
use crate::{
    batch::Batch,
    limit::Decision,
    sync::atomic::{AtomicUsize, Ordering},
};

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

/// Checks that wait for a shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog(Arc<AtomicUsize>);

impl Backlog {
    /// Counts checks as waiting, whatever their number is then, until what is returned is dropped.
    pub(super) fn hold(&self, items: usize) -> Held {
        self.count(items).0
    }

    /// As [`Backlog::hold`], unless too much is waiting. Where nothing is, any number fits.
    fn try_hold(&self, items: usize) -> Option<Held> {
        let (held, before) = self.count(items);
        (before == 0 || before + items <= QUEUED_ITEMS_MAX).then_some(held)
    }

    /// Counts checks as waiting, and says how many were before.
    fn count(&self, items: usize) -> (Held, usize) {
        let before = self.0.fetch_add(items, Ordering::Relaxed);
        (Held { backlog: self.clone(), items }, before)
    }
}

/// Checks that count as waiting.
#[derive(Debug)]
pub(super) struct Held {
    backlog: Backlog,
    items: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.backlog.0.fetch_sub(self.items, Ordering::Relaxed);
    }
}

/// The lane of one shard.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) node: Arc<Node>,
    queue: mpsc::UnboundedSender<(Work, Held)>,
    backlog: Backlog,
    /// Ends the node's connection with the lane.
    _node_guard: DropGuard,
}

impl Lane {
    /// A lane and the task that empties it, which ends when the lane is dropped.
    pub(super) fn start(node: Arc<Node>, node_guard: DropGuard, topology: Weak<Topology>) -> Arc<Self> {
        let (queue, works) = mpsc::unbounded_channel();
        let backlog = Backlog::default();
        tokio::spawn(run(Arc::clone(&node), works, backlog.clone(), topology));
        Arc::new(Self { node, queue, backlog, _node_guard: node_guard })
    }

    /// Queues work, or refuses it where too much is waiting.
    pub(super) fn submit(&self, work: Work) {
        let Some(held) = self.backlog.try_hold(work.items_count()) else {
            return work.refuse(Reason::Overload);
        };
        if let Err(returned) = self.queue.send((work, held)) {
            returned.0.0.refuse(Reason::Unavailable);
        }
    }
}

async fn run(
    node: Arc<Node>,
    mut queue: mpsc::UnboundedReceiver<(Work, Held)>,
    backlog: Backlog,
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
                let works = works.drain(..).map(|(work, _)| work).collect();
                flights.push(flight::fly(Arc::clone(&node), topology, works, backlog.clone()));
            }
        }
    }
    while flights.next().await.is_some() {}
}

#[cfg(all(test, tollgate_loom))]
mod loom_tests;
