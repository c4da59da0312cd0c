//! DEFINE and DEFINED: an inline policy that lasts as long as its connection.
//!
//! State belongs to the limits of an inline policy, not to the connection: all connections that define the
//! same limits charge the same state.

use alloc::string::String;

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    limit::Limit,
    limits::DEFINITIONS_MAX,
    policy::Limits,
    text, varint,
};

/// Largest alias that a client may choose.
pub const ALIAS_MAX: u64 = 2 * DEFINITIONS_MAX as u64 - 1;

/// Payload of DEFINE. Defining an alias again replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define {
    /// What stands for the policy in CHECK: odd, at most [`ALIAS_MAX`].
    pub alias: u64,
    /// What it allows.
    pub limits: Limits,
}

impl Define {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, self.alias);
        self.limits.encode(out);
    }

    /// Reads a payload. Whatever is wrong with it concerns this policy alone: the frame itself was whole, and
    /// the server answers with DEFINED and the error's text.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let alias = varint::get(&mut input)?;
        if alias % 2 == 0 || alias > ALIAS_MAX {
            return Err(DecodeError::OutOfRange("alias of an inline policy"));
        }
        let limits = Limits::decode(&mut input)?;
        finish(input)?;
        for limit in limits.as_slice() {
            if let Limit::Unknown { algorithm } = *limit {
                return Err(DecodeError::UnknownAlgorithm(algorithm));
            }
        }
        Ok(Self { alias, limits })
    }
}

/// Payload of DEFINED: empty where the policy was taken, otherwise why it was not. The connection goes on
/// either way; a refused alias names no policy, even where it named one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defined {
    /// Why the policy was refused, for a person; at most [`crate::limits::TEXT_BYTES_MAX`] bytes.
    pub refused: Option<String>,
}

impl Defined {
    /// Appends the payload. A longer text is cut at a character's edge.
    pub fn encode(&self, out: &mut impl BufMut) {
        if let Some(text) = &self.refused {
            text::put(out, text);
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let refused = if input.is_empty() { None } else { Some(text::take(&mut input)?) };
        finish(input)?;
        Ok(Self { refused })
    }
}
