//! One connection's side of the protocol, without a socket and without a clock: requests become frames, replies
//! become outcomes.
//!
//! The order of calls: requests are appended to [`Batcher::ready`]; [`Batcher::encode`] writes as many frames as
//! the credit allows; [`Batcher::written`] says how far they have left; [`Batcher::handle`] takes each frame of
//! the server; [`Batcher::expire`] fails what is late; [`Batcher::close`] ends it all. Whatever is done meanwhile is
//! appended to [`Batcher::done`].

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
    pending::{Batch, Pending, earliest},
    policy::Registry,
    slots::{Answer, Done, Outcome},
    table::Table,
    waiting::{Ask, Call, Waiting},
};

/// Batches that the client wants in flight on a connection. While they are, the next one gathers.
///
/// By figures, the embedded store over loopback, 1,000 tasks on one thread, medians of five runs:
///
/// | in flight | M checks/s | p50 us | p99 us |
/// |---|---|---|---|
/// | 2 | 1.5 | 652 | 1,206 |
/// | 4 | 2.2 | 456 | 1,298 |
/// | 8 | 2.4 | 371 | 2,647 |
/// | 16 | 2.5 | 389 | 3,439 |
/// | 32 | 2.4 | 356 | 3,638 |
pub(crate) const INFLIGHT_WANTED: usize = 8;

/// Id of HELLO; those of other frames rise from it.
pub(crate) const HELLO_ID: u32 = 1;

/// A connection is given up at this id, so that ids never wrap: the frames of one wake-up still fit above it.
const IDS_MAX: u32 = u32::MAX - 16 * DEFINITIONS_MAX as u32;

/// The payload of a REPLY to no item.
const NO_ITEMS: &[u8] = &[0];

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

/// See the module.
#[derive(Debug)]
pub(crate) struct Batcher {
    server: Arc<str>,
    frames: Frames,
    items_max: usize,
    inflight_max: usize,
    /// Requests that were handed over and are not sent.
    pub(crate) ready: Waiting,
    /// Outcomes that are to be handed over.
    pub(crate) done: Vec<Done>,
    pending: Pending,
    table: Table,
    encoder: CheckEncoder,
    ping_id: Option<u32>,
    /// Whether no new frame may be sent.
    leaving: bool,
    written_bytes: u64,
}

/// The frames to the server.
#[derive(Debug)]
struct Frames {
    format: FrameFormat,
    last_id: u32,
    /// All that were appended so far.
    bytes: u64,
}

impl Frames {
    /// Appends a frame and returns its id.
    fn append(&mut self, kind: FrameType, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) -> u32 {
        let start = out.len();
        self.last_id += 1;
        self.format.encode(out, kind, self.last_id, write);
        self.bytes += (out.len() - start) as u64;
        self.last_id
    }
}

impl Batcher {
    /// A batcher for a connection whose HELLO was answered.
    pub(crate) fn new(server: Arc<str>, registry: Arc<Registry>, hello: HelloOk) -> Result<Self, Broken> {
        if hello.features != 0 {
            return Err(Broken::Features(hello.features));
        }
        let whole = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let format = FrameFormat { payload_bytes_max: whole(hello.frame_bytes_max), checksum: false };
        Ok(Self {
            table: Table::new(Arc::clone(&server), registry, hello.policies),
            server,
            frames: Frames { format, last_id: HELLO_ID, bytes: 0 },
            items_max: whole(hello.items_max),
            inflight_max: whole(hello.inflight_max).min(INFLIGHT_WANTED),
            ready: Waiting::default(),
            done: Vec::new(),
            pending: Pending::default(),
            encoder: CheckEncoder::default(),
            ping_id: None,
            leaving: false,
            written_bytes: 0,
        })
    }

    /// Format of the frames in both directions.
    pub(crate) fn format(&self) -> FrameFormat {
        self.frames.format
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
        self.frames.last_id >= IDS_MAX
    }

