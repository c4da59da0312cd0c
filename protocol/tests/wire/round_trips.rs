//! What is written is read as it was meant.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    define::Defined,
    error::{ErrorCode, ErrorFrame},
    frame::{Frame, FrameFormat},
    hello::{Hello, HelloOk},
    limit::Limit,
    limits::{
        FRAME_BYTES_DEFAULT, FRAME_BYTES_MIN, ITEMS_DEFAULT, KEY_BYTES_MAX, LIMITS_MAX, NAME_BYTES_MAX,
        PERIOD_US_MAX, POLICIES_MAX, TEXT_BYTES_MAX,
    },
    policy::{Limits, NamedPolicy},
    reply::{self, Details, Reason, ReplyItem},
    varint::{self, VALUE_MAX},
};

use crate::{
    arbitrary::{OwnedItem, checks, limit, message, value},
    message::Message,
};

fn payload_of(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.freeze()
}

proptest! {
    #[test]
    fn integers(value in value()) {
        let payload = payload_of(|out| varint::put(out, value));
        let mut input = &payload[..];
        prop_assert_eq!(varint::get(&mut input), Ok(value));
        prop_assert!(input.is_empty());
        prop_assert_eq!(payload.len(), varint::len(value));
    }

    #[test]
    fn payloads(message in message(), id: u32) {
        let payload = payload_of(|out| message.encode(out));
        let frame = Frame { kind: message.kind(), id, payload };
        prop_assert_eq!(Message::decode(&frame, None), Ok(message));
    }

    #[test]
    fn batches(checks in checks()) {
        let batch = CheckBatch::decode(payload_of(|out| checks.encode(out)), checks.items.len());
        let batch = batch.expect("a batch");
        let items: Vec<_> = batch.items.iter().map(|item| OwnedItem {
            operation: item.operation,
            alias: item.alias,
            cost: item.cost,
            key: batch.key(item).into(),
            linked: item.linked,
        }).collect();
        prop_assert_eq!(items, checks.items);
        prop_assert_eq!((batch.details, batch.deadline_us), (checks.details, checks.deadline_us));
    }

    #[test]
    fn limits_as_text(limit in limit(), before in " {0,2}", after in " {0,2}") {
        prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        prop_assert_eq!(format!("{before}{limit}{after}").parse::<Limit>(), Ok(limit));
    }

    #[test]
    fn any_text_is_a_limit_or_an_error_that_names_it(text in "(token-bucket|sliding-window)?[:/,=a-z0-9 ]{0,20}") {
        if let Err(error) = text.parse::<Limit>() {
            let quoted = format!("`{text}`");
            prop_assert!(error.to_string().contains(&quoted));
        }
    }

    /// Whatever a caller puts in a decision, its frame can be read.
    #[test]
    fn any_decision_can_be_read(numbers: [u64; 4], reason in 0..32u8, allow: bool, limit_index: u8) {
        let [granted, remaining, reset_after_us, retry_us] = numbers;
        let details = Details { remaining, reset_after_us, retry_after_us: Some(retry_us), limit_index };
        let reason = Reason::from_wire(reason);
        let item = ReplyItem { allow, degraded: false, reason, granted, details: Some(details) };
        let payload = payload_of(|out| {
            reply::put_count(out, 1);
            item.encode(out);
        });
        prop_assert!(payload.len() <= 1 + reply::ITEM_BYTES_MAX);
        let read = reply::decode(&payload, 1).expect("a decision")[0].details.expect("details");
        prop_assert_eq!(read.remaining, remaining.min(VALUE_MAX));
        let exact_us = reset_after_us.min(VALUE_MAX);
        prop_assert!((exact_us..exact_us + 1_024).contains(&read.reset_after_us), "rounded up");
        let retry_after_us = (!allow).then_some(retry_us.clamp(1, VALUE_MAX));
        prop_assert_eq!(read.retry_after_us, retry_after_us, "a denial that ends is never one for ever");
    }

    #[test]
    fn long_texts_are_cut_between_characters(text in "[aé漢]{100,300}") {
        let error = ErrorFrame { code: ErrorCode::Internal, offending_id: 0, text: text.clone() };
        let cut = ErrorFrame::decode(&payload_of(|out| error.encode(out))).expect("an error").text;
        prop_assert!(text.starts_with(&cut) && cut.len() <= TEXT_BYTES_MAX);
        prop_assert!(cut == text || cut.len() > TEXT_BYTES_MAX - 3, "no more than a character is lost");

        let defined = Defined { refused: Some(text.clone()) };
        let read = Defined::decode(&payload_of(|out| defined.encode(out))).expect("a refusal");
        prop_assert_eq!(read.refused.as_ref(), Some(&cut));

        let hello = Hello { client_name: Some(text), ..Hello::default() };
        let read = Hello::decode(&payload_of(|out| hello.encode(out))).expect("a hello");
        prop_assert_eq!(read.client_name, Some(cut));
    }
}

