//! The golden vectors, but for those of the ring.

use std::collections::BTreeSet;

use bytes::BytesMut;
use tollgate_protocol::{
    error::DecodeError,
    frame::{Frame, FrameFormat, FrameType},
    limit::{Limit, ParseLimitError},
    limits::{FRAME_BYTES_DEFAULT, FRAME_BYTES_MIN},
    policy::Limits,
    reply::Reason,
    varint,
};

use crate::{
    golden::{Entry, check_all},
    message::Message,
    specification::{error_rules, rule_of},
};

#[test]
fn integers() {
    check_all("varint.txt", |entry| {
        let bytes = entry.bytes();
        let mut input = &bytes[..];
        let result = varint::get(&mut input);
        if let Some(error) = entry.take("error") {
            assert_eq!(rule_of(&result.expect_err(&error)), error);
            return;
        }
        let value: u64 = entry.need("value").parse().expect("a value");
        assert_eq!((result, input), (Ok(value), &[][..]));
        let mut written = Vec::new();
        varint::put(&mut written, value);
        assert_eq!(written, bytes);
    });
}

/// Checks a frame in both directions, and returns it.
fn check_frame(entry: &mut Entry) -> Message {
    let format =
        FrameFormat { payload_bytes_max: FRAME_BYTES_DEFAULT, checksum: entry.flag("checksum", false) };
    let bytes = entry.bytes();
    let mut input = BytesMut::from(&bytes[..]);
    let frame = format.decode(&mut input).expect("a frame").expect("a whole frame");
    assert!(input.is_empty(), "bytes are left after the frame");
    let message = Message::decode(&frame, None).expect("a payload");
    assert_eq!(message.describe(frame.id), entry.need("means"));

    let mut written = BytesMut::new();
    format.encode(&mut written, message.kind(), frame.id, |out| message.encode(out));
    assert_eq!(written == bytes, entry.flag("canonical", true), "written as {written:02x?}");
    message
}

#[test]
fn frames() {
    let mut seen = BTreeSet::new();
    check_all("frames.txt", |entry| {
        seen.insert(check_frame(entry).kind() as u8);
    });
    assert_eq!(seen, FrameType::ALL.iter().map(|&kind| kind as u8).collect());
}

#[test]
fn checks() {
    let mut seen = BTreeSet::new();
    check_all("checks.txt", |entry| {
        let Message::Check(batch) = check_frame(entry) else { panic!("not a CHECK") };
        seen.extend(batch.items.iter().map(|item| format!("{:?}", item.operation)));
    });
    // All that three bits can say.
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn replies() {
    let mut seen = BTreeSet::new();
    check_all("replies.txt", |entry| {
        let Message::Reply(items) = check_frame(entry) else { panic!("not a REPLY") };
        seen.extend(items.iter().map(|item| (item.reason.to_wire(), item.details.is_some())));
    });
    for reason in Reason::ALL {
        for details in [false, true] {
            assert!(seen.contains(&(reason.to_wire(), details)), "{reason:?}, details: {details}");
        }
    }
}

#[test]
fn errors() {
    let mut seen = BTreeSet::new();
    check_all("errors.txt", |entry| {
        let expected = entry.take("expected").map(|count| count.parse().expect("a count"));
        let format =
            FrameFormat { payload_bytes_max: FRAME_BYTES_MIN, checksum: entry.flag("checksum", false) };
        let error = match format.decode(&mut BytesMut::from(&entry.bytes()[..])) {
            Ok(frame) => decode_error(&frame.expect("a whole frame"), expected),
            Err(error) => error,
        };
        let rule = (entry.need("error"), entry.need("code").parse().expect("a code"));
        assert_eq!((rule_of(&error), error.code().to_wire()), rule);
        seen.insert(rule);
    });
    assert_eq!(seen, error_rules());
}

fn decode_error(frame: &Frame, expected: Option<usize>) -> DecodeError {
    Message::decode(frame, expected).expect_err("a payload that breaks a rule")
}

#[test]
fn limits_as_text() {
    check_all("limits.txt", |entry| {
        let text = entry.need("text");
        let parsed: Result<Vec<Limit>, ParseLimitError> = text.lines().map(str::parse).collect();
        if let Some(error) = entry.take("error") {
            let message = parsed.expect_err("a text that is no limit").to_string();
            assert!(message.contains(&error), "{message}");
            assert!(message.contains(&format!("`{text}`")), "{message}");
            return;
        }
        let limits = Limits::new(parsed.expect("limits")).expect("a policy");
        let mut written = Vec::new();
        limits.encode(&mut written);
        assert_eq!(written, entry.bytes());
        assert_eq!(Limits::decode(&mut &written[..]).as_ref(), Ok(&limits));

        let canonical = entry.need("canonical");
        assert_eq!(limits.to_string(), canonical);
        let again: Vec<Limit> = canonical.split(" + ").map(|text| text.parse().expect("a limit")).collect();
        assert_eq!(again, limits.as_slice());
    });
}
