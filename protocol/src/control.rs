//! The small frames of a connection: PING, PONG, GOAWAY, CREDIT.

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    varint,
};

/// Payload of PING, and of the PONG that returns it: 8 opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping(pub [u8; 8]);

impl Ping {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Where it has not exactly 8 bytes.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let opaque = varint::take_array(&mut input)?;
        finish(input)?;
        Ok(Self(opaque))
    }
}

/// Why a server says GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GoAwayReason {
    /// The server is shutting down.
    Shutdown,
    /// The connection was idle.
    Idle,
    /// A reason that this version does not know.
    Other(u8),
}

/// Payload of GOAWAY: the server will close the connection, and says what it will still execute. It may come
/// twice: first with a `last_id` of `u32::MAX`, which asks for no new frames, then with the real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// Last id that was or will be executed. What lies above it was provably not executed.
    pub last_id: u32,
    /// Why.
    pub reason: GoAwayReason,
    /// The client draws its delay before it connects again within this time, in milliseconds.
    pub reconnect_within_ms: u64,
}

impl GoAway {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u32_le(self.last_id);
        out.put_u8(match self.reason {
            GoAwayReason::Shutdown => 1,
            GoAwayReason::Idle => 2,
            GoAwayReason::Other(code) => code,
        });
        varint::put(out, self.reconnect_within_ms);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let last_id = varint::take_u32(&mut input)?;
        let reason = match varint::take_u8(&mut input)? {
            1 => GoAwayReason::Shutdown,
            2 => GoAwayReason::Idle,
            code => GoAwayReason::Other(code),
        };
        let reconnect_within_ms = varint::get(&mut input)?;
        finish(input)?;
        Ok(Self { last_id, reason, reconnect_within_ms })
    }
}

/// Payload of CREDIT: the number of batches that may be in flight from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Batches in flight, 1..=65,535.
    pub inflight_max: u16,
}

impl Credit {
    /// Appends the payload.
    pub fn encode(&self, out: &mut impl BufMut) {
        varint::put(out, u64::from(self.inflight_max));
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: &Bytes) -> Result<Self, DecodeError> {
        let mut input = &payload[..];
        let inflight_max = u16::try_from(varint::get(&mut input)?)
            .ok()
            .filter(|&max| max > 0)
            .ok_or(DecodeError::OutOfRange("credit"))?;
        finish(input)?;
        Ok(Self { inflight_max })
    }
}
