//! A policy: 1..=4 limits that are charged together, all or nothing.

use alloc::{string::String, vec::Vec};
use core::fmt;

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    limit::Limit,
    limits::{LIMITS_MAX, NAME_BYTES_MAX},
    varint,
};

/// The limits of a policy, 1..=4.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits(Vec<Limit>);

impl Limits {
    /// The limits of a policy; `None` where there are none or more than [`LIMITS_MAX`].
    pub fn new(limits: Vec<Limit>) -> Option<Self> {
        (1..=LIMITS_MAX).contains(&limits.len()).then_some(Self(limits))
    }

    /// The limits, in order.
    pub fn as_slice(&self) -> &[Limit] {
        &self.0
    }

    /// Appends the wire form.
    pub fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, self.0.len() as u64);
        for limit in &self.0 {
            limit.encode(out);
        }
    }

    /// Takes limits in wire form.
    ///
    /// # Errors
    /// The rule that the bytes break.
    pub fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let count = varint::get(input)?;
        if !(1..=LIMITS_MAX as u64).contains(&count) {
            return Err(DecodeError::BadLimitCount(count));
        }
        Ok(Self((0..count).map(|_| Limit::decode(input)).collect::<Result<_, _>>()?))
    }
}

impl From<Limit> for Limits {
    fn from(limit: Limit) -> Self {
        Self(alloc::vec![limit])
    }
}

/// The limits joined by ` + `.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" + ")?;
            }
            write!(f, "{limit}")?;
        }
        Ok(())
    }
}

/// Whether `name` may name a policy: 1..=64 bytes of ASCII letters, digits, `-`, `_`, `.`, `/`.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}

/// A named policy as a server announces it: an entry of HELLO_OK's table, or the payload of POLICY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    /// The name, as configured: see [`is_name`].
    pub name: String,
    /// What stands for it in CHECK. Even: odd aliases are those of DEFINE.
    pub alias: u64,
    /// Rises with each change of the policy.
    pub version: u64,
    /// What it allows.
    pub limits: Limits,
}

impl NamedPolicy {
    /// Appends the wire form.
    pub fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, self.name.len() as u64);
        out.put_slice(self.name.as_bytes());
        varint::put(out, self.alias);
        varint::put(out, self.version);
        self.limits.encode(out);
    }

    /// Takes a policy in wire form.
    ///
    /// # Errors
    /// The rule that the bytes break.
    pub fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let name = varint::get_bytes(input, NAME_BYTES_MAX)?;
        let name = core::str::from_utf8(name).map_err(|_| DecodeError::NotUtf8)?;
        if !is_name(name) {
            return Err(DecodeError::OutOfRange("name of a policy"));
        }
        let alias = varint::get(input)?;
        if alias % 2 != 0 {
            return Err(DecodeError::OutOfRange("alias of a named policy"));
        }
        Ok(Self { name: name.into(), alias, version: varint::get(input)?, limits: Limits::decode(input)? })
    }

    /// Reads the payload of POLICY.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let policy = Self::take(&mut input)?;
        finish(input)?;
        Ok(policy)
    }
}