    /// Goes on as if nearly all ids had been used.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn use_up_ids(&mut self) {
        self.frames.last_id = IDS_MAX;
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
        let mut batch = self.pending.start();
        let mut last_deadline = now;
        while let Some(&call) = self.ready.front() {
            if call.deadline <= now {
                self.ready.take_front();
                self.done.push(Done { slot: call.slot, outcome: self.late() });
            } else if batch.is_empty() || self.fits(&call) {
                self.encode_call(&mut batch, out);
                last_deadline = last_deadline.max(call.deadline);
            } else {
                break;
            }
        }
        if batch.items() > 0 {
            self.finish_batch(batch, last_deadline - now, out);
            return;
        }
        // All calls were late or refused whole.
        let completed = batch.complete(NO_ITEMS, |ask, item| answer(&self.table, ask, item), &mut self.done);
        debug_assert!(completed.is_ok());
        self.pending.recycle(batch);
    }

    /// Whether a call fits in the frame with what is there already. Alone it does: callers see to that.
    fn fits(&self, call: &Call) -> bool {
        self.encoder.count() + call.size.requests <= self.items_max
            && self.encoder.payload_bytes_max() + call.size.bytes_max <= self.frames.format.payload_bytes_max
    }

    /// Encodes the call at the front, without the groups whose policies cannot be used.
    fn encode_call(&mut self, batch: &mut Batch, out: &mut BytesMut) {
        let Some((call, asks, mut keys)) = self.ready.take_front() else { return };
        for group in asks.chunk_by(|ask, _| ask.linked) {
            let learnt = group.iter().try_for_each(|ask| learn(&mut self.table, ask, &mut self.frames, out));
            for ask in group {
                let key;
                (key, keys) = keys.split_at(usize::from(ask.key_bytes));
                match (&learnt, self.table.alias(ask.policy)) {
                    (Ok(()), Some(alias)) => {
                        let Ask { operation, cost, linked, .. } = *ask;
                        self.encoder.push(&Item { operation, alias, cost, key, linked });
                        batch.push_ask(*ask);
                    }
                    (Err(error), _) => batch.push_refusal(error.clone()),
                    (Ok(()), None) => batch.push_refusal(self.table.unknown(ask.policy)),
                }
            }
        }
        batch.push_call(&call);
    }

    fn finish_batch(&mut self, mut batch: Batch, budget: Duration, out: &mut BytesMut) {
        let deadline_us = u64::try_from(budget.as_micros()).unwrap_or(varint::VALUE_MAX).max(1);
        let encoder = &mut self.encoder;
        let id =
            self.frames.append(FrameType::Check, out, |out| encoder.finish(out, true, Some(deadline_us)));
        (batch.id, batch.end) = (id, self.frames.bytes);
        self.pending.push(batch);
    }

    /// Whether a PING may be sent: one at a time.
    pub(crate) fn may_ping(&self) -> bool {
        self.ping_id.is_none() && !self.leaving
    }

    /// Appends a PING.
    pub(crate) fn ping(&mut self, out: &mut BytesMut) {
        let payload = ping_payload(self.frames.last_id + 1);
        self.ping_id = Some(self.frames.append(FrameType::Ping, out, |out| payload.encode(out)));
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
        let batch = self.pending.get(frame.id).ok_or_else(|| unexpected(frame))?;
        batch.complete(&frame.payload, |ask, item| answer(&self.table, ask, item), &mut self.done)?;
        self.pending.remove(frame.id);
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
            batch.fail(&Outcome::NotExecuted, &mut self.done);
        }
        Event::GoAway(Duration::from_millis(go_away.reconnect_within_ms))
    }

    /// Sends nothing new from now on; what is ready goes to other connections.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.ready.take_all(|slot| self.done.push(Done { slot, outcome: Outcome::NotExecuted }));
    }

    /// Fails the calls whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late = self.late();
        self.ready.expire(now, |slot| self.done.push(Done { slot, outcome: late.clone() }));
        let sent = CheckError::Deadline { server: Arc::clone(&self.server), sent: true };
        self.pending.expire(now, &Outcome::Failed(sent), &mut self.done);
    }

    fn late(&self) -> Outcome {
        Outcome::Failed(CheckError::Deadline { server: Arc::clone(&self.server), sent: false })
    }

    /// Ends it: a batch that has not left whole was not executed, any other may have been.
    pub(crate) fn close(&mut self, reason: &Arc<str>) {
        self.leave();
        let (server, reason) = (Arc::clone(&self.server), Arc::clone(reason));
        let ambiguous = Outcome::Failed(CheckError::Ambiguous { server, reason });
        for batch in self.pending.take_above(0) {
            let left = batch.end <= self.written_bytes;
            batch.fail(if left { &ambiguous } else { &Outcome::NotExecuted }, &mut self.done);
        }
    }
}

/// Makes the policy of a request usable.
fn learn(table: &mut Table, ask: &Ask, frames: &mut Frames, out: &mut BytesMut) -> Result<(), CheckError> {
    if table.alias(ask.policy).is_none()
        && let Some(define) = table.learn(ask.policy)?
    {
        let id = frames.append(FrameType::Define, out, |out| define.encode(out));
        table.sent(id, ask.policy);
    }
    Ok(())
}

#[inline]
fn answer(table: &Table, ask: &Ask, item: &reply::ReplyItem) -> Answer {
    if item.reason == Reason::UnknownPolicy {
        return Err(table.unknown(ask.policy));
    }
    Ok(Decision::from_reply(item, ask, table.limits(ask.policy)))
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
