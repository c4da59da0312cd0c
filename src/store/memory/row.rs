//! One state in bytes, with the key that it belongs to.
//!
//! ```text
//! 0  u64  id of the state
//! 8  u16  bytes of the key
//! 10 u8   kind                      as in `State::to_parts`
//! 11 u8   exponent of the quantum
//! 12 u56  four numbers
//! 40      the key, and zeros up to a multiple of 8 bytes
//! ```

use crate::limit::{State, StateId};

const KEY_LENGTH: usize = 8;
const KIND: usize = 10;
const EXPONENT: usize = 11;
const NUMBERS: usize = 12;
const NUMBER_BYTES: usize = 7;
const KEY: usize = 40;

/// Rows are a multiple of this long: rows of equal length share a table.
pub(super) const ROW_BYTES_STEP: usize = 8;

/// Bytes of a row with a key of `key_bytes`.
pub(super) const fn row_bytes(key_bytes: usize) -> usize {
    (KEY + key_bytes).next_multiple_of(ROW_BYTES_STEP)
}

/// Fills a row. `row` has [`row_bytes`] of the key, which has at most 1,024 bytes.
pub(super) fn write(row: &mut [u8], id: StateId, key: &[u8], state: State) {
    row[..KEY_LENGTH].copy_from_slice(&id.0.to_le_bytes());
    row[KEY_LENGTH..KIND].copy_from_slice(&(key.len() as u16).to_le_bytes());
    let (key_slot, padding) = row[KEY..].split_at_mut(key.len());
    key_slot.copy_from_slice(key);
    padding.fill(0);
    write_state(row, state);
}

/// Replaces the state of a row.
pub(super) fn write_state(row: &mut [u8], state: State) {
    let (kind, exponent, numbers) = state.to_parts();
    row[KIND] = kind;
    row[EXPONENT] = exponent;
    for (slot, number) in row[NUMBERS..KEY].chunks_exact_mut(NUMBER_BYTES).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes()[..NUMBER_BYTES]);
    }
}

/// Reads the lines of the cache that hold the state and the beginning of the key.
pub(super) fn touch(row: &[u8]) -> u8 {
    row[0] ^ row[row.len() - 1]
}

/// Whether it is the row of this state.
pub(super) fn belongs_to(row: &[u8], id: StateId, key: &[u8]) -> bool {
    self::id(row) == id && self::key(row) == key
}

/// The id of a row's state.
pub(super) fn id(row: &[u8]) -> StateId {
    StateId(u64::from_le_bytes(bytes_at(row, 0)))
}

/// The key of a row.
pub(super) fn key(row: &[u8]) -> &[u8] {
    &row[KEY..][..usize::from(u16::from_le_bytes(bytes_at(row, KEY_LENGTH)))]
}

/// The state of a row.
pub(super) fn state(row: &[u8]) -> Option<State> {
    let number = |index: usize| {
        // The eighth byte belongs to what follows: a key has at least one byte.
        let bytes = bytes_at(row, NUMBERS + index * NUMBER_BYTES);
        u64::from_le_bytes(bytes) & (u64::MAX >> 8)
    };
    State::from_parts(row[KIND], row[EXPONENT], [number(0), number(1), number(2), number(3)])
}

fn bytes_at<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&row[at..at + N]);
    bytes
}
