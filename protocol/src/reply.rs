//! REPLY: the decisions of a batch, in the order of its items.
//!
//! ```text
//! vi  count
//! items: u8 status   bit 7 verdict (1: let it pass)   bit 6 degraded   bit 5 details follow   bits 0-4 reason
//!        [vi granted]                                 where the reason is `partial`
//!        [vi remaining] [vi reset] [vi retry_after_us where the verdict is deny; 0: it can never pass]
//! ```
//! `reset` is `reset_after` in units of 1,024 us, rounded up, times 4, plus the index of the limit that
//! denied or is the tightest.

use alloc::vec::Vec;

use bytes::{BufMut, Bytes};

use crate::{
    error::{DecodeError, finish},
    limits::{LIMITS_MAX, RESET_UNIT_US},
    varint,
};

const STATUS_ALLOW: u8 = 1 << 7;
const STATUS_DEGRADED: u8 = 1 << 6;
const STATUS_DETAILS: u8 = 1 << 5;
const STATUS_REASON: u8 = 0b1_1111;

/// Most bytes that a decision takes.
pub const ITEM_BYTES_MAX: usize = 1 + 4 * varint::BYTES_MAX;

/// Most decisions that fit in a REPLY of `frame_bytes_max` bytes whatever they are: a server announces no
/// larger `items_max`, or a CHECK could be asked whose answer cannot be sent.
pub const fn items_max(frame_bytes_max: usize) -> usize {
    frame_bytes_max.saturating_sub(varint::BYTES_MAX) / ITEM_BYTES_MAX
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal $text:literal,)*) => {
        /// Why the verdict is what it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[doc = $doc])* $name,)*
            /// A reason that this version does not know: act on the verdict.
            Other(u8),
        }

        impl Reason {
            /// All known reasons, by their code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code on the wire, below 32.
            pub fn to_wire(self) -> u8 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code & STATUS_REASON,
                }
            }

            /// The reason for a code.
            pub fn from_wire(code: u8) -> Self {
                match code {
                    $($code => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            /// The name in logs, metrics and `--json`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Other(_) => "other",
                }
            }
        }
    };
}

reasons! {
    /// Within the limits.
    Ok = 0 "ok",
    /// Over a limit now.
    Denied = 1 "denied",
    /// The cost is above what a limit can ever hold: it can never pass.
    CostOverLimit = 2 "cost_over_limit",
    /// The alias names no policy.
    UnknownPolicy = 3 "unknown_policy",
    /// The key is empty or too long.
    BadKey = 4 "bad_key",
    /// The cost is 0 where it must not be.
    BadCost = 5 "bad_cost",
    /// Too much was waiting. Not executed.
    Overload = 6 "overload",
    /// The store could not be reached. Not executed.
    Unavailable = 7 "unavailable",
    /// The store was asked and did not answer. It may have been executed.
    Ambiguous = 8 "ambiguous",
    /// The deadline passed first. Not executed.
    Deadline = 9 "deadline",
    /// The caller may not do this.
    Forbidden = 10 "forbidden",
    /// The embedded store has no room for a new key.
    StoreFull = 11 "store_full",
    /// Over a limit, as the server remembers.
    DeniedCached = 12 "denied_cached",
    /// Passed on tokens that the server holds ahead.
    Leased = 13 "leased",
    /// A part of the cost was granted.
    Partial = 14 "partial",
    /// The operation is not known.
    BadOperation = 15 "bad_operation",
    /// Would have passed alone; an item that it is linked with did not.
    Linked = 16 "linked",
    /// Over a limit that is not enforced for this key: it passes.
    Shadow = 17 "shadow",
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyItem {
    /// Whether to let it pass.
    pub allow: bool,
    /// Whether it was not decided by the authoritative store.
    pub degraded: bool,
    /// Why.
    pub reason: Reason,
    /// What was granted, where the reason is [`Reason::Partial`]; 0 otherwise.
    pub granted: u64,
    /// Where they were wanted and are known.
    pub details: Option<Details>,
}

/// What a client may want to know beyond the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Cost that would pass now.
    pub remaining: u64,
    /// Microseconds until the limits are as if never used. On the wire rounded up to 1,024.
    pub reset_after_us: u64,
    /// Microseconds until it would pass, at least 1; `None` where it passes now or can never pass.
    pub retry_after_us: Option<u64>,
    /// Index in the policy of the limit that denied, else of the one with the least remaining; 0..=3.
    pub limit_index: u8,
}

