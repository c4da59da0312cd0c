//! CHECK: a batch of checks.
//!
//! ```text
//! u8  flags    bit 0 a deadline follows   bit 3 details are wanted   the others zero
//! vi  count
//! [vi deadline_us]
//! items: u8 ctl   bits 0-2 operation          bit 3 cost follows (else 1)
//!                 bit 4 alias follows (else that of the item before)
//!                 bit 5 key of the item before
//!                 bit 6 all or nothing with the next item (both check, same key)
//!                 bit 7 fields follow
//!        [vi alias] [vi cost] [vi length, key] [vi length, fields]
//! ```

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    error::{DecodeError, finish},
    limits::{FRAME_BYTES_MAX, LINKED_MAX},
    tlv, varint,
};

const FLAG_DEADLINE: u8 = 1 << 0;
const FLAG_DETAILS: u8 = 1 << 3;

const CTL_OPERATION: u8 = 0b111;
const CTL_COST: u8 = 1 << 3;
const CTL_ALIAS: u8 = 1 << 4;
const CTL_SAME_KEY: u8 = 1 << 5;
const CTL_LINKED: u8 = 1 << 6;
const CTL_FIELDS: u8 = 1 << 7;

/// What is asked of a key. `n` is the item's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// May `n` pass? Charges `n` where it may. Cost 0 charges nothing: a peek.
    Check,
    /// As check, and never charges.
    Peek,
    /// Gives `n` back, never above a full limit.
    Refund,
    /// Forgets what was charged. Its cost is ignored.
    Reset,
    /// Charges `n` although it is over the limit: for a cost that is known only afterwards.
    Force,
    /// Charges as much of `n` as may pass, and says how much that was.
    TakeUpTo,
    /// A code that this version does not know: 6 or 7.
    Unknown(u8),
}

impl Operation {
    fn to_wire(self) -> u8 {
        match self {
            Self::Check => 0,
            Self::Peek => 1,
            Self::Refund => 2,
            Self::Reset => 3,
            Self::Force => 4,
            Self::TakeUpTo => 5,
            Self::Unknown(code) => code & CTL_OPERATION,
        }
    }

    fn from_wire(code: u8) -> Self {
        match code {
            0 => Self::Check,
            1 => Self::Peek,
            2 => Self::Refund,
            3 => Self::Reset,
            4 => Self::Force,
            5 => Self::TakeUpTo,
            code => Self::Unknown(code),
        }
    }
}

/// A check as a client writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// What is asked.
    pub operation: Operation,
    /// Alias of the policy, from HELLO_OK or DEFINE.
    pub alias: u64,
    /// The cost, at most [`varint::VALUE_MAX`].
    pub cost: u64,
    /// The key, 1..=[`crate::limits::KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// All or nothing with the next item, which must be a check of the same key, as this one.
    pub linked: bool,
}

/// A check as a server reads it; its key is a slice of the batch's payload, see [`CheckBatch::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckItem {
    /// What is asked.
    pub operation: Operation,
    /// All or nothing with the next item.
    pub linked: bool,
    /// Alias of the policy; one that does not fit in 32 bits is `u32::MAX`, which names none.
    pub alias: u32,
    /// The cost.
    pub cost: u64,
    key_start: u32,
    key_bytes: u32,
}

/// A decoded CHECK.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckBatch {
    /// Whether the client wants `remaining`, `reset_after` and `retry_after`.
    pub details: bool,
    /// The client's budget from the arrival of the frame, in microseconds.
    pub deadline_us: Option<u64>,
    /// The checks. A decoded batch has at least one.
    pub items: Vec<CheckItem>,
    payload: Bytes,
}

impl CheckBatch {
    /// Reads a payload of 1..=`items_max` checks. Keys may be of any length here: whoever serves the items
    /// answers a bad key alone.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode(payload: Bytes, items_max: usize) -> Result<Self, DecodeError> {
        Self::decode_into(payload, items_max, Vec::new())
    }

    /// As [`CheckBatch::decode`], reusing the memory of `items`.
    ///
    /// # Errors
    /// The rule that the payload breaks.
    pub fn decode_into(
        payload: Bytes,
        items_max: usize,
        mut items: Vec<CheckItem>,
    ) -> Result<Self, DecodeError> {
        if payload.len() > FRAME_BYTES_MAX {
            return Err(DecodeError::FrameTooLarge { length: payload.len(), max: FRAME_BYTES_MAX });
        }
        let mut input = &payload[..];
        let flags = varint::take_u8(&mut input)?;
        let reserved = flags & !(FLAG_DEADLINE | FLAG_DETAILS);
        if reserved != 0 {
            return Err(DecodeError::ReservedFlags(reserved));
        }
        let count = varint::get(&mut input)?;
        if !(1..=items_max as u64).contains(&count) {
            return Err(DecodeError::BadItemCount { count, max: items_max });
        }
        let deadline_us = if flags & FLAG_DEADLINE != 0 { Some(varint::get(&mut input)?) } else { None };
        items.clear();
        // An item has at least one byte, so that room is made for no more items than bytes have come.
        items.reserve((count as usize).min(input.len()));
        let mut before = None;
        let mut group_items = 1;
        for _ in 0..count {
            let item = take_item(&mut input, payload.len(), before.as_ref())?;
            group_items = if item.linked { group_items + 1 } else { 1 };
            if group_items > LINKED_MAX {
                return Err(DecodeError::BadLink);
            }
            items.push(item);
            before = Some(item);
        }
        if before.is_some_and(|last| last.linked) {
            return Err(DecodeError::BadLink);
        }
        finish(input)?;
        Ok(Self { details: flags & FLAG_DETAILS != 0, deadline_us, items, payload })
    }

    /// The key of one of this batch's items.
    ///
    /// # Panics
    /// May panic where `item` is another batch's.
    pub fn key(&self, item: &CheckItem) -> &[u8] {
        &self.payload[item.key_start as usize..][..item.key_bytes as usize]
    }
}

