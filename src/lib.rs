//! Tollgate, a rate-limit server that batches at every hop.
//!
//! # Layout: the way of a check
//!
//! ```text
//! socket bytes -> frame -> batch -> policy lookup -> partition (ring) -> store
//!    memory: stripe -> limit arithmetic                         -> decisions -> frame -> socket
//!    redis : lane of the shard -> one script call a partition   -> decisions -> frame -> socket
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`config`] | the file, the environment and flags, checked |
//! | [`server`] | runs all of it until it is told to stop |
//! | [`net`] | sockets and sessions: frames in, batches out, decisions back |
//! | [`batch`] | the checks of a frame and the policies that they name |
//! | [`policy`] | limits made ready, named or inline |
//! | [`limit`] | the arithmetic: no store, no socket, no clock |
//! | [`store`] | where states are kept: memory or Redis |
//! | [`placement`] | key -> partition -> hash tag -> slot |
//! | [`clock`] | the embedded store's clock |
//! | [`metrics`] | what an operator can see |
//! | [`admin`] | health and metrics over HTTP |
//! | `sync` | locks and atomics, which loom replaces in its models |
//! | [`mod@bench`] | the load test |

pub mod admin;
pub mod batch;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod config;
pub mod limit;
pub mod metrics;
pub mod net;
mod pace;
pub mod placement;
pub mod policy;
pub mod server;
pub mod store;
mod sync;
