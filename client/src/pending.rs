//! The batches in flight, and who waits for them.

use std::{collections::VecDeque, slice, time::Instant};

use tollgate_protocol::{
    error::{DecodeError, finish},
    reply::{self, ReplyItem},
};

use crate::{
    error::CheckError,
    slots::{Answer, Done, Outcome, SlotId},
    waiting::{Ask, Call},
};

/// A part of a batch that belongs to one call.
#[derive(Debug)]
struct Part {
    /// `None` once the call has timed out: its place in the reply is skipped.
    slot: Option<SlotId>,
    requests: usize,
    deadline: Instant,
}

/// A request that its connection cannot ask.
#[derive(Debug)]
struct Refusal {
    /// Index among the requests of the batch, with those that were refused.
    index: usize,
    error: CheckError,
}

/// A CHECK frame that has no reply yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) id: u32,
    /// Where the frame ends in the stream of bytes to the server.
    pub(crate) end: u64,
    parts: Vec<Part>,
    /// The items of the frame.
    asks: Vec<Ask>,
    /// Requests of the calls that are no items of the frame, in order.
    refusals: Vec<Refusal>,
    first_deadline: Option<Instant>,
}

impl Batch {
    /// Adds an item.
    pub(crate) fn push_ask(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    /// Adds a request that is answered with the item's reply, but not asked.
    pub(crate) fn push_refusal(&mut self, error: CheckError) {
        self.refusals.push(Refusal { index: self.asks.len() + self.refusals.len(), error });
    }

    /// Adds who waits for the requests that were added since the last call.
    pub(crate) fn push_call(&mut self, call: &Call) {
        let Call { slot, deadline, size } = *call;
        self.first_deadline = earliest(self.first_deadline, Some(deadline));
        self.parts.push(Part { slot: Some(slot), requests: size.requests, deadline });
    }

    /// Items in the frame.
    pub(crate) fn items(&self) -> usize {
        self.asks.len()
    }

    /// Whether it has no call yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Hands out the answers; `answer` makes one from an item. Nothing is handed out where one is an error.
    pub(crate) fn complete(
        &self,
        payload: &[u8],
        answer: impl Fn(&Ask, &ReplyItem) -> Answer,
        done: &mut Vec<Done>,
    ) -> Result<(), DecodeError> {
        let start = done.len();
        let completed = self.try_complete(payload, answer, done);
        if completed.is_err() {
            done.truncate(start);
        }
        completed
    }

    fn try_complete(
        &self,
        payload: &[u8],
        answer: impl Fn(&Ask, &ReplyItem) -> Answer,
        done: &mut Vec<Done>,
    ) -> Result<(), DecodeError> {
        let mut reply = Reply { rest: payload, asks: self.asks.iter(), refusals: &self.refusals, index: 0 };
        reply::take_count(&mut reply.rest, self.items())?;
        for part in &self.parts {
            let mut put = |outcome| done.extend(part.slot.map(|slot| Done { slot, outcome }));
            if part.requests == 1 {
                reply.next(&answer, |answer| put(Outcome::One(answer)))?;
            } else {
                let mut answers = Vec::with_capacity(part.requests);
                for _ in 0..part.requests {
                    reply.next(&answer, |answer| answers.push(answer))?;
                }
                put(Outcome::Many(answers));
            }
        }
        finish(reply.rest)
    }

    /// Hands the same outcome to all that still wait.
    pub(crate) fn fail(&self, outcome: &Outcome, done: &mut Vec<Done>) {
        let waiting = self.parts.iter().filter_map(|part| part.slot);
        done.extend(waiting.map(|slot| Done { slot, outcome: outcome.clone() }));
    }

    fn expire(&mut self, now: Instant, outcome: &Outcome, done: &mut Vec<Done>) {
        if self.first_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.first_deadline = None;
        for part in &mut self.parts {
            if part.deadline > now {
                self.first_deadline = earliest(self.first_deadline, part.slot.map(|_| part.deadline));
            } else if let Some(slot) = part.slot.take() {
                done.push(Done { slot, outcome: outcome.clone() });
            }
        }
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.asks.clear();
        self.refusals.clear();
        self.first_deadline = None;
    }
}

/// The answers that a reply has for a batch, one after another.
struct Reply<'a> {
    rest: &'a [u8],
    asks: slice::Iter<'a, Ask>,
    refusals: &'a [Refusal],
    index: usize,
}

impl Reply<'_> {
    /// Gives the next answer to `put`: returned, it would be copied twice.
    #[inline(always)]
    fn next(
        &mut self,
        answer: &impl Fn(&Ask, &ReplyItem) -> Answer,
        put: impl FnOnce(Answer),
    ) -> Result<(), DecodeError> {
        let index = self.index;
        self.index += 1;
        if let [refusal, rest @ ..] = self.refusals
            && refusal.index == index
        {
            self.refusals = rest;
            put(Err(refusal.error.clone()));
            return Ok(());
        }
        let item = ReplyItem::take(&mut self.rest)?;
        // The count of the reply is that of the asks.
        let ask = self.asks.next().ok_or(DecodeError::Truncated)?;
        put(answer(ask, &item));
        Ok(())
    }
}

/// The batches in flight, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    batches: VecDeque<Batch>,
    /// Batches that are done, whose memory the next ones take over.
    spare: Vec<Batch>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// An empty batch, which is to be pushed or recycled.
    pub(crate) fn start(&mut self) -> Batch {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
    }

    /// The batch of an id.
    pub(crate) fn get(&self, id: u32) -> Option<&Batch> {
        Some(&self.batches[self.index(id)?])
    }

    fn index(&self, id: u32) -> Option<usize> {
        self.batches.binary_search_by_key(&id, |batch| batch.id).ok()
    }

    /// Forgets the batch of an id.
    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(batch) = self.index(id).and_then(|index| self.batches.remove(index)) {
            self.recycle(batch);
        }
    }

    /// Keeps the memory of a batch that is done.
    pub(crate) fn recycle(&mut self, mut batch: Batch) {
        batch.clear();
        self.spare.push(batch);
    }

    /// The batches above an id.
    pub(crate) fn take_above(&mut self, id: u32) -> VecDeque<Batch> {
        let index = self.batches.partition_point(|batch| batch.id <= id);
        self.batches.split_off(index)
    }

    /// Fails the calls whose deadline has passed. Their batches stay in flight: the server still works on them.
    pub(crate) fn expire(&mut self, now: Instant, outcome: &Outcome, done: &mut Vec<Done>) {
        for batch in &mut self.batches {
            batch.expire(now, outcome, done);
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
