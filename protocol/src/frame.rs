//! The frame around every message.
//!
//! ```text
//! 0..3  u32  (type << 24) | payload length
//! 4..7  u32  id, chosen by the sender of a request, rising; 0 for frames of the connection itself
//! 8..        payload, then u32 CRC32C over header and payload where it was negotiated
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    error::DecodeError,
    limits::{self, CHECKSUM_BYTES, HEADER_BYTES},
};

const CRC32C: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);

/// Bit of a type that a peer may skip where it does not know it.
const IGNORABLE: u8 = 0x40;

macro_rules! frame_types {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal,)*) => {
        /// What a frame carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FrameType {
            $($(#[doc = $doc])* $name = $code,)*
        }

        impl FrameType {
            /// The type for a byte from the wire, if it is known.
            pub fn from_wire(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// All types.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

frame_types! {
    /// First frame of a client.
    Hello = 0x01,
    /// A client defines an inline policy.
    Define = 0x02,
    /// The client asks for a PONG.
    Ping = 0x03,
    /// A batch of checks.
    Check = 0x10,
    /// Answer to HELLO.
    HelloOk = 0x81,
    /// Answer to DEFINE.
    Defined = 0x82,
    /// Answer to PING.
    Pong = 0x83,
    /// The server will close this connection.
    GoAway = 0x84,
    /// The server changes the number of batches in flight.
    Credit = 0x85,
    /// Why the server closes the connection now.
    Error = 0x8f,
    /// Answer to CHECK.
    Reply = 0x90,
    /// A named policy changed. May be ignored.
    Policy = 0xc6,
}

impl FrameType {
    /// Whether this type is sent by the server (bit 7).
    pub fn is_from_server(self) -> bool {
        self as u8 & 0x80 != 0
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameType,
    /// Id of the request; 0 for frames of the connection itself.
    pub id: u32,
    /// The payload, a slice of the read buffer.
    pub payload: Bytes,
}

/// What both sides agreed on for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFormat {
    /// Largest payload that is accepted, in bytes.
    pub payload_bytes_max: usize,
    /// Whether a CRC32C follows each payload.
    pub checksum: bool,
}

impl FrameFormat {
    /// What a server accepts before HELLO_OK.
    pub const SERVER_BEFORE_HELLO: Self =
        Self { payload_bytes_max: limits::HELLO_BYTES_MAX, checksum: false };
    /// What a client accepts before HELLO_OK, which carries the table of policies.
    pub const CLIENT_BEFORE_HELLO: Self =
        Self { payload_bytes_max: limits::FRAME_BYTES_DEFAULT, checksum: false };

    /// Takes the next whole frame from the front of `input`, or `None` where more bytes are needed.
    /// Unknown frames that may be ignored are skipped. Nothing is copied: the payload is a slice of `input`.
    ///
    /// # Errors
    /// The rule that the frame breaks; a length is judged as soon as the header is there.
    pub fn decode(&self, input: &mut BytesMut) -> Result<Option<Frame>, DecodeError> {
        loop {
            let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let word = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let id = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            let (code, length) = ((word >> 24) as u8, (word & 0x00ff_ffff) as usize);
            let kind = FrameType::from_wire(code);
            if kind.is_none() && code & IGNORABLE == 0 {
                return Err(DecodeError::UnknownFrame(code));
            }
            if length > self.payload_bytes_max {
                return Err(DecodeError::FrameTooLarge { length, max: self.payload_bytes_max });
            }
            let checksum_bytes = if self.checksum { CHECKSUM_BYTES } else { 0 };
            if rest.len() < length + checksum_bytes {
                return Ok(None);
            }
            if self.checksum {
                self.verify(input, length)?;
            }
            input.advance(HEADER_BYTES);
            let payload = input.split_to(length).freeze();
            input.advance(checksum_bytes);
            if let Some(kind) = kind {
                return Ok(Some(Frame { kind, id, payload }));
            }
        }
    }

    fn verify(&self, input: &[u8], length: usize) -> Result<(), DecodeError> {
        let (body, tail) = input.split_at(HEADER_BYTES + length);
        let sum = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        if CRC32C.checksum(body) == sum { Ok(()) } else { Err(DecodeError::ChecksumMismatch) }
    }

    /// Appends a frame whose payload is what `write` appends.
    ///
    /// # Panics
    /// Where `write` appends more than [`limits::FRAME_BYTES_MAX`] bytes, which no encoder of this crate does
    /// within the bounds that it is given.
    pub fn encode(&self, out: &mut BytesMut, kind: FrameType, id: u32, write: impl FnOnce(&mut BytesMut)) {
        let start = out.len();
        out.put_u32_le(0);
        out.put_u32_le(id);
        write(out);
        let length = out.len() - start - HEADER_BYTES;
        assert!(length <= limits::FRAME_BYTES_MAX, "a payload of {length} bytes does not fit in a frame");
        let word = (u32::from(kind as u8) << 24) | length as u32;
        out[start..start + 4].copy_from_slice(&word.to_le_bytes());
        if self.checksum {
            let sum = CRC32C.checksum(&out[start..]);
            out.put_u32_le(sum);
        }
    }
}
