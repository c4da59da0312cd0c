//! One connection's side of the protocol, without a socket and without a clock: requests become frames, replies
//! become outcomes.
//!
//! The order of calls: requests are appended to [`Batcher::ready`]; [`Batcher::encode`] writes as many frames as
//! the credit allows; [`Batcher::written`] says how far they have left; [`Batcher::handle`] takes each frame of
//! the server; [`Batcher::expire`] fails what is late; [`Batcher::close`] ends it all.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use tollgate_protocol::{
    check::{CheckEncoder, Item},
    control::{Credit, GoAway, Ping},
    define::Defined,
    error::ErrorFrame,
    frame::{Frame, FrameFormat, FrameType},
    hello::HelloOk,
    limits::DEFINITIONS_MAX,
    policy::NamedPolicy,
    reply::{self, Reason},
    varint,
};

use crate::{
    decision::Decision,
    error::{Broken, CheckError},
    pending::{Batch, Failure, Outcome, Pending, earliest},
    policy::{PolicyId, Registry},
    table::Table,
    waiting::{Ask, Group, Waiting},
};

/// Batches that the client wants in flight on a connection. While they are, the next one gathers: more would
/// send a busy server smaller batches, fewer would have more requests wait behind a slow one.
pub(crate) const INFLIGHT_WANTED: usize = 16;

/// Id of HELLO; those of other frames rise from it.
pub(crate) const HELLO_ID: u32 = 1;

/// A connection is given up at this id, so that ids never wrap: the frames of one wake-up still fit above it.
const IDS_MAX: u32 = u32::MAX - 16 * DEFINITIONS_MAX as u32;

/// What a frame of the server asks of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing more.
    Handled,
    /// The server will close the connection: open another, after a delay drawn within this time.
    GoAway(Duration),
    /// The server knows this named policy.
    Announced(String),
}

/// Why no more of a call went into a frame.
enum Stop {
    CallDone,
    FrameFull,
    Refuse(Group, CheckError),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Batcher {
    server: Arc<str>,
    format: FrameFormat,
    items_max: usize,
    inflight_max: usize,
    /// Requests that were handed over and are not sent.
    pub(crate) ready: Waiting,
    pending: Pending,
    table: Table,
    encoder: CheckEncoder,
    last_id: u32,
    ping_id: Option<u32>,
    /// Whether no new frame may be sent.
    leaving: bool,
    encoded_bytes: u64,
    written_bytes: u64,
}

impl Batcher {
    /// A batcher for a connection whose HELLO was answered.
    pub(crate) fn new(server: Arc<str>, registry: Arc<Registry>, hello: HelloOk) -> Result<Self, Broken> {
        if hello.features != 0 {
            return Err(Broken::Features(hello.features));
        }
        let whole = |value| usize::try_from(value).unwrap_or(usize::MAX);
        Ok(Self {
            table: Table::new(Arc::clone(&server), registry, hello.policies),
            server,
            format: FrameFormat { payload_bytes_max: whole(hello.frame_bytes_max), checksum: false },
            items_max: whole(hello.items_max),
            inflight_max: whole(hello.inflight_max).min(INFLIGHT_WANTED),
            ready: Waiting::default(),
            pending: Pending::default(),
            encoder: CheckEncoder::default(),
            last_id: HELLO_ID,
            ping_id: None,
            leaving: false,
            encoded_bytes: 0,
            written_bytes: 0,
        })
    }

    /// Format of the frames in both directions.
    pub(crate) fn format(&self) -> FrameFormat {
        self.format
    }

    /// Whether a batch may be sent now.
    pub(crate) fn has_credit(&self) -> bool {
        !self.leaving && self.pending.len() < self.inflight_max
    }

    /// Whether an answer of the server is due.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.ping_id.is_some()
    }

