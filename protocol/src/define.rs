//! DEFINE and DEFINED: an inline policy that lasts as long as its connection.
//!
//! State belongs to the limits of an inline policy, not to the connection: all connections that define the
//! same limits charge the same state.

use alloc::string::String;

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish, put_text, take_text},
    limits::DEFINITIONS_MAX,
    policy::Limits,
    varint,
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

    /// Reads a payload.
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
        Ok(Self { alias, limits })
    }
}

/// Payload of DEFINED: empty where the policy was taken, otherwise why it was not. The connection goes on
/// either way; checks under a refused alias are answered with the reason `unknown policy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defined {
    /// Why the policy was refused, for a person.
    pub refused: Option<String>,
}

impl Defined {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        if let Some(text) = &self.refused {
            put_text(out, text);
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let refused = if input.is_empty() { None } else { Some(take_text(&mut input)?) };
        finish(input)?;
        Ok(Self { refused })
    }
}
