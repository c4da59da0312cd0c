//! The protocol as a client in another language would speak it.

use std::time::{Duration, Instant};

use tollgate::clock::Clock;
use tollgate_protocol::{
    check::{CheckEncoder, Item, Operation},
    control::{GoAway, GoAwayReason, Ping},
    error::ErrorCode,
    frame::{FrameFormat, FrameType},
    hello::{FEATURE_CHECKSUM, Hello, HelloOk},
    reply::Reason,
};

use crate::{
    harness::{Server, Setup, Wire, server::limits},
    trace::START_US,
};

/// A server whose time stands still.
async fn server() -> Server {
    Server::start(Setup { clock: Clock::Manual(std::sync::Arc::new(START_US.into())), ..Setup::default() })
        .await
}

/// A check under `api`, which is the first policy.
fn check(key: &[u8]) -> Item<'_> {
    Item { operation: Operation::Check, alias: 0, cost: 1, key, linked: false }
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.lines().filter_map(|line| line.split('#').next());
    let bytes = digits.flat_map(str::split_whitespace);
    bytes.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
}

/// A whole conversation, written by hand from the specification.
#[tokio::test]
async fn conversation_is_the_specified_bytes() {
    let server = server().await;
    let mut wire = Wire::open(server.address).await;
    wire.send_bytes(&hex(
        "06 00 00 01  01 00 00 00  54 47 41 54 01 01  # HELLO, id 1: magic, versions 1 to 1",
    ))
    .await;
    let head = wire.bytes(8).await;
    assert_eq!((head[3], &head[4..]), (0x81, &[1, 0, 0, 0][..]), "HELLO_OK to id 1");
    wire.bytes(usize::from(head[0]) | usize::from(head[1]) << 8).await;

    wire.send_bytes(&hex("0a 00 00 02  02 00 00 00        # DEFINE, 10 bytes, id 2
         01 01                           # alias 1, one limit
         01 06 05 80 8e ce 1c 05         # token bucket: 5 each 60,000,000 us, burst 5"))
        .await;
    assert_eq!(wire.bytes(8).await, hex("00 00 00 82  02 00 00 00"), "DEFINED to id 2: taken");

    wire.send_bytes(&hex("15 00 00 10  03 00 00 00        # CHECK, 21 bytes, id 3
         08 05                           # details are wanted; 5 items
         18 01 03 06 75 73 65 72 3a 31   # check, alias 1, cost 3, key `user:1`
         28 03                           # check, cost 3, the same alias and key
         2d 07                           # take up to 7, the same key
         28 06                           # check, cost 6, the same key
         02 01 78                        # refund 1 to `x`"))
        .await;
    let reply = hex("1e 00 00 90  03 00 00 00        # REPLY, 30 bytes, id 3
         05                              # 5 items
         a0 02 d4 ca 08                  # allow, ok: 2 left; reset in 36 s: 35,157 units
         21 02 d4 ca 08 80 b6 dc 05      # deny, denied: 2 left; retry in 12,000,000 us
         ae 02 00 88 a7 0e               # allow, partial: 2 granted, 0 left; reset in 60 s: 58,594 units
         22 00 88 a7 0e 00               # deny, cost over limit: 0 left; it can never pass
         a0 05 00                        # allow, ok: 5 left");
    let answer = wire.bytes(reply.len()).await;
    assert_eq!(answer, reply, "{answer:02x?}");
}

#[tokio::test]
async fn one_bad_item_is_answered_alone() {
    let server = server().await;
    let (mut wire, _) = Wire::greet(server.address).await;
    let long = [b'x'; 1_025];
    let items = [
        check(b"a"),
        check(b""),
        check(&long),
        Item { alias: 98, ..check(b"a") },
        Item { operation: Operation::Force, cost: 0, ..check(b"a") },
        Item { operation: Operation::Unknown(7), ..check(b"a") },
        Item { cost: 6, ..check(b"a") },
        check(b"a"),
    ];
    let reasons: Vec<_> =
        wire.check(&items).await.into_iter().map(|item| (item.allow, item.reason)).collect();
    let expected = [
        (true, Reason::Ok),
        (false, Reason::BadKey),
        (false, Reason::BadKey),
        (false, Reason::UnknownPolicy),
        (false, Reason::BadCost),
        (false, Reason::BadOperation),
        (false, Reason::CostOverLimit),
        (true, Reason::Ok),
    ];
    assert_eq!(reasons, expected);
}

#[tokio::test]
async fn refused_definition_leaves_the_connection_open() {
    let server = server().await;
    let (mut wire, _) = Wire::greet(server.address).await;
    let refused = wire.define(1, limits("sliding-window:9007199254740991/366d")).await.refused;
    assert!(refused.is_some_and(|why| why.contains("cannot be enforced exactly")));
    let item = Item { alias: 1, ..check(b"a") };
    assert_eq!(wire.check(&[item]).await[0].reason, Reason::UnknownPolicy);
    assert_eq!(wire.define(1, limits("token-bucket:1/1h")).await.refused, None);
    let answers = wire.check(&[item, item]).await;
    assert_eq!([answers[0].reason, answers[1].reason], [Reason::Ok, Reason::Denied]);
}

#[tokio::test]
async fn state_of_an_inline_policy_belongs_to_its_limits() {
    let server = server().await;
    let (mut first, _) = Wire::greet(server.address).await;
    let (mut second, _) = Wire::greet(server.address).await;
    first.define(1, limits("token-bucket:2/1h")).await;
    second.define(77, limits("token-bucket:2/1h")).await;
    second.define(3, limits("token-bucket:3/1h")).await;
    assert!(first.check(&[Item { alias: 1, cost: 2, ..check(b"a") }]).await[0].allow);
    assert!(!second.check(&[Item { alias: 77, ..check(b"a") }]).await[0].allow, "the same limits");
    assert!(second.check(&[Item { alias: 3, cost: 3, ..check(b"a") }]).await[0].allow, "other limits");
}

#[tokio::test]
async fn malformed_frames_are_an_error_and_a_close_and_harm_nobody_else() {
    let server = server().await;
    let (mut other, _) = Wire::greet(server.address).await;
    for (frame, code) in [
        ("00 00 00 81  02 00 00 00", ErrorCode::UnexpectedFrame),
        ("00 00 00 13  02 00 00 00", ErrorCode::UnknownFrame),
        ("ff ff ff 10  02 00 00 00", ErrorCode::FrameTooLarge),
        ("02 00 00 10  02 00 00 00  08 00", ErrorCode::Malformed),
        ("03 00 00 10  02 00 00 00  80 01 00", ErrorCode::Malformed),
        ("07 00 00 03  02 00 00 00  00 00 00 00 00 00 00", ErrorCode::Malformed),
        ("08 00 00 03  01 00 00 00  00 00 00 00 00 00 00 00", ErrorCode::UnexpectedFrame),
        ("06 00 00 01  02 00 00 00  54 47 41 54 01 01", ErrorCode::UnexpectedFrame),
        ("00 00 00 90  02 00 00 00", ErrorCode::UnexpectedFrame),
    ] {
        let (mut wire, _) = Wire::greet(server.address).await;
        wire.send_bytes(&hex(frame)).await;
        let error = wire.expect_error().await;
        assert_eq!(error.code, code, "{frame}: {error:?}");
        assert!(!error.text.is_empty(), "{frame}");
    }
    assert!(other.check(&[check(b"a")]).await[0].allow);
}

#[tokio::test]
async fn strangers_are_told_before_hello() {
    let server = server().await;
    for (bytes, code) in [
        (hex("06 00 00 01  01 00 00 00  48 54 54 50 01 01"), ErrorCode::BadMagic),
        (hex("06 00 00 01  01 00 00 00  54 47 41 54 02 09"), ErrorCode::UnsupportedVersion),
        (hex("01 10 00 01  01 00 00 00"), ErrorCode::FrameTooLarge),
        (hex("08 00 00 03  01 00 00 00  00 00 00 00 00 00 00 00"), ErrorCode::UnexpectedFrame),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(), ErrorCode::UnknownFrame),
    ] {
        let mut wire = Wire::open(server.address).await;
        wire.send_bytes(&bytes).await;
        assert_eq!(wire.expect_error().await.code, code, "{bytes:02x?}");
    }
}

#[tokio::test]
async fn checksums_are_used_where_they_are_offered_and_a_flipped_bit_is_found() {
    let server = server().await;
    let mut wire = Wire::open(server.address).await;
    let hello = Hello { features: FEATURE_CHECKSUM, ..Hello::default() };
    let id = wire.send(FrameType::Hello, |out| hello.encode(out)).await;
    let hello_ok = HelloOk::decode(&wire.expect(FrameType::HelloOk, id).await).expect("HELLO_OK");
    assert_eq!(hello_ok.features, FEATURE_CHECKSUM);
    wire.format = FrameFormat { checksum: true, ..wire.format };
    assert!(wire.check(&[check(b"a")]).await[0].allow);
    wire.send_bytes(&hex("08 00 00 03  09 00 00 00  00 00 00 00 00 00 00 00  de ad be ef")).await;
    assert_eq!(wire.expect_error().await.code, ErrorCode::ChecksumMismatch);
}

#[tokio::test]
async fn batch_of_the_largest_size_that_the_server_offers_is_taken_and_one_more_is_not() {
    let server = server().await;
    let (mut wire, hello_ok) = Wire::greet(server.address).await;
    let items = vec![check(b"a"); hello_ok.items_max as usize];
    let answers = wire.check(&items).await;
    assert_eq!(answers.iter().filter(|answer| answer.allow).count(), 5);
    wire.send_check(&[&items[..], &items[..1]].concat()).await;
    assert_eq!(wire.expect_error().await.code, ErrorCode::Malformed);
}

#[tokio::test]
async fn batches_in_flight_are_answered_by_id_and_a_ping_in_between() {
    let server = server().await;
    let (mut wire, _) = Wire::greet(server.address).await;
    let mut expected = Vec::new();
    for number in 0..200u32 {
        let key = number.to_le_bytes();
        expected.push((FrameType::Reply, wire.send_check(&[check(&key)]).await));
        if number % 50 == 0 {
            expected
                .push((FrameType::Pong, wire.send(FrameType::Ping, |out| Ping([7; 8]).encode(out)).await));
        }
    }
    let mut answered = Vec::new();
    while answered.len() < expected.len() {
        let frame = wire.next().await.expect("an answer");
        answered.push((frame.kind, frame.id));
    }
    answered.sort_unstable_by_key(|&(_, id)| id);
    assert_eq!(answered, expected);
}

#[tokio::test]
async fn deadline_that_has_passed_executes_nothing() {
    let server = server().await;
    let (mut wire, _) = Wire::greet(server.address).await;
    let mut encoder = CheckEncoder::default();
    encoder.push(&check(b"a"));
    let id = wire.send(FrameType::Check, |out| encoder.finish(out, true, Some(0))).await;
    let answer = wire.expect_reply(id, 1).await[0];
    assert_eq!((answer.reason, answer.degraded), (Reason::Deadline, true));
    let peek = Item { operation: Operation::Peek, ..check(b"a") };
    let details = wire.check(&[peek]).await[0].details.expect("details");
    assert_eq!(details.remaining, 5);
}

#[tokio::test]
async fn clients_are_told_when_the_server_leaves_and_what_it_executed() {
    let server = server().await;
    let (mut wire, _) = Wire::greet(server.address).await;
    let stopping = tokio::spawn(server.stop());
    let go_away = GoAway::decode(&wire.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
    assert_eq!((go_away.last_id, go_away.reason), (u32::MAX, GoAwayReason::Shutdown));
    // What was on its way is still executed.
    let id = wire.send_check(&[check(b"a")]).await;
    assert!(wire.expect_reply(id, 1).await[0].allow);
    let go_away = GoAway::decode(&wire.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
    assert_eq!(go_away.last_id, id);
    assert_eq!(wire.next().await, None);
    drop(wire);
    stopping.await.expect("the server stops");
}

/// How long bytes are thrown at the server, in seconds; the environment may say more.
fn noise_seconds() -> u64 {
    let wanted = std::env::var("TOLLGATE_TEST_NOISE_SECONDS").ok();
    wanted.map_or(2, |wanted| wanted.parse().expect("TOLLGATE_TEST_NOISE_SECONDS is a whole number"))
}

/// Random bytes, and good frames with a few bytes changed: the server goes on serving others.
#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_do_no_harm() {
    let server = server().await;
    let (mut bystander, _) = Wire::greet(server.address).await;
    let end = Instant::now() + Duration::from_secs(noise_seconds());
    let mut round = 0u32;
    while Instant::now() < end {
        let mut wire = if fastrand::bool() {
            Wire::greet(server.address).await.0
        } else {
            Wire::open(server.address).await
        };
        for _ in 0..fastrand::usize(1..20) {
            if !wire.try_send_bytes(&noise()).await {
                break;
            }
        }
        drop(wire);
        round += 1;
        let key = round.to_le_bytes();
        assert!(bystander.check(&[check(&key)]).await[0].allow);
    }
}

fn noise() -> Vec<u8> {
    let mut bytes = if fastrand::bool() {
        let length = fastrand::usize(1..600);
        std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect()
    } else {
        hex("14 00 00 10  09 00 00 00  08 02 10 00 06 75 73 65 72 3a 31 28 03 00 06 75 73 65 72 3a 32 00")
    };
    for _ in 0..fastrand::usize(0..4) {
        let place = fastrand::usize(0..bytes.len());
        bytes[place] = fastrand::u8(..);
    }
    // A large length with nothing behind it.
    if fastrand::u8(0..8) == 0 {
        bytes.truncate(8);
    }
    bytes
}
