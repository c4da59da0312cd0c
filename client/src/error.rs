//! What can go wrong, for the person who has to act on it.

use std::{fmt, sync::Arc, time::Duration};

use tollgate_protocol::{
    error::{DecodeError, ErrorFrame},
    frame::FrameType,
    limits::{DEFINITIONS_MAX, KEY_BYTES_MAX, LINKED_MAX},
};

/// Why a request has no decision. A denial is not an error, see [`Decision`](crate::Decision).
///
/// The client invents no verdict: whether to let it pass without a decision is the caller's to say, for
/// instance `result.map_or(true, |decision| decision.allowed)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The key is empty or too long.
    #[error(
        "the key has {key_bytes} bytes, 1 to {KEY_BYTES_MAX} are allowed: give a key, and hash one that is longer"
    )]
    BadKey {
        /// Length of the key.
        key_bytes: usize,
    },
    /// The cost is above 2^53 - 1.
    #[error("the cost {cost} is above 2^53 - 1: use a coarser unit of cost")]
    BadCost {
        /// The cost.
        cost: u64,
    },
    /// The cost is 0 where something must be charged or given back.
    #[error("the cost is 0: refund, force, take_up_to and linked checks need at least 1")]
    ZeroCost,
    /// A link does not join two checks of one key.
    #[error("a linked request must be a check, and the request after it a check of the same key")]
    BadLink,
    /// Too many requests are linked.
    #[error(
        "{requests} requests are linked, at most {LINKED_MAX} may be, and no more than the server takes in a \
         frame: link fewer"
    )]
    LinkTooLong {
        /// How many are linked.
        requests: usize,
    },
    /// The policy was made by another client.
    #[error("the policy `{policy}` was made by another client: get it from the client that checks it")]
    ForeignPolicy {
        /// Name or limits.
        policy: Arc<str>,
    },
    /// The server does not know the named policy (any more).
    #[error("the server {server} does not know the policy `{policy}`: add it to that server's configuration")]
    UnknownPolicy {
        /// Name or limits.
        policy: Arc<str>,
        /// The server.
        server: Arc<str>,
    },
    /// The server refused the inline policy.
    #[error("the server {server} refuses the policy `{policy}`: {reason}")]
    PolicyRefused {
        /// The limits.
        policy: Arc<str>,
        /// The server.
        server: Arc<str>,
        /// Why, in the server's words.
        reason: Arc<str>,
    },
    /// Too many requests wait to be sent.
    #[error(
        "{waiting} requests wait to be sent to {server} already: it is slower than they come; call less often, \
         or add servers"
    )]
    Overload {
        /// Requests that wait.
        waiting: usize,
        /// The server.
        server: Arc<str>,
    },
    /// The deadline passed before the answer came.
    #[error("no answer from {server} in time: {}", deadline_advice(*.sent))]
    Deadline {
        /// The server that was asked.
        server: Arc<str>,
        /// Whether it was sent, so that it may have been executed.
        sent: bool,
    },
    /// The connection broke after the request was sent.
    #[error(
        "the connection to {server} broke before the answer came ({reason}): the request may have been \
         executed; take the cost as charged, or peek to find out"
    )]
    Ambiguous {
        /// The server that was asked.
        server: Arc<str>,
        /// Why the connection broke.
        reason: Arc<str>,
    },
    /// No server could be reached before the deadline.
    #[error("no server could be reached in time: {}", Attempts(.attempts))]
    Unreachable {
        /// Each server, and why it could not be reached.
        attempts: Arc<[Attempt]>,
    },
}

impl CheckError {
    /// Whether the request may have been executed, so that sending it again might charge it twice. Everything
    /// else was provably not executed.
    pub fn ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous { .. } | Self::Deadline { sent: true, .. })
    }
}

fn deadline_advice(sent: bool) -> &'static str {
    if sent {
        "the request may have been executed; take the cost as charged, or raise the deadline"
    } else {
        "it was not sent, as earlier requests were still unanswered; call less often, or raise the deadline"
    }
}

/// What became of the last attempt to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The server's address, as given.
    pub server: Arc<str>,
    /// Why it could not be reached.
    pub reason: Arc<str>,
}

struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Attempt { server, reason }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{server}: {reason}")?;
        }
        Ok(())
    }
}

/// Why a client could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server is named.
    #[error("no server is named: give at least one address, such as 127.0.0.1:7420")]
    NoServers,
    /// A server is named twice.
    #[error("the server {server} is named twice: name each once")]
    Twice {
        /// Its address.
        server: String,
    },
    /// The deadline is out of range.
    #[error("a deadline of {deadline:?}: it must be from 1 ms to 1 h")]
    BadDeadline {
        /// The deadline.
        deadline: Duration,
    },
    /// No server could be reached.
    #[error("no server could be reached: {}; is `tollgate serve` running there?", Attempts(.attempts))]
    Unreachable {
        /// Each server, and why it could not be reached.
        attempts: Arc<[Attempt]>,
    },
}

/// A name that no server has announced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no server knows the policy `{name}`; known are: {}", names(.known))]
#[non_exhaustive]
pub struct UnknownPolicyError {
    /// The name.
    pub name: String,
    /// The names that are known, in order.
    pub known: Vec<String>,
}

fn names(known: &[String]) -> String {
    if known.is_empty() { "none".into() } else { known.join(", ") }
}

/// More inline policies than a connection can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{limits}` would be inline policy number {}, {DEFINITIONS_MAX} different ones are allowed for a client: \
     name the policies in the server's configuration",
    DEFINITIONS_MAX + 1
)]
#[non_exhaustive]
pub struct DefineError {
    /// The limits that were refused.
    pub limits: String,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("its bytes break the protocol: {0}; is it a Tollgate server?")]
    Decode(#[from] DecodeError),
    #[error("it sent an unexpected {kind:?} frame of id {id}")]
    Unexpected { kind: FrameType, id: u32 },
    #[error("{} ({:?})", .0.text, .0.code)]
    Server(ErrorFrame),
    #[error("the server is going away")]
    Leaving,
    #[error("it uses features that were not offered: {0:#x}")]
    Features(u64),
    #[error("nothing came from it for {0:?}")]
    Silent(Duration),
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    #[error("the client's task for this connection ended")]
    TaskEnded,
}
