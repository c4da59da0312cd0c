//! Extensible fields: `tag u8, length vi, value`. An unknown odd tag is skipped, an unknown even one is an error.

use bytes::BufMut;

use crate::{error::DecodeError, varint};

/// Appends a field.
pub fn put(out: &mut impl BufMut, tag: u8, value: &[u8]) {
    out.put_u8(tag);
    varint::put(out, value.len() as u64);
    out.put_slice(value);
}

/// Appends a field whose value is one integer.
pub fn put_vi(out: &mut impl BufMut, tag: u8, value: u64) {
    out.put_u8(tag);
    varint::put(out, varint::len(value) as u64);
    varint::put(out, value);
}

/// Takes the next field, or `None` at the end.
///
/// # Errors
/// [`DecodeError::Truncated`] and the errors of an integer.
pub fn next<'a>(input: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, DecodeError> {
    if input.is_empty() {
        return Ok(None);
    }
    let tag = varint::take_u8(input)?;
    Ok(Some((tag, varint::get_rest(input)?)))
}

/// The answer to a tag that is not known: skip it where it is odd.
///
/// # Errors
/// [`DecodeError::UnknownField`] where it is even.
pub fn skip_unknown(tag: u8) -> Result<(), DecodeError> {
    if tag % 2 == 1 { Ok(()) } else { Err(DecodeError::UnknownField(tag)) }
}
