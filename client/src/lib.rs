//! Async client of the Tollgate rate-limit server.
//!
//! Calls that wait at the same time share a round trip: an idle connection sends at once, and what comes while
//! answers are due gathers into the next frame. There is no timer to tune.
//!
//! ```no_run
//! use tollgate_client::Client;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("127.0.0.1:7420").await?;
//! let api = client.policy("api")?;
//! let decision = client.check(&api, "user:1", 1).await?;
//! println!("allowed: {}, remaining: {:?}", decision.allowed, decision.remaining);
//! # Ok(()) }
//! ```
//!
//! # Failures
//!
//! A denial is a [`Decision`]. A request that could not be decided is a [`CheckError`]; the client invents no
//! verdict. Say yourself what is to happen then:
//!
//! ```no_run
//! # use tollgate_client::{Client, PolicyRef};
//! # async fn example(client: Client, api: PolicyRef) {
//! let allowed = match client.check(&api, "user:1", 1).await {
//!     Ok(decision) => decision.allowed,
//!     Err(error) => {
//!         eprintln!("not decided, let it pass: {error}");
//!         true
//!     }
//! };
//! # }
//! ```
//!
//! What was provably not executed is sent again, on another connection where there is one, within the call's
//! deadline. What may have been executed never is, except peeks: see [`CheckError::ambiguous`].
//!
//! # Several servers
//!
//! Keys are spread over the servers of [`Builder::servers`] by a consistent-hash ring. While a server is down its
//! keys go to the others; it is tried again at least every 5 s, and gets them back when it is up. What a server
//! that is going away has not executed moves to another one.
//!
//! # Layout
//!
//! The way of a call, and the module of each step:
//!
//! | module | subject |
//! |---|---|
//! | `client`, `request`, `policy`, `decision`, `error` | what callers see |
//! | `call`, `many` | a call from its caller's side: route, wait, go elsewhere |
//! | `servers` | which servers are live, and which a key belongs to |
//! | `link` | what callers and a connection's task share: the queue, and the slots |
//! | `slots`, `ticket` | where an outcome is left, and how its caller waits for it |
//! | `waiting` | requests that are not sent yet |
//! | `batcher` | requests to frames, replies to outcomes; no socket, no clock |
//! | `table` | what stands for each policy on a connection |
//! | `pending` | batches in flight, and who waits for them |
//! | `session`, `keepalive` | what a connection's task does at each wake-up |
//! | `connection` | one task that owns one socket |
//! | `supervisor` | one task that keeps one server connected |
//! | `sync` | the lock of `link`, which loom replaces in its models |

mod batcher;
mod call;
mod client;
mod connection;
mod decision;
mod error;
mod keepalive;
mod link;
mod many;
mod pending;
mod policy;
mod request;
mod servers;
mod session;
mod slots;
mod supervisor;
mod sync;
mod table;
mod ticket;
mod waiting;

pub use tollgate_protocol::{
    limit::{Limit, ParseLimitError},
    policy::Limits,
    reply::Reason,
    ring::RingSecret,
};

pub use crate::{
    client::{Builder, Client, DEADLINE_DEFAULT},
    decision::Decision,
    error::{Attempt, CheckError, ConnectError, DefineError, UnknownPolicyError},
    policy::PolicyRef,
    request::Request,
};