/// Appends the number of decisions that follow.
pub fn put_count(out: &mut impl BufMut, count: usize) {
    varint::put(out, count as u64);
}

impl ReplyItem {
    /// Appends the wire form.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(
            self.reason.to_wire()
                | if self.allow { STATUS_ALLOW } else { 0 }
                | if self.degraded { STATUS_DEGRADED } else { 0 }
                | if self.details.is_some() { STATUS_DETAILS } else { 0 },
        );
        if self.reason == Reason::Partial {
            varint::put(out, self.granted);
        }
        if let Some(details) = &self.details {
            varint::put(out, details.remaining);
            let reset = details.reset_after_us.min(varint::VALUE_MAX).div_ceil(RESET_UNIT_US);
            varint::put(out, reset * LIMITS_MAX as u64 + u64::from(details.limit_index & 3));
            if !self.allow {
                varint::put(out, details.retry_after_us.map_or(0, |retry_us| retry_us.max(1)));
            }
        }
    }

    /// Takes a decision from the front of `input`.
    ///
    /// # Errors
    /// The rule that the bytes break.
    #[inline(always)]
    pub fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let status = varint::take_u8(input)?;
        let allow = status & STATUS_ALLOW != 0;
        let reason = Reason::from_wire(status & STATUS_REASON);
        let granted = if reason == Reason::Partial { varint::get(input)? } else { 0 };
        let details = if status & STATUS_DETAILS != 0 { Some(Details::take(input, allow)?) } else { None };
        Ok(Self { allow, degraded: status & STATUS_DEGRADED != 0, reason, granted, details })
    }
}

impl Details {
    #[inline(always)]
    fn take(input: &mut &[u8], allow: bool) -> Result<Self, DecodeError> {
        let remaining = varint::get(input)?;
        let reset = varint::get(input)?;
        // A `vi` is below 2^53, so that the product is below 2^61.
        let reset_after_us = (reset / LIMITS_MAX as u64 * RESET_UNIT_US).min(varint::VALUE_MAX);
        let retry = if allow { 0 } else { varint::get(input)? };
        Ok(Self {
            remaining,
            reset_after_us,
            retry_after_us: (retry > 0).then_some(retry),
            limit_index: (reset % LIMITS_MAX as u64) as u8,
        })
    }
}

/// Takes the number of decisions, which must be `expected`: a client knows how many it asked for.
///
/// # Errors
/// [`DecodeError::ItemCountMismatch`] where it is another.
pub fn take_count(input: &mut &[u8], expected: usize) -> Result<(), DecodeError> {
    let count = varint::get(input)?;
    if count == expected as u64 { Ok(()) } else { Err(DecodeError::ItemCountMismatch { count, expected }) }
}

/// Reads a payload of `expected` decisions.
///
/// # Errors
/// The rule that the payload breaks.
pub fn decode(payload: &Bytes, expected: usize) -> Result<Vec<ReplyItem>, DecodeError> {
    let mut input = &payload[..];
    take_count(&mut input, expected)?;
    // A decision has at least one byte, so that room is made for no more of them than bytes have come.
    let mut items = Vec::with_capacity(expected.min(input.len()));
    for _ in 0..expected {
        items.push(ReplyItem::take(&mut input)?);
    }
    finish(input)?;
    Ok(items)
}
