//! HELLO and HELLO_OK: what both sides can do, and the table of named policies.

use alloc::{string::String, vec::Vec};
use core::ops::RangeInclusive;

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    limits::{self, FRAME_BYTES_MAX, FRAME_BYTES_MIN, INFLIGHT_MAX, MAGIC, TEXT_BYTES_MAX, VERSION},
    policy::NamedPolicy,
    text, tlv, varint,
};

const TAG_CLIENT_NAME: u8 = 1;
const TAG_FRAME_BYTES_MAX: u8 = 3;
const TAG_INFLIGHT_MAX: u8 = 5;
const TAG_FEATURES: u8 = 7;

/// Feature bit: a CRC32C follows each payload after HELLO_OK.
pub const FEATURE_CHECKSUM: u64 = 1;

/// Payload of HELLO. What is `None` is left to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Name for the server's log, at most [`TEXT_BYTES_MAX`] bytes.
    pub client_name: Option<String>,
    /// Largest payload that the client wants to send or receive, in bytes.
    pub frame_bytes_max: Option<u64>,
    /// Batches that the client wants in flight.
    pub inflight_max: Option<u64>,
    /// Features that the client can use, see [`FEATURE_CHECKSUM`].
    pub features: u64,
}

impl Hello {
    /// Appends the payload. A longer name is cut at a character's edge.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&MAGIC);
        out.put_u8(VERSION);
        out.put_u8(VERSION);
        if let Some(name) = &self.client_name {
            tlv::put(out, TAG_CLIENT_NAME, text::cut(name).as_bytes());
        }
        if let Some(bytes) = self.frame_bytes_max {
            tlv::put_vi(out, TAG_FRAME_BYTES_MAX, bytes);
        }
        if let Some(count) = self.inflight_max {
            tlv::put_vi(out, TAG_INFLIGHT_MAX, count);
        }
        if self.features != 0 {
            tlv::put_vi(out, TAG_FEATURES, self.features);
        }
    }

    /// Reads a payload. Where a field stands twice, the last one counts.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        if varint::take(&mut input, MAGIC.len()).ok() != Some(&MAGIC[..]) {
            return Err(DecodeError::BadMagic);
        }
        let (lowest, highest) = (varint::take_u8(&mut input)?, varint::take_u8(&mut input)?);
        if !(lowest..=highest).contains(&VERSION) {
            return Err(DecodeError::UnsupportedVersion { lowest, highest });
        }
        let mut hello = Self::default();
        while let Some((tag, value)) = tlv::next(&mut input)? {
            match tag {
                TAG_CLIENT_NAME => hello.client_name = Some(name(value)?),
                TAG_FRAME_BYTES_MAX => hello.frame_bytes_max = Some(whole(value)?),
                TAG_INFLIGHT_MAX => hello.inflight_max = Some(whole(value)?),
                TAG_FEATURES => hello.features = whole(value)?,
                unknown => tlv::skip_unknown(unknown)?,
            }
        }
        Ok(hello)
    }
}

fn name(value: &[u8]) -> Result<String, DecodeError> {
    if value.len() > TEXT_BYTES_MAX {
        return Err(DecodeError::FieldTooLong { length: value.len() as u64, max: TEXT_BYTES_MAX });
    }
    text::decode(value)
}

fn whole(mut value: &[u8]) -> Result<u64, DecodeError> {
    let number = varint::get(&mut value)?;
    finish(value)?;
    Ok(number)
}

/// Payload of HELLO_OK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloOk {
    /// Features in use from the next frame on, of those that HELLO offered.
    pub features: u64,
    /// Largest payload in either direction, in bytes; [`FRAME_BYTES_MIN`]..=[`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u64,
    /// Most checks in a frame, at least 1. Their REPLY fits: see [`crate::reply::items_max`].
    pub items_max: u64,
    /// Most batches in flight, 1..=[`INFLIGHT_MAX`].
    pub inflight_max: u64,
    /// The server closes a connection on which nothing came for this long, in milliseconds; 0: never.
    pub idle_ms: u64,
    /// Drawn anew at each start of the server.
    pub boot_id: u64,
    /// The named policies, at most [`limits::POLICIES_MAX`].
    pub policies: Vec<NamedPolicy>,
}

impl HelloOk {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(VERSION);
        varint::put(out, self.features);
        varint::put(out, self.frame_bytes_max);
        varint::put(out, self.items_max);
        varint::put(out, self.inflight_max);
        varint::put(out, self.idle_ms);
        out.put_u64_le(self.boot_id);
        varint::put(out, self.policies.len() as u64);
        for policy in &self.policies {
            policy.encode(out);
        }
    }

    /// Reads a payload. Fields that a later version appends as TLVs are skipped where their tag is odd.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let version = varint::take_u8(&mut input)?;
        if version != VERSION {
            return Err(DecodeError::UnsupportedVersion { lowest: version, highest: version });
        }
        let features = varint::get(&mut input)?;
        let frame_bytes_max = within(&mut input, FRAME_BYTES_MIN..=FRAME_BYTES_MAX, "frame_bytes_max")?;
        let items_max = within(&mut input, 1..=FRAME_BYTES_MAX, "items_max")?;
        let inflight_max = within(&mut input, 1..=INFLIGHT_MAX, "inflight_max")?;
        let idle_ms = varint::get(&mut input)?;
        let boot_id = u64::from_le_bytes(varint::take_array(&mut input)?);
        let count = varint::get(&mut input)?;
        if count > limits::POLICIES_MAX as u64 {
            return Err(DecodeError::OutOfRange("number of policies"));
        }
        let policies = (0..count).map(|_| NamedPolicy::take(&mut input)).collect::<Result<_, _>>()?;
        while let Some((tag, _)) = tlv::next(&mut input)? {
            tlv::skip_unknown(tag)?;
        }
        Ok(Self { features, frame_bytes_max, items_max, inflight_max, idle_ms, boot_id, policies })
    }
}

fn within(input: &mut &[u8], range: RangeInclusive<usize>, name: &'static str) -> Result<u64, DecodeError> {
    let value = varint::get(input)?;
    let is_within = usize::try_from(value).is_ok_and(|value| range.contains(&value));
    if is_within { Ok(value) } else { Err(DecodeError::OutOfRange(name)) }
}