    /// Whether it was left, and all that was in flight is answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.leaving && self.pending.is_empty()
    }

    /// Whether the ids are used up, so that another connection is needed.
    pub(crate) fn is_used_up(&self) -> bool {
        self.last_id >= IDS_MAX
    }

    /// Goes on as if nearly all ids had been used.
    #[cfg(test)]
    pub(crate) fn use_up_ids(&mut self) {
        self.last_id = IDS_MAX;
    }

    /// The earliest time at which [`Batcher::expire`] may have something to do.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        earliest(self.ready.first_deadline(), self.pending.first_deadline())
    }

    /// Appends frames of what is ready, as far as the credit goes.
    pub(crate) fn encode(&mut self, now: Instant, out: &mut BytesMut) {
        while self.has_credit() && !self.ready.is_empty() {
            self.encode_batch(now, out);
        }
    }

    fn encode_batch(&mut self, now: Instant, out: &mut BytesMut) {
        let mut batch = Batch::default();
        let mut last_deadline = now;
        while let Some(deadline) = self.ready.front().map(|call| call.deadline) {
            if deadline <= now {
                self.ready.fail_front(&self.late());
                continue;
            }
            let (taken, stop) = self.encode_call(&mut batch, out);
            if taken > 0
                && let Some(waiter) = self.ready.take_waiter(taken)
            {
                batch.push_waiter(waiter, deadline);
                last_deadline = last_deadline.max(deadline);
            }
            match stop {
                Stop::CallDone => {}
                Stop::Refuse(group, error) => self.ready.fail_group(group, &Failure::Final(error)),
                Stop::FrameFull => break,
            }
        }
        if batch.len() > 0 {
            self.finish_batch(batch, last_deadline - now, out);
        }
    }

    /// Encodes requests of the call at the front, and says how many and why no more.
    fn encode_call(&mut self, batch: &mut Batch, out: &mut BytesMut) -> (usize, Stop) {
        let count = self.ready.front().map_or(0, |call| call.waiter.count());
        let mut taken = 0;
        while taken < count {
            let group = self.ready.front_group();
            if let Err(error) = self.learn_front(group, out) {
                return (taken, Stop::Refuse(group, error));
            }
            if !self.fits(group) {
                let stop = if batch.len() > 0 {
                    Stop::FrameFull
                } else {
                    Stop::Refuse(group, CheckError::LinkTooLong { requests: group.count })
                };
                return (taken, stop);
            }
            self.encode_group(group, batch);
            taken += group.count;
        }
        (taken, Stop::CallDone)
    }

    /// Makes the policies of a group usable.
    fn learn_front(&mut self, group: Group, out: &mut BytesMut) -> Result<(), CheckError> {
        for index in 0..group.count {
            let policy = self.ready.policy(index);
            if self.table.alias(policy).is_some() {
                continue;
            }
            if let Some(define) = self.table.learn(policy)? {
                let id = self.append(FrameType::Define, out, |out| define.encode(out));
                self.table.sent(id, policy);
            }
        }
        Ok(())
    }

    fn fits(&self, group: Group) -> bool {
        self.encoder.count() + group.count <= self.items_max
            && self.encoder.payload_bytes_max() + group.bytes_max <= self.format.payload_bytes_max
    }

    fn encode_group(&mut self, group: Group, batch: &mut Batch) {
        for _ in 0..group.count {
            let Some((ask, key)) = self.ready.take_ask() else { return };
            // Every policy of the group was learnt.
            let Some(alias) = self.table.alias(ask.policy) else { return };
            let Ask { operation, cost, linked, .. } = ask;
            self.encoder.push(&Item { operation, alias, cost, key, linked });
            batch.push_policy(ask.policy);
        }
    }

    fn finish_batch(&mut self, mut batch: Batch, budget: Duration, out: &mut BytesMut) {
        let deadline_us = u64::try_from(budget.as_micros()).unwrap_or(varint::VALUE_MAX).max(1);
        let mut encoder = std::mem::take(&mut self.encoder);
        batch.id = self.append(FrameType::Check, out, |out| encoder.finish(out, true, Some(deadline_us)));
        batch.end = self.encoded_bytes;
        self.encoder = encoder;
        self.pending.push(batch);
    }

    /// Whether a PING may be sent: one at a time.
    pub(crate) fn may_ping(&self) -> bool {
        self.ping_id.is_none() && !self.leaving
    }

    /// Appends a PING.
    pub(crate) fn ping(&mut self, out: &mut BytesMut) {
        let payload = ping_payload(self.last_id + 1);
        self.ping_id = Some(self.append(FrameType::Ping, out, |out| payload.encode(out)));
    }

    fn append(&mut self, kind: FrameType, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> u32 {
        let start = out.len();
        self.last_id += 1;
        self.format.encode(out, kind, self.last_id, write);
        self.encoded_bytes += (out.len() - start) as u64;
        self.last_id
    }

    /// Notes that `bytes` more of what was encoded have left.
    pub(crate) fn written(&mut self, bytes: usize) {
        self.written_bytes += bytes as u64;
    }

    /// Takes a frame of the server.
    pub(crate) fn handle(&mut self, frame: &Frame) -> Result<Event, Broken> {
        match frame.kind {
            FrameType::Reply => self.reply(frame)?,
            FrameType::Defined => {
                if !self.table.defined(frame.id, Defined::decode(&frame.payload)?) {
                    return Err(unexpected(frame));
                }
            }
            FrameType::Pong => self.pong(frame)?,
            FrameType::Credit => {
                let credit = Credit::decode(&frame.payload)?;
                self.inflight_max = usize::from(credit.inflight_max).min(INFLIGHT_WANTED);
            }
            FrameType::GoAway => return Ok(self.go_away(GoAway::decode(&frame.payload)?)),
            FrameType::Policy => {
                let policy = NamedPolicy::decode(&frame.payload)?;
                let name = policy.name.clone();
                self.table.update(policy);
                return Ok(Event::Announced(name));
            }
            FrameType::Error => return Err(Broken::Server(ErrorFrame::decode(&frame.payload)?)),
            _ => return Err(unexpected(frame)),
        }
        Ok(Event::Handled)
    }

    fn reply(&mut self, frame: &Frame) -> Result<(), Broken> {
        let expected = self.pending.items(frame.id).ok_or_else(|| unexpected(frame))?;
        let items = reply::decode(&frame.payload, expected)?;
        if let Some(batch) = self.pending.take(frame.id) {
            batch.complete(|policy, index| outcome(&self.table, policy, &items[index]));
        }
        Ok(())
    }

    fn pong(&mut self, frame: &Frame) -> Result<(), Broken> {
        let pong = Ping::decode(&frame.payload)?;
        if self.ping_id != Some(frame.id) || pong != ping_payload(frame.id) {
            return Err(unexpected(frame));
        }
        self.ping_id = None;
        Ok(())
    }

    /// What lies above the last id goes to other connections; nothing new is sent on this one.
    fn go_away(&mut self, go_away: GoAway) -> Event {
        self.leave();
        for batch in self.pending.take_above(go_away.last_id) {
            batch.fail(&Failure::NotExecuted);
        }
        Event::GoAway(Duration::from_millis(go_away.reconnect_within_ms))
    }

    /// Sends nothing new from now on; what is ready goes to other connections.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.ready.fail_all(&Failure::NotExecuted);
    }

    /// Fails the calls whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.ready.expire(now, &self.late());
        self.pending.expire(now, &self.server);
    }

    fn late(&self) -> Failure {
        Failure::Final(CheckError::Deadline { server: Arc::clone(&self.server), sent: false })
    }

    /// Ends it: a batch that has not left whole was not executed, any other may have been.
    pub(crate) fn close(&mut self, reason: &Arc<str>) {
        self.leave();
        let (server, reason) = (Arc::clone(&self.server), Arc::clone(reason));
        let ambiguous = Failure::Final(CheckError::Ambiguous { server, reason });
        for batch in self.pending.take_above(0) {
            let left = batch.end <= self.written_bytes;
            batch.fail(if left { &ambiguous } else { &Failure::NotExecuted });
        }
    }
}

fn outcome(table: &Table, policy: PolicyId, item: &reply::ReplyItem) -> Outcome {
    if item.reason == Reason::UnknownPolicy {
        return Err(Failure::Final(table.unknown(policy)));
    }
    Ok(Decision::from_reply(item, table.limits(policy)))
}

/// The opaque bytes of a PING: its id, so that no other PONG is taken for its answer.
fn ping_payload(id: u32) -> Ping {
    Ping(u64::from(id).to_le_bytes())
}

fn unexpected(frame: &Frame) -> Broken {
    Broken::Unexpected { kind: frame.kind, id: frame.id }
}

#[cfg(test)]
mod tests;
