//! A session without a socket, in made-up time.

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tollgate_protocol::{
    control::Ping,
    frame::{FrameFormat, FrameType},
    ring::RingSecret,
};

use super::*;
use crate::{request::Request, slots::Outcome, ticket::Ticket};

const DEADLINE: Duration = Duration::from_secs(1);

fn session(now: Instant, idle_ms: u64) -> (Session, oneshot::Receiver<Left>) {
    let servers = Arc::new(Servers::new(vec!["server".into()], RingSecret::default(), DEADLINE));
    let hello = HelloOk {
        features: 0,
        frame_bytes_max: 4_096,
        items_max: 1,
        inflight_max: 1,
        idle_ms,
        boot_id: 1,
        policies: Vec::new(),
    };
    let (session, left) = Session::new(Arc::clone(&servers), 0, BytesMut::new(), hello, now).unwrap();
    servers.up(0, Arc::clone(&session.link));
    (session, left)
}

fn call(session: &Session, now: Instant) -> Ticket {
    let limit: tollgate_protocol::limit::Limit = "token-bucket:1/1s".parse().unwrap();
    let policy = session.servers.registry().inline(limit.into()).unwrap();
    session.servers.submit(&Request::check(&policy, "key"), now + DEADLINE, Waker::noop()).unwrap()
}

/// The outcome, which is there.
fn outcome(ticket: Ticket) -> Outcome {
    ticket.now_or_never().expect("an outcome")
}

fn is_ambiguous(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.ambiguous())
}

/// The kinds of the frames that wait to be written, which are written now.
fn write(session: &mut Session) -> Vec<(FrameType, u32)> {
    let format = FrameFormat { payload_bytes_max: 4_096, checksum: false };
    let mut out = session.out.split();
    session.written(out.len()).unwrap();
    std::iter::from_fn(|| format.decode(&mut out).unwrap()).map(|frame| (frame.kind, frame.id)).collect()
}

#[test]
fn a_ping_is_due_after_a_third_of_the_idle_time_and_one_at_a_time() {
    let now = Instant::now();
    let (mut session, _left) = session(now, 3_000);
    let third = now + Duration::from_secs(1);
    assert_eq!(session.turn(now).unwrap(), Some(third));
    assert!(session.out.is_empty());
    session.turn(third).unwrap();
    assert_eq!(write(&mut session), [(FrameType::Ping, 2)]);

    let later = third + Duration::from_millis(1_500);
    assert_eq!(session.turn(later).unwrap(), Some(third + 2 * DEADLINE), "only the answer is waited for");
    assert!(session.out.is_empty());
    let format = FrameFormat { payload_bytes_max: 4_096, checksum: false };
    format.encode(&mut session.input, FrameType::Pong, 2, |out| Ping(2u64.to_le_bytes()).encode(out));
    session.turn(later).unwrap();
    assert_eq!(write(&mut session), [(FrameType::Ping, 3)]);
}

#[test]
fn a_server_that_is_never_idle_is_sent_no_ping() {
    let now = Instant::now();
    let (mut session, _left) = session(now, 0);
    session.turn(now + Duration::from_secs(86_400)).unwrap();
    assert!(session.out.is_empty());
}

#[test]
fn a_server_is_dead_when_it_owes_an_answer_and_says_nothing() {
    let start = Instant::now();
    let (mut session, _left) = session(start, 0);
    let now = start + Duration::from_secs(100);
    session.turn(now).unwrap();
    let ticket = call(&session, now);
    session.turn(now).unwrap();
    assert_eq!(write(&mut session).len(), 2, "DEFINE and CHECK");

    let heard = now + Duration::from_millis(1_500);
    session.turn(heard).unwrap();
    assert!(is_ambiguous(&outcome(ticket)));
    session.heard(1, heard).unwrap();
    session.turn(heard + 2 * DEADLINE - Duration::from_micros(1)).unwrap();
    let error = session.turn(heard + 2 * DEADLINE).unwrap_err();
    assert_eq!(error.to_string(), "nothing came from it for 2s");
}

#[test]
fn a_connection_whose_ids_are_used_up_is_replaced() {
    let now = Instant::now();
    let (mut session, mut left) = session(now, 0);
    session.batcher.use_up_ids();
    assert_eq!(session.turn(now).unwrap(), None, "nothing is in flight");
    assert_eq!(left.try_recv(), Ok(Left::GoingAway(Duration::ZERO)));
    assert!(session.servers.routes().live().is_empty());
}

#[test]
fn no_caller_of_a_dropped_session_waits_for_ever() {
    let now = Instant::now();
    let (mut session, mut left) = session(now, 0);
    let sent = call(&session, now);
    session.turn(now).unwrap();
    write(&mut session);
    let waiting = call(&session, now);
    let servers = Arc::clone(&session.servers);
    drop(session);
    assert!(is_ambiguous(&outcome(sent)));
    assert_eq!(outcome(waiting), Outcome::NotExecuted);
    assert_eq!(left.try_recv(), Ok(Left::Broken));
    assert!(servers.routes().live().is_empty());
}
