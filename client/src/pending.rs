//! Who waits for an answer, and the batches that are in flight.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use tokio::sync::{mpsc, oneshot};

use crate::{decision::Decision, error::CheckError, policy::PolicyId};

/// What becomes of a request on one connection.
pub(crate) type Outcome = Result<Decision, Failure>;

/// Why a request has no decision from this connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Provably not executed: may be sent on another connection.
    NotExecuted,
    /// The caller gets this.
    Final(CheckError),
}

/// Where outcomes go. One that is dropped instead tells its caller that the connection's task ended.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A call of one request.
    One(oneshot::Sender<Outcome>),
    /// A run of a call of many requests.
    Many(Share),
}

impl Waiter {
    /// Requests that wait here.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(share) => share.count,
        }
    }

    /// Splits off the first `count` requests; `None` where there are no more than that.
    pub(crate) fn split(&mut self, count: usize) -> Option<Self> {
        match self {
            Self::Many(share) if share.count > count => Some(Self::Many(share.split(count))),
            _ => None,
        }
    }

    /// Hands over one outcome a request. A caller that no longer waits is no concern.
    pub(crate) fn answer(self, mut outcomes: impl Iterator<Item = Outcome>) {
        match self {
            Self::One(sender) => {
                if let Some(outcome) = outcomes.next() {
                    let _ = sender.send(outcome);
                }
            }
            Self::Many(share) => share.answer(outcomes.collect()),
        }
    }

    /// Hands the same failure to each request.
    pub(crate) fn fail(self, failure: &Failure) {
        let count = self.count();
        self.answer(std::iter::repeat_n(failure, count).map(|failure| Err(failure.clone())));
    }
}

/// Requests that follow one another in a call of many.
#[derive(Debug)]
pub(crate) struct Share {
    sender: mpsc::UnboundedSender<Answers>,
    first: usize,
    count: usize,
}

/// Outcomes of requests that follow one another in a call of many.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Position of the first.
    pub(crate) first: usize,
    /// `None` where the connection's task ended without them.
    pub(crate) outcomes: Option<Vec<Outcome>>,
    /// How many requests.
    pub(crate) count: usize,
}

impl Share {
    pub(crate) fn new(sender: mpsc::UnboundedSender<Answers>, first: usize, count: usize) -> Self {
        Self { sender, first, count }
    }

    fn split(&mut self, count: usize) -> Self {
        let head = Self { sender: self.sender.clone(), first: self.first, count };
        self.first += count;
        self.count -= count;
        head
    }

    fn answer(mut self, outcomes: Vec<Outcome>) {
        self.send(Some(outcomes));
    }

    fn send(&mut self, outcomes: Option<Vec<Outcome>>) {
        let count = std::mem::take(&mut self.count);
        let _ = self.sender.send(Answers { first: self.first, outcomes, count });
    }
}

/// A caller counts on hearing of each request.
impl Drop for Share {
    fn drop(&mut self) {
        if self.count > 0 {
            self.send(None);
        }
    }
}

/// A part of a batch that belongs to one call.
#[derive(Debug)]
pub(crate) struct Part {
    /// `None` once the call has timed out: its place in the reply is skipped.
    waiter: Option<Waiter>,
    count: usize,
    deadline: Instant,
}

/// A CHECK frame that has no reply yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) id: u32,
    /// Where the frame ends in the stream of bytes to the server.
    pub(crate) end: u64,
    parts: Vec<Part>,
    /// Policy of each item.
    policies: Vec<PolicyId>,
    first_deadline: Option<Instant>,
}

impl Batch {
    /// Adds an item.
    pub(crate) fn push_policy(&mut self, policy: PolicyId) {
        self.policies.push(policy);
    }

    /// Adds who waits for the items that were added since the last one.
    pub(crate) fn push_waiter(&mut self, waiter: Waiter, deadline: Instant) {
        self.first_deadline = earliest(self.first_deadline, Some(deadline));
        self.parts.push(Part { count: waiter.count(), waiter: Some(waiter), deadline });
    }

    /// Items in the frame.
    pub(crate) fn len(&self) -> usize {
        self.policies.len()
    }

    /// Hands out the outcomes; `outcome` makes one from the item's policy and index.
    pub(crate) fn complete(self, mut outcome: impl FnMut(PolicyId, usize) -> Outcome) {
        let mut start = 0;
        for part in self.parts {
            let items = start..start + part.count;
            start = items.end;
            if let Some(waiter) = part.waiter {
                waiter.answer(items.map(|index| outcome(self.policies[index], index)));
            }
        }
    }

    /// Hands the same failure to all that still wait.
    pub(crate) fn fail(self, failure: &Failure) {
        for waiter in self.parts.into_iter().filter_map(|part| part.waiter) {
            waiter.fail(failure);
        }
    }

    fn expire(&mut self, now: Instant, failure: &Failure) {
        if self.first_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.first_deadline = None;
        for part in &mut self.parts {
            if part.deadline > now {
                self.first_deadline =
                    earliest(self.first_deadline, part.waiter.as_ref().map(|_| part.deadline));
            } else if let Some(waiter) = part.waiter.take() {
                waiter.fail(failure);
            }
        }
    }
}

/// The batches in flight, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    batches: VecDeque<Batch>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
    }

    /// Items of the batch of an id.
    pub(crate) fn items(&self, id: u32) -> Option<usize> {
        Some(self.batches[self.index(id)?].len())
    }

    fn index(&self, id: u32) -> Option<usize> {
        self.batches.binary_search_by_key(&id, |batch| batch.id).ok()
    }

    /// The batch of an id.
    pub(crate) fn take(&mut self, id: u32) -> Option<Batch> {
        self.batches.remove(self.index(id)?)
    }

    /// The batches above an id.
    pub(crate) fn take_above(&mut self, id: u32) -> VecDeque<Batch> {
        let index = self.batches.partition_point(|batch| batch.id <= id);
        self.batches.split_off(index)
    }

    /// Fails the calls whose deadline has passed. Their batches stay in flight: the server still works on them.
    pub(crate) fn expire(&mut self, now: Instant, server: &Arc<str>) {
        let failure = Failure::Final(CheckError::Deadline { server: Arc::clone(server), sent: true });
        for batch in &mut self.batches {
            batch.expire(now, &failure);
        }
    }

    /// The earliest deadline of a call in flight.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.batches.iter().filter_map(|batch| batch.first_deadline).min()
    }
}

/// The earlier of two times that may be absent.
pub(crate) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
