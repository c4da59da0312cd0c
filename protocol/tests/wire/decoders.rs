//! No bytes make a decoder panic, or allocate more than they are worth.

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, prelude::*, sample::select};
use tollgate_protocol::{
    check::CheckBatch,
    error::DecodeError,
    frame::{Frame, FrameFormat, FrameType},
    limits::{FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, ITEMS_DEFAULT, POLICIES_MAX},
    varint,
};

use crate::{arbitrary::message, message::Message};

const FORMAT: FrameFormat = FrameFormat { payload_bytes_max: FRAME_BYTES_DEFAULT, checksum: false };

/// Most bytes that a decoder may hold for each byte that came. A decision of one byte takes the most.
const BYTES_PER_BYTE_MAX: usize = 64;

/// HELLO_OK up to the number of policies: version 1, no features, frames of 4,096 bytes, 1 item, 1 in flight, no
/// idle time, boot id 0.
const HELLO_OK_HEAD: [u8; 15] = [1, 0, 0x80, 0x20, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Decodes a payload. Where it can be read, what it means can be written and read again.
fn decode(frame: &Frame) -> Result<(), TestCaseError> {
    let mut result = Err(DecodeError::Truncated);
    let held = measure(|| result = Message::decode(frame, None)).bytes_max;
    let bound = BYTES_PER_BYTE_MAX * frame.payload.len() + 256;
    prop_assert!(held <= bound as u64, "{held} bytes for {} that came", frame.payload.len());
    if let Ok(message) = result {
        let mut payload = BytesMut::new();
        message.encode(&mut payload);
        let again = Message::decode(&Frame { payload: payload.freeze(), ..*frame }, None);
        let again = again.map_err(|error| TestCaseError::fail(format!("{message:?}: {error}")))?;
        prop_assert_eq!(again.describe(0), message.describe(0));
    }
    Ok(())
}

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(u8),
    Remove,
    Insert(Vec<u8>),
    CutOff,
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Change)> {
    let change = prop_oneof![
        4 => any::<u8>().prop_map(Change::Set),
        1 => Just(Change::Remove),
        1 => vec(any::<u8>(), 1..10).prop_map(Change::Insert),
        // The largest integer that can be written, in the place of a length or a count.
        1 => Just(Change::Insert(vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        1 => Just(Change::CutOff),
    ];
    (any::<prop::sample::Index>(), change)
}

fn apply(bytes: &mut Vec<u8>, changes: &[(prop::sample::Index, Change)]) {
    for (index, change) in changes {
        if bytes.is_empty() {
            return;
        }
        let at = index.index(bytes.len());
        match change {
            Change::Set(byte) => bytes[at] = *byte,
            Change::Remove => drop(bytes.remove(at)),
            Change::Insert(inserted) => drop(bytes.splice(at..at, inserted.iter().copied())),
            Change::CutOff => bytes.truncate(at),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn random_payloads(kind in select(FrameType::ALL), payload in vec(any::<u8>(), 0..300)) {
        decode(&Frame { kind, id: 1, payload: payload.into() })?;
    }

    #[test]
    fn changed_payloads(message in message(), changes in vec(change(), 1..5)) {
        let mut payload = BytesMut::new();
        message.encode(&mut payload);
        let mut payload = payload.to_vec();
        apply(&mut payload, &changes);
        decode(&Frame { kind: message.kind(), id: 1, payload: payload.into() })?;
    }

    #[test]
    fn random_streams(bytes in vec(any::<u8>(), 0..300), checksum: bool) {
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(frame)) = (FrameFormat { checksum, ..FORMAT }).decode(&mut input) {
            decode(&frame)?;
        }
    }

    #[test]
    fn changed_streams(messages in vec(message(), 1..4), changes in vec(change(), 1..5)) {
        let mut stream = BytesMut::new();
        for (id, message) in (1..).zip(&messages) {
            FORMAT.encode(&mut stream, message.kind(), id, |out| message.encode(out));
        }
        let mut stream = stream.to_vec();
        apply(&mut stream, &changes);
        let mut input = BytesMut::from(&stream[..]);
        while let Ok(Some(frame)) = FORMAT.decode(&mut input) {
            decode(&frame)?;
        }
    }
}

/// The shortest items take the most memory for each byte.
#[test]
fn payloads_of_the_shortest_items() {
    let payload_of = |head: &[u8], count: usize, item: &[u8]| {
        let mut payload = BytesMut::from(head);
        varint::put(&mut payload, count as u64);
        payload.extend_from_slice(&item.repeat(count));
        payload.freeze()
    };
    // A policy named `a` with alias 0, version 0 and one limit, of an unknown algorithm and without numbers.
    let policies = payload_of(&HELLO_OK_HEAD, POLICIES_MAX, &[1, b'a', 0, 0, 1, 9, 0]);
    let replies = payload_of(&[], ITEMS_DEFAULT, &[0]);
    // A check of alias 0 and key `a`, then checks of the same.
    let first = [0x10, 0, 1, b'a'];
    let mut checks = BytesMut::from(&[0][..]);
    varint::put(&mut checks, ITEMS_DEFAULT as u64);
    checks.extend_from_slice(&first);
    checks.extend_from_slice(&[0x20].repeat(ITEMS_DEFAULT - 1));

    for (kind, payload) in
        [(FrameType::HelloOk, policies), (FrameType::Reply, replies), (FrameType::Check, checks.freeze())]
    {
        let frame = Frame { kind, id: 1, payload };
        assert!(Message::decode(&frame, None).is_ok(), "{kind:?}");
        decode(&frame).expect("little memory");
    }
}

/// Bytes held at most while `decode` runs.
fn held_by(decode: impl FnOnce()) -> u64 {
    measure(decode).bytes_max
}

#[test]
fn a_count_without_items_reserves_nothing_for_them() {
    let mut payload = BytesMut::from(&[0][..]);
    varint::put(&mut payload, varint::VALUE_MAX);
    let payload = payload.freeze();
    let held = held_by(|| {
        assert_eq!(CheckBatch::decode(payload, usize::MAX), Err(DecodeError::Truncated));
    });
    assert!(held <= 256, "{held} bytes");

    // The most policies that may be announced, and none.
    let mut payload = BytesMut::from(&HELLO_OK_HEAD[..]);
    varint::put(&mut payload, POLICIES_MAX as u64);
    let frame = Frame { kind: FrameType::HelloOk, id: 1, payload: payload.freeze() };
    let held = held_by(|| assert_eq!(Message::decode(&frame, None), Err(DecodeError::Truncated)));
    assert!(held <= 256, "{held} bytes");
}

#[test]
fn a_length_without_payload_reserves_nothing_for_it() {
    let format = FrameFormat { payload_bytes_max: FRAME_BYTES_MAX, checksum: true };
    let mut input = BytesMut::from(&[0xff, 0xff, 0xff, 0x10, 1, 0, 0, 0, 42][..]);
    let held = held_by(|| assert_eq!(format.decode(&mut input), Ok(None)));
    assert_eq!(held, 0);
}

#[test]
fn a_payload_that_no_frame_can_hold_is_refused() {
    let payload = Bytes::from(vec![0; FRAME_BYTES_MAX + 1]);
    let error = DecodeError::FrameTooLarge { length: FRAME_BYTES_MAX + 1, max: FRAME_BYTES_MAX };
    assert_eq!(CheckBatch::decode(payload, 1), Err(error));
}

#[test]
fn the_memory_of_items_is_used_again() {
    // One check of alias 0, cost 1 and key `a`.
    let payload = Bytes::from_static(&[0, 1, 0x10, 0, 1, b'a']);
    let items = CheckBatch::decode(payload.clone(), 1).expect("a batch").items;
    let allocated = measure(|| drop(CheckBatch::decode_into(payload, 1, items))).count_total;
    assert_eq!(allocated, 0);
}
