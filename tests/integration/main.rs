//! Integration tests: the promises that users rely on, from the arithmetic to a cluster that loses a node.

mod admin;
mod agreement;
mod client;
mod cluster;
mod command;
mod conformance;
mod footprint;
mod harness;
mod model;
mod properties;
mod redis_store;
mod shutdown;
mod stale;
mod stores;
mod subject;
mod trace;
mod traps;
mod wire;
