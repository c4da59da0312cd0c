mod random;

use std::time::Duration;

use tollgate_protocol::{
    error::ErrorCode,
    hello::HelloOk,
    limits::{FRAME_BYTES_MIN, HELLO_BYTES_MAX},
    reply::{Details, Reason},
};

use super::*;
use crate::{
    net::testing::{self, PLAIN, check, checks, define, frame, frames, only_frame, ping},
    server::ServerConfig,
};

/// A session, what it said, and what it asked of the store.
struct Peer {
    session: Session,
    output: BytesMut,
    requests: Vec<Request>,
    now: Instant,
}

impl Peer {
    fn new(config: ServerConfig) -> Self {
        let session = Session::new(testing::terms(config));
        Self { session, output: BytesMut::new(), requests: Vec::new(), now: Instant::now() }
    }

    /// A session that answered a HELLO with the id 1, and that answer.
    fn greeted(config: ServerConfig, hello: &Hello) -> (Self, HelloOk) {
        let mut peer = Self::new(config);
        peer.send(&testing::hello(1, hello));
        let (kind, id, payload) = only_frame(&mut peer.output);
        assert_eq!((kind, id), (FrameType::HelloOk, 1));
        (peer, HelloOk::decode(&payload).expect("HELLO_OK"))
    }

    fn open() -> Self {
        Self::greeted(ServerConfig::default(), &Hello::default()).0
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut input = BytesMut::from(bytes);
        self.feed(&mut input);
    }

    fn feed(&mut self, input: &mut BytesMut) {
        let mut spare = Vec::new();
        loop {
            match self.session.receive(input, &mut self.output, &mut spare, self.now) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Handled) => {}
                Ok(Step::Check(request)) => self.requests.push(request),
                Err(_) => assert!(self.session.is_ending()),
            }
        }
    }

    /// The ERROR frame that ends the session.
    fn error(&mut self) -> ErrorFrame {
        assert!(self.session.is_ending());
        assert!(self.output.is_empty(), "the ERROR frame comes last");
        self.session.part(&mut self.output);
        let (kind, id, payload) = only_frame(&mut self.output);
        assert_eq!((kind, id), (FrameType::Error, 0));
        ErrorFrame::decode(&payload).expect("ERROR")
    }

    fn error_code(&mut self) -> (ErrorCode, u32) {
        let error = self.error();
        assert!(!error.text.is_empty());
        (error.code, error.offending_id)
    }

    /// The text of the DEFINED frame that answers `bytes`.
    fn defined(&mut self, bytes: &[u8]) -> Option<String> {
        self.send(bytes);
        let (kind, _, payload) = only_frame(&mut self.output);
        assert_eq!(kind, FrameType::Defined);
        Defined::decode(&payload).expect("DEFINED").refused
    }

    fn is_known(&mut self, id: u32, alias: u64) -> bool {
        let payload = checks(&[(alias, "k")], false, None);
        self.send(&frame(FrameType::Check, id, |out| out.extend_from_slice(&payload)));
        let batch = self.requests.pop().expect("a request").batch;
        batch.policy(&batch.items()[0]).is_some()
    }
}

fn decision(reason: Reason) -> Decision {
    let details = Details { remaining: 7, reset_after_us: 2_048, retry_after_us: None, limit_index: 0 };
    let allow = reason == Reason::Ok;
    Decision { allow, degraded: false, reason, granted: 0, details: Some(details) }
}

#[test]
fn hello_is_answered_with_what_the_server_offers() {
    let config = ServerConfig { idle_ms: 7_000, ..ServerConfig::default() };
    let (_, answer) = Peer::greeted(config, &Hello::default());
    assert_eq!(answer.frame_bytes_max, config.frame_bytes_max as u64);
    assert_eq!(answer.inflight_max, u64::from(config.inflight_max));
    assert_eq!(answer.items_max, config.items_max as u64);
    assert_eq!((answer.idle_ms, answer.features), (7_000, 0));
    assert_eq!(answer.policies.len(), 1);
    assert_eq!((&*answer.policies[0].name, answer.policies[0].alias), ("api", 0));
}