fn take_item(
    input: &mut &[u8],
    payload_bytes: usize,
    before: Option<&CheckItem>,
) -> Result<CheckItem, DecodeError> {
    let ctl = varint::take_u8(input)?;
    let operation = Operation::from_wire(ctl & CTL_OPERATION);
    let alias = if ctl & CTL_ALIAS != 0 {
        u32::try_from(varint::get(input)?).unwrap_or(u32::MAX)
    } else {
        before.ok_or(DecodeError::NoPolicy)?.alias
    };
    let cost = if ctl & CTL_COST != 0 { varint::get(input)? } else { 1 };
    let (key_start, key_bytes) = if ctl & CTL_SAME_KEY != 0 {
        let before = before.ok_or(DecodeError::NoKeyBefore)?;
        (before.key_start, before.key_bytes)
    } else {
        let key = varint::get_rest(input)?;
        // `decode_into` refuses payloads above FRAME_BYTES_MAX, which is below 2^32.
        ((payload_bytes - input.len() - key.len()) as u32, key.len() as u32)
    };
    if ctl & CTL_FIELDS != 0 {
        let mut fields = varint::get_rest(input)?;
        while let Some((tag, _)) = tlv::next(&mut fields)? {
            tlv::skip_unknown(tag)?;
        }
    }
    let linked = ctl & CTL_LINKED != 0;
    let after_link = before.is_some_and(|before| before.linked);
    let is_check = operation == Operation::Check;
    if (linked && !is_check) || (after_link && (!is_check || ctl & CTL_SAME_KEY == 0)) {
        return Err(DecodeError::BadLink);
    }
    Ok(CheckItem { operation, linked, alias, cost, key_start, key_bytes })
}

/// Writes a CHECK item by item. Repeated policies and keys take no bytes.
#[derive(Debug, Default)]
pub struct CheckEncoder {
    items: BytesMut,
    count: u64,
    alias: Option<u64>,
    /// Where the last key stands in `items`.
    key: core::ops::Range<usize>,
}

/// Whether two keys are equal. Those that differ mostly do so at their end, and cost no comparison.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.last() == b.last() && a == b
}

/// Most bytes of a CHECK before its items.
const HEAD_BYTES_MAX: usize = 1 + 2 * varint::BYTES_MAX;

impl CheckEncoder {
    /// Most bytes that an item with a key of `key_bytes` takes.
    pub const fn item_bytes_max(key_bytes: usize) -> usize {
        1 + 3 * varint::BYTES_MAX + key_bytes
    }

    /// Appends an item. One that is `linked` must be followed by the item it is linked with.
    pub fn push(&mut self, item: &Item<'_>) {
        let same_key = self.count > 0 && is_same(&self.items[self.key.clone()], item.key);
        let new_alias = self.alias.replace(item.alias) != Some(item.alias);
        let ctl = item.operation.to_wire()
            | if item.cost != 1 { CTL_COST } else { 0 }
            | if new_alias { CTL_ALIAS } else { 0 }
            | if same_key { CTL_SAME_KEY } else { 0 }
            | if item.linked { CTL_LINKED } else { 0 };
        self.items.reserve(Self::item_bytes_max(item.key.len()));
        self.items.put_u8(ctl);
        if new_alias {
            varint::put(&mut self.items, item.alias);
        }
        if item.cost != 1 {
            varint::put(&mut self.items, item.cost);
        }
        if !same_key {
            varint::put(&mut self.items, item.key.len() as u64);
            let start = self.items.len();
            self.items.put_slice(item.key);
            self.key = start..self.items.len();
        }
        self.count += 1;
    }

    /// Items so far.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Upper bound of the payload so far, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        HEAD_BYTES_MAX + self.items.len()
    }

    /// Appends the payload to `out` and starts anew.
    pub fn finish(&mut self, out: &mut BytesMut, details: bool, deadline_us: Option<u64>) {
        let flags =
            if details { FLAG_DETAILS } else { 0 } | if deadline_us.is_some() { FLAG_DEADLINE } else { 0 };
        out.put_u8(flags);
        varint::put(out, self.count);
        if let Some(deadline_us) = deadline_us {
            varint::put(out, deadline_us);
        }
        out.put_slice(&self.items);
        self.items.clear();
        (self.count, self.alias, self.key) = (0, None, 0..0);
    }
}
