//! The frame as a `tokio_util` codec.

use std::{format, io};

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use crate::{
    error::DecodeError,
    frame::{Frame, FrameFormat},
    limits::FRAME_BYTES_MAX,
};

/// Why a framed stream ends.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The peer's bytes break a rule of the format.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The socket failed, or the caller's payload is above [`FRAME_BYTES_MAX`].
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Encoder and decoder of frames.
///
/// The decoder never reserves room for a length that a peer announced: the buffer grows only with bytes that
/// have arrived.
#[derive(Clone, Debug)]
pub struct FrameCodec {
    /// Format of the frames. Set it anew after HELLO_OK.
    pub format: FrameFormat,
}

impl FrameCodec {
    /// A codec for one format.
    pub fn new(format: FrameFormat) -> Self {
        Self { format }
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = CodecError;

    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, CodecError> {
        Ok(self.format.decode(input)?)
    }
}

impl Encoder<&Frame> for FrameCodec {
    type Error = CodecError;

    fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), CodecError> {
        let length = frame.payload.len();
        if length > FRAME_BYTES_MAX {
            let message = format!("a payload of {length} bytes does not fit in a frame");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message).into());
        }
        self.format.encode(out, frame.kind, frame.id, |out| out.extend_from_slice(&frame.payload));
        Ok(())
    }
}