#[test]
fn a_client_may_want_less_but_not_more() {
    let most = Hello { frame_bytes_max: Some(1 << 40), inflight_max: Some(1 << 40), ..Hello::default() };
    let (_, answer) = Peer::greeted(ServerConfig::default(), &most);
    let (_, default) = Peer::greeted(ServerConfig::default(), &Hello::default());
    assert_eq!(HelloOk { boot_id: 0, ..answer }, HelloOk { boot_id: 0, ..default });

    let least = Hello { frame_bytes_max: Some(0), inflight_max: Some(0), ..Hello::default() };
    let (_, answer) = Peer::greeted(ServerConfig::default(), &least);
    assert_eq!((answer.frame_bytes_max, answer.inflight_max), (FRAME_BYTES_MIN as u64, 1));
}

#[test]
fn the_longest_reply_fits_in_a_frame() {
    let small = Hello { frame_bytes_max: Some(FRAME_BYTES_MIN as u64), ..Hello::default() };
    let (mut peer, answer) = Peer::greeted(ServerConfig::default(), &small);
    let keys = vec![(0, "k"); answer.items_max as usize];
    peer.send(&frame(FrameType::Check, 2, |out| out.extend_from_slice(&checks(&keys, true, None))));
    let request = peer.requests.pop().expect("a request");
    let most = varint::VALUE_MAX;
    let details =
        Details { remaining: most, reset_after_us: most, retry_after_us: Some(most), limit_index: 3 };
    let longest = Decision {
        allow: false,
        degraded: true,
        reason: Reason::Partial,
        granted: most,
        details: Some(details),
    };
    peer.session.reply(&request, &mut vec![longest; keys.len()], &mut peer.output);
    let (_, _, payload) = only_frame(&mut peer.output);
    assert!(payload.len() <= answer.frame_bytes_max as usize, "{}", payload.len());
}

#[test]
fn a_checksum_is_used_both_ways_after_hello_ok() {
    let hello = Hello { features: FEATURE_CHECKSUM | 1 << 40, ..Hello::default() };
    let (mut peer, answer) = Peer::greeted(ServerConfig::default(), &hello);
    assert_eq!(answer.features, FEATURE_CHECKSUM);
    let format = FrameFormat { checksum: true, ..PLAIN };
    let mut bytes = BytesMut::new();
    format.encode(&mut bytes, FrameType::Ping, 2, |out| Ping([3; 8]).encode(out));
    peer.send(&bytes);
    let pong = frames(format, &mut peer.output).pop().expect("PONG");
    assert_eq!((pong.kind, &pong.payload[..]), (FrameType::Pong, &[3; 8][..]));

    bytes[4] = 9;
    peer.send(&bytes);
    peer.session.part(&mut peer.output);
    let error = frames(format, &mut peer.output).pop().expect("ERROR");
    let error = ErrorFrame::decode(&error.payload).expect("ERROR");
    assert_eq!((error.code, error.offending_id), (ErrorCode::ChecksumMismatch, 9));
}

#[test]
fn frames_that_have_no_place_are_errors() {
    let unexpected = |id| (ErrorCode::UnexpectedFrame, id);
    let mut peer = Peer::new(ServerConfig::default());
    peer.send(&ping(1));
    assert_eq!(peer.error_code(), unexpected(1), "a frame before HELLO");

    let mut peer = Peer::new(ServerConfig::default());
    peer.send(&testing::hello(0, &Hello::default()));
    assert_eq!(peer.error_code(), unexpected(0), "id 0");

    let reply = frame(FrameType::Reply, 5, |_| {});
    for bytes in [testing::hello(2, &Hello::default()), ping(1), reply] {
        let mut peer = Peer::open();
        peer.send(&bytes);
        assert_eq!(peer.error_code(), unexpected(first_id(&bytes)));
    }
}

#[test]
fn bytes_that_break_the_format_are_errors_with_their_code() {
    let unknown = [&[0, 0, 0, 0x20], &77u32.to_le_bytes()[..]].concat();
    let empty_check = frame(FrameType::Check, 78, |_| {});
    for (bytes, expected) in [
        (&unknown[..], (ErrorCode::UnknownFrame, 77)),
        (&empty_check[..], (ErrorCode::Malformed, 78)),
        (b"\xff\xff\xff\x10\x4f\x00\x00\x00", (ErrorCode::FrameTooLarge, 79)),
    ] {
        let mut peer = Peer::open();
        peer.send(bytes);
        assert_eq!(peer.error_code(), expected);
    }
}

