//! HELLO and HELLO_OK: what both sides can do, and the table of named policies.

use alloc::{string::String, vec::Vec};

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    limits::{self, MAGIC, TEXT_BYTES_MAX, VERSION},
    policy::NamedPolicy,
    tlv, varint,
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
    /// Name for the server's log, at most 256 bytes.
    pub client_name: Option<String>,
    /// Largest payload that the client wants to send or receive, in bytes.
    pub frame_bytes_max: Option<u64>,
    /// Batches that the client wants in flight.
    pub inflight_max: Option<u64>,
    /// Features that the client can use, see [`FEATURE_CHECKSUM`].
    pub features: u64,
}

impl Hello {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&MAGIC);
        out.put_u8(VERSION);
        out.put_u8(VERSION);
        if let Some(name) = &self.client_name {
            tlv::put(out, TAG_CLIENT_NAME, &name.as_bytes()[..name.len().min(TEXT_BYTES_MAX)]);
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

    /// Reads a payload.
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
                TAG_CLIENT_NAME => hello.client_name = Some(text(value)?),
                TAG_FRAME_BYTES_MAX => hello.frame_bytes_max = Some(whole(value)?),
                TAG_INFLIGHT_MAX => hello.inflight_max = Some(whole(value)?),
                TAG_FEATURES => hello.features = whole(value)?,
                unknown => tlv::skip_unknown(unknown)?,
            }
        }
        Ok(hello)
    }
}

fn text(value: &[u8]) -> Result<String, DecodeError> {
    if value.len() > TEXT_BYTES_MAX {
        return Err(DecodeError::FieldTooLong { length: value.len() as u64, max: TEXT_BYTES_MAX });
    }
    Ok(String::from_utf8_lossy(value).into_owned())
}

fn whole(mut value: &[u8]) -> Result<u64, DecodeError> {
    let number = varint::get(&mut value)?;
    finish(value)?;
    Ok(number)
}

/// Payload of HELLO_OK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloOk {
    /// Features that are in use from the next frame on.
    pub features: u64,
    /// Largest payload in either direction, in bytes.
    pub frame_bytes_max: u64,
    /// Most checks in a frame.
    pub items_max: u64,
    /// Most batches in flight.
    pub inflight_max: u64,
    /// The server closes a connection on which nothing came for this long, in milliseconds; 0: never.
    pub idle_ms: u64,
    /// Drawn anew at each start of the server.
    pub boot_id: u64,
    /// The named policies.
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
        let frame_bytes_max = at_least_one(&mut input, "frame_bytes_max")?;
        let items_max = at_least_one(&mut input, "items_max")?;
        let inflight_max = at_least_one(&mut input, "inflight_max")?;
        let idle_ms = varint::get(&mut input)?;
        let boot_id =
            u64::from_le_bytes(varint::take(&mut input, 8)?.try_into().map_err(|_| DecodeError::Truncated)?);
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

fn at_least_one(input: &mut &[u8], name: &'static str) -> Result<u64, DecodeError> {
    let value = varint::get(input)?;
    if value > 0 { Ok(value) } else { Err(DecodeError::OutOfRange(name)) }
}
