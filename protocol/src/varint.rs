//! `vi`: an unsigned LEB128 integer in its shortest form, at most 8 bytes, at most [`VALUE_MAX`]; and the bytes
//! of other fields.

use bytes::{Buf, BufMut};

use crate::error::DecodeError;

/// Largest value: 2^53 - 1, the largest whole number that a Lua or JavaScript number holds exactly.
pub const VALUE_MAX: u64 = (1 << 53) - 1;

/// Most bytes that a value takes.
pub const BYTES_MAX: usize = 8;

/// Bytes that [`put`] writes for `value`, 1..=8.
pub const fn len(value: u64) -> usize {
    if value > VALUE_MAX {
        return BYTES_MAX;
    }
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `value`. Values above [`VALUE_MAX`] are written as [`VALUE_MAX`]: no peer may see more.
pub fn put(out: &mut impl BufMut, value: u64) {
    let mut rest = value.min(VALUE_MAX);
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Takes a value from the front of `input`.
///
/// # Errors
/// [`DecodeError::Truncated`] where the bytes end within it, [`DecodeError::VarintNotShortest`] where a
/// shorter form exists, [`DecodeError::VarintTooLarge`] above [`VALUE_MAX`] or 8 bytes.
#[inline]
pub fn get(input: &mut &[u8]) -> Result<u64, DecodeError> {
    if let [first, ..] = **input
        && first < 0x80
    {
        input.advance(1);
        return Ok(u64::from(first));
    }
    get_long(input)
}

fn get_long(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for index in 0..BYTES_MAX {
        let byte = *input.get(index).ok_or(DecodeError::Truncated)?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            if byte == 0 && index > 0 {
                return Err(DecodeError::VarintNotShortest);
            }
            if value > VALUE_MAX {
                return Err(DecodeError::VarintTooLarge);
            }
            input.advance(index + 1);
            return Ok(value);
        }
    }
    Err(DecodeError::VarintTooLarge)
}

/// Takes a length of at most `max` and then that many bytes from the front of `input`.
///
/// # Errors
/// As [`get`], and [`DecodeError::FieldTooLong`] above `max`.
pub fn get_bytes<'a>(input: &mut &'a [u8], max: usize) -> Result<&'a [u8], DecodeError> {
    let length = get(input)?;
    if length > max as u64 {
        return Err(DecodeError::FieldTooLong { length, max });
    }
    take(input, length as usize)
}

/// Takes a length that only the end of `input` bounds, and then that many bytes.
pub(crate) fn get_rest<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(get(input)?).map_err(|_| DecodeError::Truncated)?;
    take(input, length)
}

/// Takes `count` bytes from the front of `input`.
///
/// # Errors
/// [`DecodeError::Truncated`] where there are fewer.
pub fn take<'a>(input: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let (head, rest) = input.split_at_checked(count).ok_or(DecodeError::Truncated)?;
    *input = rest;
    Ok(head)
}

/// Takes one byte from the front of `input`.
///
/// # Errors
/// [`DecodeError::Truncated`] where there is none.
#[inline]
pub fn take_u8(input: &mut &[u8]) -> Result<u8, DecodeError> {
    Ok(take_array::<1>(input)?[0])
}

/// Takes a little-endian u32 from the front of `input`.
pub(crate) fn take_u32(input: &mut &[u8]) -> Result<u32, DecodeError> {
    take_array(input).map(u32::from_le_bytes)
}

/// Takes `N` bytes from the front of `input`.
#[inline]
pub(crate) fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (head, rest) = input.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
    *input = rest;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn lengths_are_those_written() {
        for shift in 0..53 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let mut out = Vec::new();
                put(&mut out, value);
                assert_eq!(out.len(), len(value), "{value}");
                assert_eq!(get(&mut &out[..]), Ok(value));
            }
        }
    }

    #[test]
    fn values_that_no_peer_may_see_are_written_as_the_largest() {
        for value in [VALUE_MAX + 1, 1 << 60, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), len(value), "{value}");
            assert_eq!(get(&mut &out[..]), Ok(VALUE_MAX));
        }
    }
}
