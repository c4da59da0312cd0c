//! What tests start: real servers and a real Redis, on free ports of the loopback, gone when the test is.

mod cluster;
mod http;
mod process;
mod redis_server;
pub(crate) mod server;
pub(crate) mod tollgate;
mod wire;

use std::{
    net::{Ipv4Addr, TcpListener},
    thread::sleep,
    time::{Duration, Instant},
};

pub(crate) use cluster::{Cluster, Shape};
pub(crate) use http::http_get;
pub(crate) use process::Process;
pub(crate) use redis_server::{Login, RedisServer, Security, Tls};
pub(crate) use server::{Server, Setup};
pub(crate) use wire::Wire;

/// Longest wait for something that is certain to happen: it bounds a failure, and is no part of a success.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited for {PATIENCE:?} in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Waits until `condition` gives something.
pub(crate) async fn eventually_some<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < end, "waited for {PATIENCE:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A port that nobody listens on. It is below those that the system gives to outgoing connections, so that it
/// stays free while a server that had it starts anew.
fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(12_000..32_000))
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("the loopback has a free port")
}