#[test]
fn a_stranger_is_held_to_the_size_of_a_hello() {
    let mut peer = Peer::new(ServerConfig::default());
    peer.send(&frame(FrameType::Hello, 1, |out| out.resize(out.len() + HELLO_BYTES_MAX + 1, 0)));
    assert_eq!(peer.error_code(), (ErrorCode::FrameTooLarge, 1));

    let mut peer = Peer::new(ServerConfig::default());
    peer.send(&frame(FrameType::Hello, 1, |out| out.extend_from_slice(b"GET / HTTP/1.1")));
    assert_eq!(peer.error_code(), (ErrorCode::BadMagic, 1));
}

#[test]
fn frames_that_may_be_ignored_are() {
    let mut peer = Peer::open();
    let mut bytes = ping(2);
    bytes[3] = 0x7f;
    bytes.extend_from_slice(&ping(2));
    peer.send(&bytes);
    assert_eq!(only_frame(&mut peer.output).0, FrameType::Pong);
}

#[test]
fn a_batch_has_its_deadline_from_its_arrival() {
    let mut peer = Peer::open();
    for (id, deadline_us) in [(2, None), (3, Some(1_500)), (4, Some(0)), (5, Some(varint::VALUE_MAX))] {
        let payload = checks(&[(0, "a"), (0, "b")], false, deadline_us);
        peer.send(&frame(FrameType::Check, id, |out| out.extend_from_slice(&payload)));
        let Request { id: given, batch, .. } = peer.requests.pop().expect("a request");
        let deadline = deadline_us.and_then(|us| peer.now.checked_add(Duration::from_micros(us)));
        assert_eq!((given, batch.deadline), (id, deadline));
        let keys: Vec<_> = batch.items().iter().map(|item| batch.key(item)).collect();
        assert_eq!(keys, [b"a", b"b"]);
    }
}

#[test]
fn replies_have_details_only_where_they_were_wanted() {
    let decisions = [decision(Reason::Ok), decision(Reason::Denied)];
    for details in [false, true] {
        let mut peer = Peer::open();
        let payload = checks(&[(0, "a"), (0, "b")], details, None);
        peer.send(&frame(FrameType::Check, 2, |out| out.extend_from_slice(&payload)));
        let mut request = peer.requests.pop().expect("a request");
        let stub = request.stub();
        peer.session.reply_late(&stub, &mut { decisions }, &mut peer.output);
        peer.session.reply(&request, &mut { decisions }, &mut peer.output);
        let expected =
            decisions.map(|decision| Decision { details: decision.details.filter(|_| details), ..decision });
        let replies = frames(PLAIN, &mut peer.output);
        assert_eq!(replies.len(), 2);
        for frame in replies {
            assert_eq!((frame.kind, frame.id), (FrameType::Reply, 2));
            assert_eq!(reply::decode(&frame.payload, 2).expect("decisions"), expected);
        }
    }
}

