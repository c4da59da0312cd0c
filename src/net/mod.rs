//! The network side: sockets, frames, and what becomes of a connection.
//!
//! ```text
//! listener -> connection (one task a socket) -> session (frames in, batches out) -> store
//!                                  ^ drain (tells all connections that the server leaves)
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `listener` | accepts connections, refuses those above the bound |
//! | `connection` | owns one socket: when to read, to write, to give up |
//! | `session` | the rules of the protocol: no socket, no clock |
//! | `shadow` | policies that are not enforced: what they deny passes |
//! | `terms` | what a server offers to its clients, and what comes of a HELLO |
//! | `violation` | what a client can do wrong |
//! | `tally` | decisions counted by policy and reason |
//! | `input` | a read buffer that grows with what arrives |
//! | `linger` | closes a socket so that its peer still reads the last word |
//! | `timeouts` | when a connection has waited for too long |
//! | `drain` | the stages of a shutdown |

pub(crate) mod connection;
pub(crate) mod drain;
mod input;
mod linger;
pub(crate) mod listener;
mod session;
mod shadow;
mod tally;
pub(crate) mod terms;
#[cfg(test)]
pub(crate) mod testing;
mod timeouts;
mod violation;
