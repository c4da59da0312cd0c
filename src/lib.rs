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
//! | [`batch`] | the checks of a frame and the policies that they name |
//! | [`policy`] | limits made ready, named or inline |
//! | [`limit`] | the arithmetic: no store, no socket, no clock |
//! | [`store`] | where states are kept: memory or Redis |
//! | [`placement`] | key -> partition -> hash tag -> slot |
//! | [`clock`] | the embedded store's clock |
//! | [`metrics`] | what an operator can see |

pub mod batch;
pub mod clock;
pub mod limit;
pub mod metrics;
pub mod placement;
pub mod policy;
pub mod store;