#[test]
fn decisions_are_counted_by_policy_and_reason() {
    let mut peer = Peer::open();
    assert_eq!(peer.defined(&define(2, 1, "token-bucket:1/1s")), None);
    let payload = checks(&[(0, "a"), (0, "b"), (1, "c"), (0, "d"), (9, "e")], false, None);
    peer.send(&frame(FrameType::Check, 3, |out| out.extend_from_slice(&payload)));
    let reasons = [Reason::Ok, Reason::Denied, Reason::Ok, Reason::Ok, Reason::UnknownPolicy];
    let request = peer.requests.pop().expect("a request");
    peer.session.reply(&request, &mut reasons.map(decision), &mut peer.output);
    let text = peer.session.terms.metrics.to_text().expect("metrics");
    for line in [
        r#"tollgate_decisions_total{policy="api",reason="ok"} 2"#,
        r#"tollgate_decisions_total{policy="api",reason="denied"} 1"#,
        r#"tollgate_decisions_total{policy="(inline)",reason="ok"} 1"#,
        "tollgate_unknown_policy_total 1",
        "tollgate_batch_items_sum 5.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn definitions_are_taken_refused_and_replaced() {
    let mut peer = Peer::open();
    assert!(!peer.is_known(2, 1));
    assert_eq!(peer.defined(&define(3, 1, "sliding-window:5/1s")), None);
    assert!(peer.is_known(4, 1));

    let refused = peer.defined(&define(5, 1, "token-bucket:9007199254740991/1s")).expect("a text");
    assert!(refused.contains("cannot be enforced exactly"), "{refused}");
    assert!(!peer.is_known(6, 1), "a refused alias names no policy");
}

#[test]
fn a_definition_that_cannot_be_read_is_refused_alone() {
    let mut peer = Peer::open();
    assert_eq!(peer.defined(&define(2, 1, "sliding-window:5/1s")), None);
    for (id, payload) in [(3, &[][..]), (4, &[2, 1]), (5, &[0xff; 20]), (6, &[1, 9])] {
        let bytes = frame(FrameType::Define, id, |out| out.extend_from_slice(payload));
        assert!(peer.defined(&bytes).is_some_and(|text| !text.is_empty()));
    }
    assert!(!peer.is_known(7, 1), "the last definition, of alias 1, was refused");
    assert!(peer.is_known(8, 0), "a client cannot touch a named policy");
}

#[test]
fn batches_in_flight_keep_the_policies_that_they_arrived_under() {
    let mut peer = Peer::open();
    peer.defined(&define(2, 1, "token-bucket:5/1s"));
    let payload = checks(&[(1, "k")], false, None);
    peer.send(&frame(FrameType::Check, 3, |out| out.extend_from_slice(&payload)));
    peer.defined(&define(4, 1, "token-bucket:6/1s"));
    let batch = peer.requests.pop().expect("a request").batch;
    let policy = batch.policy(&batch.items()[0]).expect("the policy");
    assert_eq!(policy.limits().to_string(), "token-bucket:5/1s");
}

#[test]
fn what_is_in_flight_is_answered_before_the_error() {
    let mut peer = Peer::open();
    let bytes = [check(2, "a"), ping(3), ping(3), check(4, "b")].concat();
    peer.send(&bytes);
    assert_eq!(only_frame(&mut peer.output).0, FrameType::Pong);
    let mut request = peer.requests.pop().expect("a request");
    assert!(peer.requests.is_empty(), "nothing is taken after the fault");
    peer.session.reply_late(&request.stub(), &mut [decision(Reason::Ok)], &mut peer.output);
    assert_eq!(only_frame(&mut peer.output).0, FrameType::Reply);
    let error = peer.error();
    assert_eq!(error.text, "id 3 does not rise above 3, the id before it");
    assert_eq!(peer.session.terms.metrics.protocol_errors.get(), 1);
    peer.session.part(&mut peer.output);
    assert!(peer.output.is_empty(), "it is said once");
}

#[test]
fn going_away_names_the_last_frame_that_was_taken() {
    let go_away = |output: &mut BytesMut| {
        let (kind, id, payload) = only_frame(output);
        assert_eq!((kind, id), (FrameType::GoAway, 0));
        GoAway::decode(&payload).expect("GOAWAY")
    };
    let mut peer = Peer::open();
    peer.send(&check(7, "a"));
    peer.session.announce_shutdown(&mut peer.output);
    let first = go_away(&mut peer.output);
    assert_eq!((first.last_id, first.reason), (u32::MAX, GoAwayReason::Shutdown));

    peer.send(&check(8, "b"));
    assert_eq!(peer.requests.len(), 2, "what was on its way is executed");
    peer.session.go_away(GoAwayReason::Shutdown, &mut peer.output);
    assert_eq!(go_away(&mut peer.output).last_id, 8);

    peer.send(&check(9, "c"));
    assert_eq!(peer.requests.len(), 2, "what comes after the last is not");
    peer.session.go_away(GoAwayReason::Idle, &mut peer.output);
    assert!(peer.output.is_empty(), "the last is told once");
}

#[test]
fn who_did_not_say_hello_hears_of_a_shutdown_only_at_its_end() {
    let mut peer = Peer::new(ServerConfig::default());
    peer.session.announce_shutdown(&mut peer.output);
    assert!(peer.output.is_empty());
    peer.session.go_away(GoAwayReason::Shutdown, &mut peer.output);
    assert!(peer.session.is_ending());
    assert_eq!(only_frame(&mut peer.output).0, FrameType::GoAway);
}
