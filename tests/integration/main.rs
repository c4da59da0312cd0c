//! Integration tests: the promises that users rely on, from the arithmetic to a cluster that loses a node.

mod agreement;
mod conformance;
mod harness;
mod model;
mod properties;
mod stale;
mod stores;
mod subject;
mod trace;
