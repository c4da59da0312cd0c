//! Calls that wait to be sent, in the order in which they came.

use std::{collections::VecDeque, ops::Add, time::Instant};

use tollgate_protocol::check::{CheckEncoder, Operation};

use crate::{
    pending::earliest,
    policy::PolicyId,
    request::Request,
    slots::{SlotId, Slots},
};

/// A call, or a part of one that travels in one frame. Its requests and keys stand in [`Waiting`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Where its caller waits; set when it is queued on a link.
    pub(crate) slot: SlotId,
    pub(crate) deadline: Instant,
    pub(crate) size: Size,
}

/// How much of a frame requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) requests: usize,
    /// Upper bound of their bytes in a frame.
    pub(crate) bytes_max: usize,
}

/// A request; its key stands in [`Waiting`].
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
    asks: Consumed<Ask>,
    keys: Consumed<u8>,
    /// Of the requests that were pushed since the last call.
    open: Size,
    /// No call's deadline is earlier; `None` where there is no call.
    first_deadline: Option<Instant>,
}

impl Size {
    /// The size of the requests of a group: one request, or a linked run of one key, which is sent once.
    pub(crate) fn of_group(requests: usize, key_bytes: usize) -> Self {
        Self { requests, bytes_max: requests * CheckEncoder::item_bytes_max(0) + key_bytes }
    }

    /// Whether a frame that takes `most` has room for it.
    pub(crate) fn fits_in(&self, most: &Self) -> bool {
        self.requests <= most.requests && self.bytes_max <= most.bytes_max
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, bytes_max: self.bytes_max + other.bytes_max }
    }
}

impl Waiting {
    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.asks.rest().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A time before which no call expires.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.first_deadline
    }

    /// Makes room for requests whose keys have `key_bytes` each.
    pub(crate) fn reserve(&mut self, requests: usize, key_bytes: usize) {
        self.asks.items.reserve(requests);
        self.keys.items.reserve(requests.saturating_mul(key_bytes));
    }

    /// Size of the requests that were pushed since the last call.
    pub(crate) fn open(&self) -> Size {
        self.open
    }

    /// Appends a verified group to the call that is pushed next.
    pub(crate) fn push_group<'a>(&mut self, size: Size, requests: impl Iterator<Item = Request<'a>>) {
        self.open = self.open + size;
        requests.for_each(|request| self.push_ask(&request));
    }

    /// Appends a verified request that is a call of its own.
    pub(crate) fn push_request(&mut self, request: &Request<'_>, slot: SlotId, deadline: Instant) {
        self.open = Size::of_group(1, request.key.len());
        self.push_ask(request);
        self.push_call(slot, deadline);
    }

    fn push_ask(&mut self, request: &Request<'_>) {
        self.keys.items.extend_from_slice(request.key);
        self.asks.items.push(Ask {
            operation: request.operation,
            linked: request.linked,
            // A verified key has at most 1,024 bytes.
            key_bytes: request.key.len() as u16,
            policy: request.policy.id(),
            cost: request.cost,
        });
    }

    /// Appends the call of the requests that were pushed since the last one.
    pub(crate) fn push_call(&mut self, slot: SlotId, deadline: Instant) {
        let size = std::mem::take(&mut self.open);
        self.first_deadline = earliest(self.first_deadline, Some(deadline));
        self.calls.push_back(Call { slot, deadline, size });
    }

    /// Opens a slot for each call.
    pub(crate) fn open_slots(&mut self, slots: &mut Slots) -> Vec<SlotId> {
        let calls = self.calls.iter_mut();
        calls
            .map(|call| {
                call.slot = slots.open(None);
                call.slot
            })
            .collect()
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
        self.keys.append(&mut other.keys);
        self.first_deadline = earliest(self.first_deadline, other.first_deadline);
        other.clear();
    }

    /// The call at the front.
    pub(crate) fn front(&self) -> Option<&Call> {
        self.calls.front()
    }

    /// Removes the call at the front and returns it with its requests, and their keys one after another.
    pub(crate) fn take_front(&mut self) -> Option<(Call, &[Ask], &[u8])> {
        let call = self.calls.pop_front()?;
        if self.calls.is_empty() {
            self.first_deadline = None;
        }
        let asks = self.asks.take(call.size.requests);
        let key_bytes = asks.iter().map(|ask| usize::from(ask.key_bytes)).sum();
        Some((call, asks, self.keys.take(key_bytes)))
    }

    /// Removes the calls whose deadline has passed, and tells their slots.
    pub(crate) fn expire(&mut self, now: Instant, mut expired: impl FnMut(SlotId)) {
        if self.first_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut kept = Self::default();
        while let Some((call, asks, keys)) = self.take_front() {
            if call.deadline <= now {
                expired(call.slot);
            } else {
                kept.first_deadline = earliest(kept.first_deadline, Some(call.deadline));
                kept.calls.push_back(call);
                kept.asks.items.extend_from_slice(asks);
                kept.keys.items.extend_from_slice(keys);
            }
        }
        *self = kept;
    }

    /// Removes all calls and tells their slots.
    pub(crate) fn take_all(&mut self, mut taken: impl FnMut(SlotId)) {
        self.calls.drain(..).for_each(|call| taken(call.slot));
        self.clear();
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.asks.clear();
        self.keys.clear();
        self.open = Size::default();
        self.first_deadline = None;
    }
}

/// A vector that is filled at its end and emptied from its front.
#[derive(Debug)]
struct Consumed<T> {
    items: Vec<T>,
    /// How many at the front were taken.
    taken: usize,
}

impl<T> Default for Consumed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), taken: 0 }
    }
}

impl<T> Consumed<T> {
    fn rest(&self) -> &[T] {
        &self.items[self.taken..]
    }

    fn take(&mut self, count: usize) -> &[T] {
        let start = self.taken;
        self.taken += count;
        &self.items[start..self.taken]
    }

    fn append(&mut self, other: &mut Self) {
        // Never more is moved than was taken, so that a queue that is never empty costs no more and does not grow.
        if self.taken > self.items.len() / 2 {
            self.items.drain(..self.taken);
            self.taken = 0;
        }
        self.items.extend(other.items.drain(other.taken..));
        other.clear();
    }

    fn clear(&mut self) {
        self.items.clear();
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow() {
        let mut queue = Consumed { items: vec![0; 100], taken: 0 };
        for number in 0..10_000 {
            let mut more = Consumed { items: vec![number; 100], taken: 0 };
            queue.append(&mut more);
            assert_eq!(queue.take(100).len(), 100);
            assert_eq!(queue.rest(), [number; 100], "what came last is left");
        }
        assert!(queue.items.capacity() <= 1_000);
    }
}
