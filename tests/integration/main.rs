//! Integration tests: the promises that users rely on, from the arithmetic to a cluster that loses a node.
//!
//! They start what they need: servers, and `redis-server` from the path. To run them longer, set
//! `TOLLGATE_TEST_CHECKS` (checks that are compared with the model) and `TOLLGATE_TEST_NOISE_SECONDS` (how long
//! random bytes are thrown at a server).

mod admin;
mod agreement;
mod bench;
mod client;
mod cluster;
mod command;
mod conformance;
mod deny_cache;
mod footprint;
mod harness;
mod model;
mod properties;
mod redis_store;
mod reload;
mod shadow;
mod shutdown;
mod stale;
mod stores;
mod subject;
mod trace;
mod traps;
mod wire;
