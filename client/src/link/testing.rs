//! What the tests and the models of a link begin with.

use std::sync::Arc;

use tollgate_protocol::hello::HelloOk;

use super::Link;
use crate::policy::{PolicyRef, Registry};

pub(super) fn policy() -> PolicyRef {
    let limit: tollgate_protocol::limit::Limit = "token-bucket:1/1s".parse().unwrap();
    Arc::new(Registry::new(1)).inline(limit.into()).unwrap()
}

pub(super) fn link() -> Arc<Link> {
    let hello = HelloOk {
        features: 0,
        frame_bytes_max: 4_096,
        items_max: 10,
        inflight_max: 1,
        idle_ms: 0,
        boot_id: 1,
        policies: Vec::new(),
    };
    Arc::new(Link::new(&hello))
}
