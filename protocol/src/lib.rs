//! Wire format of Tollgate, version 1.
//!
//! This crate turns bytes into frames and frames into bytes. It performs no input or output and reads no
//! clock, which `#![no_std]` proves at compile time. `SPEC.md` beside this crate is the normative text;
//! the golden vectors in `tests/golden` pin it byte by byte.
//!
//! # Layout
//!
//! | module | subject |
//! |---|---|
//! | [`limits`] | every bound of the format, as a named constant |
//! | [`varint`] | the variable-length integer |
//! | [`tlv`] | extensible fields |
//! | [`frame`] | the frame around every message |
//! | [`hello`], [`define`], [`check`], [`reply`], [`control`] | the payloads, one file a subject |
//! | [`limit`], [`policy`] | limits and policies, on the wire and as text |
//! | [`error`] | what can be wrong with the bytes of a peer |
//! | `codec` (feature `codec`) | the frame as a `tokio_util` codec |
//! | `ring` (feature `ring`) | consistent hashing of keys to servers and partitions |
//!
//! # Example
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use tollgate_protocol::check::{CheckBatch, CheckEncoder, Item, Operation};
//!
//! let mut encoder = CheckEncoder::default();
//! encoder.push(&Item { operation: Operation::Check, alias: 0, cost: 1, key: b"user:1", linked: false });
//! let mut payload = BytesMut::new();
//! encoder.finish(&mut payload, true, None);
//!
//! let batch = CheckBatch::decode(payload.freeze(), 4_096)?;
//! assert_eq!(batch.key(&batch.items[0]), b"user:1");
//! # Ok::<(), tollgate_protocol::error::DecodeError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(feature = "codec")]
extern crate std;

pub mod check;
#[cfg(feature = "codec")]
pub mod codec;
pub mod control;
pub mod define;
pub mod error;
pub mod frame;
pub mod hello;
pub mod limit;
pub mod limits;
pub mod policy;
pub mod reply;
#[cfg(feature = "ring")]
pub mod ring;
mod text;
pub mod tlv;
pub mod varint;
