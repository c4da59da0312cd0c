//! What other implementations rely on: the golden vectors, the specification's tables, and what holds for every
//! input.

mod arbitrary;
mod decoders;
mod golden;
mod message;
mod round_trips;
mod specification;
mod streams;
mod vectors;

#[cfg(feature = "ring")]
mod ring;
