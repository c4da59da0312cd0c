//! Requests that wait to be sent, in the order in which they came.

use std::{collections::VecDeque, time::Instant};

use tollgate_protocol::check::{CheckEncoder, Operation};

use crate::{
    pending::{Failure, Waiter, earliest},
    policy::PolicyId,
    request::Request,
};

/// A call, whole or what is left of it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) waiter: Waiter,
    pub(crate) deadline: Instant,
}

/// A request; its key stands in [`Waiting::keys`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) linked: bool,
    pub(crate) key_bytes: u16,
    pub(crate) policy: PolicyId,
    pub(crate) cost: u64,
}

/// A queue of calls. Their requests and keys stand one after another, so that a call takes no allocation.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    calls: VecDeque<Call>,
    asks: VecDeque<Ask>,
    keys: Vec<u8>,
    /// Bytes of `keys` that belong to requests already taken.
    keys_taken: usize,
    /// No call's deadline is earlier; `None` where there is no call.
    first_deadline: Option<Instant>,
}

/// Requests at the front that must travel in one frame: one, or a linked run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) count: usize,
    /// Upper bound of their bytes in a frame.
    pub(crate) bytes_max: usize,
}

impl Waiting {
    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.asks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A time before which no call expires.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.first_deadline
    }

    /// Appends a verified request of the call that is pushed next.
    pub(crate) fn push_request(&mut self, request: &Request<'_>) {
        self.keys.extend_from_slice(request.key);
        self.asks.push_back(Ask {
            operation: request.operation,
            linked: request.linked,
            // A verified key has at most 1,024 bytes.
            key_bytes: request.key.len() as u16,
            policy: request.policy.id(),
            cost: request.cost,
        });
    }

    /// Appends the call of the requests that were pushed since the last one.
    pub(crate) fn push_call(&mut self, call: Call) {
        self.first_deadline = earliest(self.first_deadline, Some(call.deadline));
        self.calls.push_back(call);
    }

    /// Moves all calls of `other` to the end of this queue.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            self.clear();
            std::mem::swap(self, other);
            return;
        }
        self.calls.append(&mut other.calls);
        self.asks.append(&mut other.asks);
        self.keys.extend_from_slice(&other.keys[other.keys_taken..]);
        self.first_deadline = earliest(self.first_deadline, other.first_deadline);
        other.clear();
    }

    /// The call at the front.
    pub(crate) fn front(&self) -> Option<&Call> {
        self.calls.front()
    }

    /// The group at the front.
    pub(crate) fn front_group(&self) -> Group {
        let mut group = Group { count: 0, bytes_max: 0 };
        for ask in &self.asks {
            // Linked requests have the same key, which is sent once.
            let key_bytes = if group.count == 0 { usize::from(ask.key_bytes) } else { 0 };
            group.count += 1;
            group.bytes_max += CheckEncoder::item_bytes_max(key_bytes);
            if !ask.linked {
                break;
            }
        }
        group
    }

    /// Policy of a request of [`Waiting::front_group`].
    pub(crate) fn policy(&self, index: usize) -> PolicyId {
        self.asks[index].policy
    }

    /// Removes the first request and returns it with its key. Its caller stays, see [`Waiting::take_waiter`].
    pub(crate) fn take_ask(&mut self) -> Option<(Ask, &[u8])> {
        let ask = self.asks.pop_front()?;
        let key = &self.keys[self.keys_taken..][..usize::from(ask.key_bytes)];
        self.keys_taken += key.len();
        Some((ask, key))
    }

    /// Removes who waits for the first `count` requests, which were taken and belong to the call at the front.
    pub(crate) fn take_waiter(&mut self, count: usize) -> Option<Waiter> {
        let waiter = match self.calls.front_mut()?.waiter.split(count) {
            Some(head) => head,
            None => self.calls.pop_front()?.waiter,
        };
        if self.calls.is_empty() {
            self.clear();
        }
        Some(waiter)
    }

    /// Fails the group at the front.
    pub(crate) fn fail_group(&mut self, group: Group, failure: &Failure) {
        self.fail_requests(group.count, failure);
    }

    /// Fails the call at the front.
    pub(crate) fn fail_front(&mut self, failure: &Failure) {
        let count = self.front().map_or(0, |call| call.waiter.count());
        self.fail_requests(count, failure);
    }

    fn fail_requests(&mut self, count: usize, failure: &Failure) {
        for _ in 0..count {
            self.take_ask();
        }
        if let Some(waiter) = self.take_waiter(count) {
            waiter.fail(failure);
        }
    }

    /// Fails all calls.
    pub(crate) fn fail_all(&mut self, failure: &Failure) {
        for call in self.calls.drain(..) {
            call.waiter.fail(failure);
        }
        self.clear();
    }

    /// Fails the calls whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant, failure: &Failure) {
        if self.first_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut kept = Self::default();
        while let Some(call) = self.front() {
            if call.deadline <= now {
                self.fail_front(failure);
            } else {
                self.move_front(&mut kept);
            }
        }
        *self = kept;
    }

    fn move_front(&mut self, to: &mut Self) {
        let Some(call) = self.calls.pop_front() else { return };
        for _ in 0..call.waiter.count() {
            let Some((ask, key)) = self.take_ask() else { return };
            to.keys.extend_from_slice(key);
            to.asks.push_back(ask);
        }
        to.push_call(call);
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.asks.clear();
        self.keys.clear();
        self.keys_taken = 0;
        self.first_deadline = None;
    }
}
