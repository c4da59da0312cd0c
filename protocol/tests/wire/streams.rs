//! Frames in a stream of bytes, however it is cut.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, prelude::*};
use tollgate_protocol::frame::{Frame, FrameFormat, FrameType};

use crate::{arbitrary::message, message::Message};

/// A frame, or one of a type that is skipped.
#[derive(Clone, Debug)]
enum Sent {
    Frame(Message, u32),
    Skipped(u8, Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let skipped = (any::<u8>(), vec(any::<u8>(), 0..40))
        .prop_map(|(code, payload)| (code | 0x40, payload))
        .prop_filter("a type that is not known", |(code, _)| FrameType::from_wire(*code).is_none());
    prop_oneof![
        4 => (message(), any::<u32>()).prop_map(|(message, id)| Sent::Frame(message, id)),
        1 => skipped.prop_map(|(code, payload)| Sent::Skipped(code, payload)),
    ]
}

/// The bytes of all, and the frames that are to be read from them.
fn encode(format: FrameFormat, all: &[Sent]) -> (BytesMut, Vec<Frame>) {
    let (mut bytes, mut frames) = (BytesMut::new(), Vec::new());
    for sent in all {
        match sent {
            Sent::Frame(message, id) => {
                let mut payload = BytesMut::new();
                message.encode(&mut payload);
                let payload = payload.freeze();
                format.encode(&mut bytes, message.kind(), *id, |out| out.extend_from_slice(&payload));
                frames.push(Frame { kind: message.kind(), id: *id, payload });
            }
            Sent::Skipped(code, payload) => bytes.extend_from_slice(&skipped_frame(format, *code, payload)),
        }
    }
    (bytes, frames)
}

fn skipped_frame(format: FrameFormat, code: u8, payload: &[u8]) -> Vec<u8> {
    let word = (u32::from(code) << 24) | payload.len() as u32;
    let mut bytes = [&word.to_le_bytes()[..], &[0; 4], payload].concat();
    if format.checksum {
        let sum = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI).checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Cuts bytes into pieces of the sizes given, again and again.
fn cut<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn format_of(checksum: bool) -> FrameFormat {
    FrameFormat { payload_bytes_max: 1 << 16, checksum }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(
        all in vec(sent(), 1..8),
        sizes in vec(1..200usize, 1..10),
        checksum: bool,
    ) {
        let format = format_of(checksum);
        let (bytes, frames) = encode(format, &all);
        let (mut input, mut read) = (BytesMut::new(), Vec::new());
        for piece in cut(&bytes, &sizes) {
            input.extend_from_slice(piece);
            while let Some(frame) = format.decode(&mut input).expect("frames") {
                read.push(frame);
            }
        }
        prop_assert_eq!(read, frames);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn a_checksum_finds_every_turned_bit(message in message(), id: u32, position: prop::sample::Index) {
        let format = format_of(true);
        let (mut bytes, _) = encode(format, &[Sent::Frame(message, id)]);
        // The first 4 bytes hold length and type, which are judged before the checksum.
        let bit = 32 + position.index(8 * (bytes.len() - 4));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(format.decode(&mut bytes).is_err());
    }
}

#[test]
fn a_length_is_judged_before_the_payload_comes() {
    let format = format_of(false);
    let header =
        |length: u32| BytesMut::from(&[&(0x1000_0000 | length).to_le_bytes()[..], &[0; 4]].concat()[..]);
    assert_eq!(format.decode(&mut header(1 << 16)), Ok(None));
    assert!(format.decode(&mut header((1 << 16) + 1)).is_err());
}

#[test]
fn a_payload_is_a_slice_of_what_was_read() {
    let payload = Bytes::from_static(&[7; 1_000]);
    let mut input = BytesMut::new();
    format_of(false).encode(&mut input, FrameType::Check, 1, |out| out.extend_from_slice(&payload));
    let start = input.as_ptr() as usize;
    let frame = format_of(false).decode(&mut input).expect("a frame").expect("a whole frame");
    assert_eq!(frame.payload.as_ptr() as usize, start + 8);
}

#[cfg(feature = "codec")]
mod codec {
    use std::{
        collections::VecDeque,
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use futures_util::{FutureExt, StreamExt};
    use tokio::io::{AsyncRead, ReadBuf};
    use tokio_util::codec::{Encoder, FramedRead};
    use tollgate_protocol::{
        codec::{CodecError, FrameCodec},
        limits::FRAME_BYTES_MAX,
    };

    use super::*;

    /// A socket that gives one piece a read, and is always ready.
    struct Pieces(VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(buffer.remaining()));
                buffer.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    fn read_all(bytes: &[u8], sizes: &[usize], format: FrameFormat) -> Vec<Result<Frame, CodecError>> {
        let pieces = Pieces(cut(bytes, sizes).into_iter().map(<[u8]>::to_vec).collect());
        FramedRead::new(pieces, FrameCodec::new(format)).collect().now_or_never().expect("always ready")
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(
            all in vec(sent(), 1..8),
            sizes in vec(1..200usize, 1..10),
            checksum: bool,
        ) {
            let format = format_of(checksum);
            let (bytes, frames) = encode(format, &all);
            let read: Result<Vec<_>, _> = read_all(&bytes, &sizes, format).into_iter().collect();
            prop_assert_eq!(read.expect("frames"), frames);
        }

        #[test]
        fn a_stream_that_ends_within_a_frame_is_an_error(message in message(), cut: prop::sample::Index) {
            let (bytes, _) = encode(format_of(false), &[Sent::Frame(message, 1)]);
            let length = 1 + cut.index(bytes.len() - 1);
            let read = read_all(&bytes[..length], &[64], format_of(false));
            prop_assert!(matches!(&read[..], [Err(CodecError::Io(_))]), "{read:?}");
        }

        #[test]
        fn frames_are_written_alike(message in message(), id: u32, checksum: bool) {
            let format = format_of(checksum);
            let (bytes, frames) = encode(format, &[Sent::Frame(message, id)]);
            let mut out = BytesMut::new();
            FrameCodec::new(format).encode(&frames[0], &mut out).expect("a frame that fits");
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_payload_that_no_frame_can_hold_is_an_error() {
        let payload = Bytes::from(vec![0; FRAME_BYTES_MAX + 1]);
        let frame = Frame { kind: FrameType::Check, id: 1, payload };
        let mut out = BytesMut::new();
        let result = FrameCodec::new(format_of(false)).encode(&frame, &mut out);
        assert!(matches!(result, Err(CodecError::Io(_))));
        assert!(out.is_empty());
    }
}
