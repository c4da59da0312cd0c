//! The rules of the protocol on one connection: frames in, batches out; decisions in, bytes out.
//!
//! There is no socket and no clock in here. The order of calls: [`Session::receive`] again and again until
//! [`Step::Incomplete`]; [`Session::reply`] or [`Session::reply_late`] for each batch that it gave, in any order;
//! once [`Session::is_ending`] and every batch is answered, [`Session::part`], and the connection can be closed when
//! its output is written.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use tollgate_protocol::{
    check::{CheckBatch, CheckItem},
    control::{GoAway, GoAwayReason, Ping},
    define::Defined,
    error::ErrorFrame,
    frame::{Frame, FrameFormat, FrameType},
    hello::{FEATURE_CHECKSUM, Hello},
    limits::HEADER_BYTES,
    reply::{self, ReplyItem},
    varint,
};

use super::{shadow::Shadow, tally, terms::Terms, violation::Violation};
use crate::{
    batch::Batch,
    limit::Decision,
    pace::Pace,
    policy::{PolicyTable, SessionPolicies},
};

/// Clients draw their delay before they connect again within this time after a shutdown: they do not all
/// come at once.
const RECONNECT_WITHIN_MS: u64 = 1_000;

/// What became of the bytes of a client.
#[derive(Debug)]
pub(crate) enum Step {
    /// There is no whole frame: more bytes are needed, or none are wanted any more.
    Incomplete,
    /// A frame was dealt with.
    Handled,
    /// A batch that a store must decide.
    Check(Request),
}

/// A batch and the id under which it is answered.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u32,
    pub(crate) batch: Batch,
    /// Whose denials do not count.
    shadow: Shadow,
}

/// What is kept of a batch while a store that takes its time decides it.
#[derive(Debug)]
pub(crate) struct Stub {
    id: u32,
    details: bool,
    aliases: Vec<u32>,
    policies: Arc<SessionPolicies>,
    shadow: Shadow,
}

