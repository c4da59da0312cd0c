//! Integration tests: the promises that users rely on, from the arithmetic to a cluster that loses a node.

mod agreement;
mod cluster;
mod conformance;
mod harness;
mod model;
mod properties;
mod redis_store;
mod stores;
mod subject;
mod trace;