#[test]
fn numbers_no_peer_may_see_leave_the_payload_readable() {
    let limit = Limit::TokenBucket { rate: u64::MAX, period_us: 1, capacity: u64::MAX };
    let payload = payload_of(|out| limit.encode(out));
    let read = Limit::decode(&mut &payload[..]);
    assert_eq!(read, Ok(Limit::TokenBucket { rate: VALUE_MAX, period_us: 1, capacity: VALUE_MAX }));

    let hello = Hello { inflight_max: Some(u64::MAX), ..Hello::default() };
    let read = Hello::decode(&payload_of(|out| hello.encode(out))).expect("a hello");
    assert_eq!(read.inflight_max, Some(VALUE_MAX));
}

#[test]
fn the_largest_table_of_policies_fits_where_a_client_reads_it() {
    let limit = Limit::TokenBucket { rate: VALUE_MAX, period_us: PERIOD_US_MAX, capacity: VALUE_MAX };
    let limits = Limits::new(vec![limit; LIMITS_MAX]).expect("4 limits");
    let policy = |index| NamedPolicy {
        name: format!("{index:0>width$}", width = NAME_BYTES_MAX),
        alias: 2 * index,
        version: VALUE_MAX,
        limits: limits.clone(),
    };
    let hello_ok = HelloOk {
        features: VALUE_MAX,
        frame_bytes_max: FRAME_BYTES_MIN as u64,
        items_max: 1,
        inflight_max: 1,
        idle_ms: VALUE_MAX,
        boot_id: u64::MAX,
        policies: (0..POLICIES_MAX as u64).map(policy).collect(),
    };
    let payload = payload_of(|out| hello_ok.encode(out));
    assert!(payload.len() <= FrameFormat::CLIENT_BEFORE_HELLO.payload_bytes_max);
    assert_eq!(HelloOk::decode(&payload), Ok(hello_ok));
}

#[test]
fn the_smallest_frame_holds_the_largest_check() {
    let mut encoder = CheckEncoder::default();
    let room = FRAME_BYTES_MIN - encoder.payload_bytes_max();
    assert!(CheckEncoder::item_bytes_max(KEY_BYTES_MAX) <= room);
    let key = [0xff; KEY_BYTES_MAX];
    let item =
        Item { operation: Operation::Check, alias: VALUE_MAX, cost: VALUE_MAX, key: &key, linked: false };
    let empty_bytes = encoder.payload_bytes_max();
    encoder.push(&item);
    assert!(encoder.payload_bytes_max() - empty_bytes <= CheckEncoder::item_bytes_max(KEY_BYTES_MAX));
}

#[test]
fn an_encoder_starts_anew_after_each_batch() {
    let mut encoder = CheckEncoder::default();
    let mut payloads = [BytesMut::new(), BytesMut::new()];
    for payload in &mut payloads {
        encoder.push(&Item { operation: Operation::Check, alias: 4, cost: 1, key: b"user:1", linked: false });
        encoder.finish(payload, false, None);
        assert_eq!(encoder.count(), 0);
    }
    assert_eq!(payloads[0], payloads[1]);
}

#[test]
fn the_reply_to_the_most_items_fits_in_its_frame() {
    let details = Details {
        remaining: u64::MAX,
        reset_after_us: u64::MAX,
        retry_after_us: Some(u64::MAX),
        limit_index: 3,
    };
    let item = ReplyItem {
        allow: false,
        degraded: true,
        reason: Reason::Partial,
        granted: u64::MAX,
        details: Some(details),
    };
    for frame_bytes_max in [FRAME_BYTES_MIN, FRAME_BYTES_DEFAULT] {
        let count = reply::items_max(frame_bytes_max);
        let payload = payload_of(|out| {
            reply::put_count(out, count);
            (0..count).for_each(|_| item.encode(out));
        });
        assert!(payload.len() <= frame_bytes_max, "{count} items");
    }
    assert!(reply::items_max(FRAME_BYTES_DEFAULT) >= ITEMS_DEFAULT, "the defaults fit each other");
}
