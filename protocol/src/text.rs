//! Texts for people: a length of at most [`TEXT_BYTES_MAX`], then UTF-8.

use alloc::string::String;

use bytes::BufMut;

use crate::{error::DecodeError, limits::TEXT_BYTES_MAX, varint};

/// Appends a text with its length. A longer text is cut.
pub(crate) fn put(out: &mut impl BufMut, text: &str) {
    let text = cut(text);
    varint::put(out, text.len() as u64);
    out.put_slice(text.as_bytes());
}

/// Takes a text with its length.
pub(crate) fn take(input: &mut &[u8]) -> Result<String, DecodeError> {
    decode(varint::get_bytes(input, TEXT_BYTES_MAX)?)
}

/// The text that is all of `bytes`, whose length was judged.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
    core::str::from_utf8(bytes).map(String::from).map_err(|_| DecodeError::NotUtf8)
}

/// As much of `text` as fits in [`TEXT_BYTES_MAX`] bytes, cut at a character's edge.
pub(crate) fn cut(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&index| text.is_char_boundary(index));
    // Every text has an edge at 0.
    &text[..end.unwrap_or(0)]
}
