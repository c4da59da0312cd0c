//! What callers and a connection's task share: the queue from one to the other.

use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate_protocol::limits::ITEMS_DEFAULT;

use crate::{
    request::Request,
    waiting::{Call, Waiting},
};

/// Most requests that wait for one connection when a call comes.
const WAITING_MAX: usize = 64 * ITEMS_DEFAULT;

/// The way to a live connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Waiting,
    /// Requests that the task has taken over and not sent.
    ready: usize,
    rest: Rest,
    closed: bool,
}

/// What the connection's task rests for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It does not, and will look at the queue by itself.
    #[default]
    Awake,
    /// For any call: it could be sent at once.
    UntilCall,
    /// It cannot send: only for a call that expires before this time.
    Until(Instant),
}

impl Rest {
    fn ends_for(self, deadline: Instant) -> bool {
        match self {
            Self::Awake => false,
            Self::UntilCall => true,
            Self::Until(time) => deadline < time,
        }
    }
}

/// Why a call was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The connection is no longer used.
    Closed,
    /// This many requests wait already.
    Full(usize),
}

impl Link {
    /// Queues a call of one request.
    pub(crate) fn push(&self, request: &Request<'_>, call: Call) -> Result<(), PushError> {
        self.push_with(|waiting| {
            let deadline = call.deadline;
            waiting.push_request(request);
            waiting.push_call(call);
            deadline
        })
    }

    /// Queues calls that were put together elsewhere. They stay in `calls` where this fails.
    pub(crate) fn push_all(&self, calls: &mut Waiting, deadline: Instant) -> Result<(), PushError> {
        self.push_with(|waiting| {
            waiting.append(calls);
            deadline
        })
    }

    fn push_with(&self, add: impl FnOnce(&mut Waiting) -> Instant) -> Result<(), PushError> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(PushError::Closed);
        }
        let count = queue.waiting.len() + queue.ready;
        if count >= WAITING_MAX {
            return Err(PushError::Full(count));
        }
        let deadline = add(&mut queue.waiting);
        let wakes = queue.rest.ends_for(deadline);
        if wakes {
            queue.rest = Rest::Awake;
        }
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Moves what was queued to the end of `ready`.
    pub(crate) fn pull(&self, ready: &mut Waiting) {
        let mut queue = self.queue.lock();
        queue.rest = Rest::Awake;
        ready.append(&mut queue.waiting);
    }

    /// Rests, unless something that ends the rest is queued already. `ready` requests are with the task.
    pub(crate) fn rest(&self, rest: Rest, ready: usize) -> bool {
        let mut queue = self.queue.lock();
        queue.ready = ready;
        let may_rest = queue.waiting.first_deadline().is_none_or(|deadline| !rest.ends_for(deadline));
        if may_rest {
            queue.rest = rest;
        }
        may_rest
    }

    /// Waits for a call that ends the rest.
    pub(crate) async fn called(&self) {
        self.wake.notified().await;
    }

    /// Takes no more calls; moves what was queued to the end of `ready`.
    pub(crate) fn close(&self, ready: &mut Waiting) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        ready.append(&mut queue.waiting);
    }
}

#[cfg(test)]
mod tests;