impl Request {
    /// The stub to be kept.
    pub(crate) fn stub(&mut self) -> Stub {
        Stub {
            id: self.id,
            shadow: std::mem::take(&mut self.shadow),
            details: self.batch.check.details,
            aliases: self.batch.items().iter().map(|item| item.alias).collect(),
            policies: Arc::clone(&self.batch.policies),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    BeforeHello,
    Open,
    /// No more frames are taken; what is in flight is still answered.
    Ending,
}

/// One connection's side of the protocol.
#[derive(Debug)]
pub(crate) struct Session {
    terms: Arc<Terms>,
    phase: Phase,
    format: FrameFormat,
    /// Most checks in a batch; 0 before HELLO.
    items_max: usize,
    inflight_max: usize,
    /// Id of the last frame that was taken.
    last_id: u32,
    policies: Arc<SessionPolicies>,
    /// What is said after everything else.
    farewell: Option<ErrorFrame>,
}

impl Session {
    /// The session of a connection that was just accepted.
    pub(crate) fn new(terms: Arc<Terms>) -> Self {
        let policies = Arc::new(SessionPolicies::new(terms.policies.table()));
        Self {
            terms,
            phase: Phase::BeforeHello,
            format: FrameFormat::SERVER_BEFORE_HELLO,
            items_max: 0,
            inflight_max: 1,
            last_id: 0,
            policies,
            farewell: None,
        }
    }

    /// Whether HELLO was answered.
    pub(crate) fn is_greeted(&self) -> bool {
        self.items_max > 0
    }

    /// Whether no more frames are taken.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase == Phase::Ending
    }

    /// Of the lines that tell of clients which break a rule.
    pub(crate) fn pace(&self) -> &Pace {
        &self.terms.pace
    }

    /// Most batches that the client may have in flight.
    pub(crate) fn inflight_max(&self) -> usize {
        self.inflight_max
    }

    /// Takes the next frame from the front of `input`, which had arrived at `arrived`. Answers that need no
    /// store are appended to `output`. `spare` is memory for the items of a batch, taken where it is used.
    ///
    /// # Errors
    /// The rule that the frame breaks. The session is ending then, and has its ERROR frame ready.
    pub(crate) fn receive(
        &mut self,
        input: &mut BytesMut,
        output: &mut BytesMut,
        spare: &mut Vec<CheckItem>,
        arrived: Instant,
    ) -> Result<Step, Violation> {
        if self.is_ending() {
            return Ok(Step::Incomplete);
        }
        let frame = match self.format.decode(input) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Step::Incomplete),
            // The frame that cannot be read is still the first in `input`.
            Err(error) => return Err(self.fail(error.into(), first_id(input))),
        };
        let id = frame.id;
        self.take(frame, output, spare, arrived).map_err(|violation| self.fail(violation, id))
    }

    fn take(
        &mut self,
        frame: Frame,
        output: &mut BytesMut,
        spare: &mut Vec<CheckItem>,
        arrived: Instant,
    ) -> Result<Step, Violation> {
        self.admit(&frame)?;
        let Frame { kind, id, payload } = frame;
        self.last_id = id;
        match kind {
            FrameType::Check => return self.check(id, payload, spare, arrived),
            FrameType::Hello => self.hello(id, &Hello::decode(&payload)?, output),
            FrameType::Define => self.define(id, &payload, output),
            FrameType::Ping => {
                let ping = Ping::decode(&payload)?;
                self.format.encode(output, FrameType::Pong, id, |out| ping.encode(out));
            }
            from_server => return Err(Violation::NotFromClient(from_server)),
        }
        Ok(Step::Handled)
    }

    /// Whether a frame of this type and id may come now.
    fn admit(&self, frame: &Frame) -> Result<(), Violation> {
        let (kind, id, last_id) = (frame.kind, frame.id, self.last_id);
        match (self.phase, kind) {
            (Phase::BeforeHello, FrameType::Hello) => {}
            (Phase::BeforeHello, _) => return Err(Violation::BeforeHello(kind)),
            (_, FrameType::Hello) => return Err(Violation::SecondHello),
            _ => {}
        }
        if id > last_id { Ok(()) } else { Err(Violation::IdNotRising { id, last_id }) }
    }

    fn hello(&mut self, id: u32, hello: &Hello, output: &mut BytesMut) {
        if let Some(name) = &hello.client_name {
            tracing::Span::current().record("client", tracing::field::debug(name));
        }
        let answer = self.terms.negotiate(hello, self.policies.named());
        self.format.encode(output, FrameType::HelloOk, id, |out| answer.encode(out));
        self.phase = Phase::Open;
        self.items_max = answer.items_max as usize;
        self.inflight_max = answer.inflight_max as usize;
        self.format = FrameFormat {
            payload_bytes_max: answer.frame_bytes_max as usize,
            checksum: answer.features & FEATURE_CHECKSUM != 0,
        };
    }

    fn define(&mut self, id: u32, payload: &Bytes, output: &mut BytesMut) {
        // Batches in flight keep the policies that they arrived under.
        let policies = Arc::make_mut(&mut self.policies);
        let refused = match self.terms.inline_policy(payload) {
            Ok((alias, policy)) => {
                policies.define(alias, Some(policy));
                None
            }
            Err(refusal) => {
                // A refused alias names nothing, even where it named a policy before.
                if let Ok(alias) = varint::get(&mut &payload[..]) {
                    policies.define(alias, None);
                }
                Some(refusal.to_string())
            }
        };
        let defined = Defined { refused };
        self.format.encode(output, FrameType::Defined, id, |out| defined.encode(out));
    }

    fn check(
        &self,
        id: u32,
        payload: Bytes,
        spare: &mut Vec<CheckItem>,
        arrived: Instant,
    ) -> Result<Step, Violation> {
        let mut check = CheckBatch::decode_into(payload, self.items_max, std::mem::take(spare))?;
        // A budget that no instant can hold is no deadline.
        let deadline = check.deadline_us.and_then(|us| arrived.checked_add(Duration::from_micros(us)));
        let policies = Arc::clone(&self.policies);
        let shadow = Shadow::cast(&mut check, &policies);
        Ok(Step::Check(Request { id, batch: Batch { check, policies, deadline }, shadow }))
    }

    /// Answers a batch that was decided at once.
    pub(crate) fn reply(&self, request: &Request, decisions: &mut [Decision], output: &mut BytesMut) {
        let batch = &request.batch;
        request.shadow.waive(decisions);
        let aliases = batch.items().iter().map(|item| item.alias);
        tally::count(&self.terms.metrics, &batch.policies, aliases, decisions);
        request.shadow.restore(decisions);
        self.encode_reply(request.id, batch.check.details, decisions, output);
    }

    /// Answers a batch of which only the stub is left.
    pub(crate) fn reply_late(&self, stub: &Stub, decisions: &mut [Decision], output: &mut BytesMut) {
        stub.shadow.waive(decisions);
        tally::count(&self.terms.metrics, &stub.policies, stub.aliases.iter().copied(), decisions);
        stub.shadow.restore(decisions);
        self.encode_reply(stub.id, stub.details, decisions, output);
    }

    fn encode_reply(&self, id: u32, details: bool, decisions: &[Decision], output: &mut BytesMut) {
        self.format.encode(output, FrameType::Reply, id, |out| {
            reply::put_count(out, decisions.len());
            for decision in decisions {
                let details = if details { decision.details } else { None };
                ReplyItem { details, ..*decision }.encode(out);
            }
        });
    }

    /// Ends the session for a rule that its client broke by waiting, with `input` begun or not.
    pub(crate) fn time_out(&mut self, violation: Violation, input: &[u8]) -> Violation {
        self.fail(violation, first_id(input))
    }

    /// Takes over the named policies of the server as they are now, and tells the client which are new or changed.
    pub(crate) fn follow_policies(&mut self, named: Arc<PolicyTable>, output: &mut BytesMut) {
        if self.phase == Phase::Open {
            for policy in named.announce_since(self.policies.named()) {
                self.format.encode(output, FrameType::Policy, 0, |out| policy.encode(out));
            }
        }
        // Batches in flight keep the policies that they arrived under.
        Arc::make_mut(&mut self.policies).set_named(named);
    }

    fn fail(&mut self, violation: Violation, offending_id: u32) -> Violation {
        self.terms.metrics.protocol_errors.inc();
        self.farewell = Some(violation.to_frame(offending_id));
        self.phase = Phase::Ending;
        violation
    }

    /// Tells the client that the server will leave, and that all it sends until then is executed. A client
    /// that did not say HELLO yet is not told.
    pub(crate) fn announce_shutdown(&self, output: &mut BytesMut) {
        if self.phase == Phase::Open {
            self.encode_go_away(u32::MAX, GoAwayReason::Shutdown, output);
        }
    }

    /// Ends the session, and tells the client which frame was the last that was executed.
    pub(crate) fn go_away(&mut self, reason: GoAwayReason, output: &mut BytesMut) {
        if !self.is_ending() {
            self.encode_go_away(self.last_id, reason, output);
            self.phase = Phase::Ending;
        }
    }

    fn encode_go_away(&self, last_id: u32, reason: GoAwayReason, output: &mut BytesMut) {
        let reconnect_within_ms = if reason == GoAwayReason::Shutdown { RECONNECT_WITHIN_MS } else { 0 };
        let go_away = GoAway { last_id, reason, reconnect_within_ms };
        self.format.encode(output, FrameType::GoAway, 0, |out| go_away.encode(out));
    }

    /// Ends the session because the client will send no more.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ending;
    }

    /// Appends the last word, once every batch is answered: the ERROR frame, if there is one.
    pub(crate) fn part(&mut self, output: &mut BytesMut) {
        if let Some(farewell) = self.farewell.take() {
            self.format.encode(output, FrameType::Error, 0, |out| farewell.encode(out));
        }
    }
}

/// Id of the frame that begins `input`; 0 where too little of it is there.
fn first_id(input: &[u8]) -> u32 {
    match input.first_chunk::<HEADER_BYTES>() {
        Some(&[_, _, _, _, a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        None => 0,
    }
}

#[cfg(test)]
mod tests;
