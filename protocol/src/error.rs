//! What can be wrong with a peer's bytes, and the codes by which one side tells the other.

use alloc::string::String;

use bytes::{BufMut, Bytes};

use crate::{text, varint};

/// The rule of the format that a peer's bytes break. The peer is at fault, never the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field is cut off by the end of its payload.
    #[error("the payload ends within a field")]
    Truncated,
    /// Bytes are left after the last field.
    #[error("{count} bytes are left after the last field")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// An integer has leading zero groups.
    #[error("an integer is not in its shortest form")]
    VarintNotShortest,
    /// An integer is above 2^53 - 1.
    #[error("an integer is above 2^53 - 1")]
    VarintTooLarge,
    /// A length field is above the bound of its field.
    #[error("a field of {length} bytes, at most {max} are allowed")]
    FieldTooLong {
        /// The length that was announced.
        length: u64,
        /// The bound.
        max: usize,
    },
    /// A frame announces more payload than was negotiated.
    #[error("a frame of {length} bytes, at most {max} were negotiated")]
    FrameTooLarge {
        /// The length that was announced.
        length: usize,
        /// The negotiated bound.
        max: usize,
    },
    /// A frame's type is unknown and may not be ignored.
    #[error("unknown frame type {0:#04x}")]
    UnknownFrame(u8),
    /// A frame's checksum does not match.
    #[error("the frame's CRC32C does not match")]
    ChecksumMismatch,
    /// HELLO does not start with the magic.
    #[error("HELLO does not start with the magic `TGAT`: is this a Tollgate client?")]
    BadMagic,
    /// HELLO offers only versions that are not spoken here.
    #[error("versions {lowest}..={highest} are offered, only version 1 is spoken here")]
    UnsupportedVersion {
        /// Lowest version offered.
        lowest: u8,
        /// Highest version offered.
        highest: u8,
    },
    /// A field with an even tag is not known.
    #[error("field {0} must be understood and is not known here")]
    UnknownField(u8),
    /// Flag bits that must be zero are not.
    #[error("reserved flag bits are set: {0:#04x}")]
    ReservedFlags(u8),
    /// The number of items is 0 or above the negotiated bound.
    #[error("{count} items, 1..={max} are allowed")]
    BadItemCount {
        /// The count that was announced.
        count: u64,
        /// The negotiated bound.
        max: usize,
    },
    /// A REPLY does not hold one decision for each item of its CHECK.
    #[error("{count} decisions, {expected} were asked for")]
    ItemCountMismatch {
        /// The count that was announced.
        count: u64,
        /// The count of the CHECK.
        expected: usize,
    },
    /// The first item names no policy.
    #[error("the first item names no policy")]
    NoPolicy,
    /// The first item says that its key is that of the item before.
    #[error("the first item refers to the key of an item before it")]
    NoKeyBefore,
    /// A link does not join two checks of one key, or too many are linked.
    #[error("a link must join two checks of one key, and at most 16 are linked")]
    BadLink,
    /// An unknown algorithm.
    #[error("unknown algorithm {0}")]
    UnknownAlgorithm(u8),
    /// A policy has no limits or too many.
    #[error("a policy of {0} limits, 1..=4 are allowed")]
    BadLimitCount(u64),
    /// A limit's number is outside its range.
    #[error("a limit's {0} is out of range")]
    LimitOutOfRange(&'static str),
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// A number is outside its range.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
}

impl DecodeError {
    /// Code by which the peer is told.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::FrameTooLarge { .. } => ErrorCode::FrameTooLarge,
            Self::UnknownFrame(_) => ErrorCode::UnknownFrame,
            Self::ChecksumMismatch => ErrorCode::ChecksumMismatch,
            Self::BadMagic => ErrorCode::BadMagic,
            Self::UnsupportedVersion { .. } => ErrorCode::UnsupportedVersion,
            Self::UnknownField(_) => ErrorCode::UnknownField,
            _ => ErrorCode::Malformed,
        }
    }
}

/// Fails unless all bytes were used.
///
/// # Errors
/// [`DecodeError::TrailingBytes`] where some are left.
pub fn finish(rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes { count: rest.len() }) }
}

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal,)*) => {
        /// Why a connection is closed by an ERROR frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $doc])* $name,)*
            /// A code that this version does not know.
            Other(u8),
        }

        impl ErrorCode {
            /// The code on the wire.
            pub fn to_wire(self) -> u8 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// The code for a byte from the wire.
            pub fn from_wire(code: u8) -> Self {
                match code {
                    $($code => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }
    };
}

error_codes! {
    /// HELLO does not start with the magic.
    BadMagic = 1,
    /// No common version.
    UnsupportedVersion = 2,
    /// A payload breaks a rule of the format.
    Malformed = 3,
    /// A frame is larger than negotiated.
    FrameTooLarge = 4,
    /// A frame type is not known.
    UnknownFrame = 5,
    /// A known frame that has no place here: a second HELLO, a CHECK before HELLO, an id that does not rise.
    UnexpectedFrame = 6,
    /// A field that must be understood is not known.
    UnknownField = 7,
    /// A frame's checksum does not match.
    ChecksumMismatch = 8,
    /// HELLO, or the rest of a frame that had begun, did not come in time.
    Timeout = 9,
    /// Too many connections.
    TooManyConnections = 10,
    /// The server failed; the connection can be opened again.
    Internal = 11,
}

/// Payload of an ERROR frame. The sender closes the connection after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFrame {
    /// Why.
    pub code: ErrorCode,
    /// Id of the offending frame; 0 where it is not one frame's fault.
    pub offending_id: u32,
    /// Text for a person, at most [`crate::limits::TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

impl ErrorFrame {
    /// Appends the payload. A longer text is cut at a character's edge.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(self.code.to_wire());
        out.put_u32_le(self.offending_id);
        text::put(out, &self.text);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let code = ErrorCode::from_wire(varint::take_u8(&mut input)?);
        let offending_id = varint::take_u32(&mut input)?;
        let text = text::take(&mut input)?;
        finish(input)?;
        Ok(Self { code, offending_id, text })
    }
}
