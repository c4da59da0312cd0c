//! Integration tests: the promises that users rely on, from the arithmetic to a cluster that loses a node.

mod agreement;
mod model;
mod properties;
mod subject;
mod trace;
