//! Every bound of the format and of a connection. A value outside its bound is refused before anything is
//! allocated for it.

/// Protocol version that this crate speaks.
pub const VERSION: u8 = 1;

/// First bytes of every HELLO: a peer that speaks something else is told so at once.
pub const MAGIC: [u8; 4] = *b"TGAT";

/// Bytes of a frame's header: type, payload length, id.
pub const HEADER_BYTES: usize = 8;

/// Bytes of the CRC32C that follows the payload where it was negotiated.
pub const CHECKSUM_BYTES: usize = 4;

/// Largest payload that a client may send before HELLO_OK: a stranger can make the server hold no more.
pub const HELLO_BYTES_MAX: usize = 4 * 1024;

/// Default for the largest payload after HELLO_OK, and the largest HELLO_OK itself.
pub const FRAME_BYTES_DEFAULT: usize = 256 * 1024;

/// Largest payload length that the 24-bit field of the header can hold.
pub const FRAME_BYTES_MAX: usize = (1 << 24) - 1;

/// Smallest frame limit that may be negotiated: one check with the longest key fits with room to spare.
pub const FRAME_BYTES_MIN: usize = 4 * 1024;

/// Default for the largest number of checks in a frame.
pub const ITEMS_DEFAULT: usize = 4_096;

/// Default for the largest number of batches in flight on a connection.
pub const INFLIGHT_DEFAULT: usize = 64;

/// Most batches in flight that a server may allow.
pub const INFLIGHT_MAX: usize = 65_535;

/// Longest key in bytes. The shortest has one byte.
pub const KEY_BYTES_MAX: usize = 1_024;

/// Most limits in a policy.
pub const LIMITS_MAX: usize = 4;

/// Most checks that are linked with one another: they are decided in one step.
pub const LINKED_MAX: usize = 16;

/// Longest policy name in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Most named policies of a server: their table fits in one HELLO_OK of the default size.
pub const POLICIES_MAX: usize = 1_024;

/// Most inline policies that a connection may define.
pub const DEFINITIONS_MAX: usize = 4_096;

/// Longest text for a person in HELLO, DEFINED and ERROR, in bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// Longest period of a limit: 366 days, in microseconds.
pub const PERIOD_US_MAX: u64 = 366 * 24 * 3_600 * 1_000_000;

/// Unit of `reset_after` on the wire, in microseconds. Values are rounded up to it.
pub const RESET_UNIT_US: u64 = 1_024;

/// Time in which a client must send HELLO, from when it is connected, in milliseconds.
pub const HELLO_TIMEOUT_MS: u64 = 5_000;

/// Time in which a frame must be whole, from its first byte, in milliseconds: a peer that sends it byte by byte
/// gains nothing.
pub const FRAME_TIMEOUT_MS: u64 = 5_000;

/// Time in which a peer must take at least one byte of what is written to it, in milliseconds.
pub const WRITE_TIMEOUT_MS: u64 = 5_000;
