//! A server in this process, on a free port of the loopback, on threads of its own.

use std::{future, net::Ipv4Addr};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};

use super::BenchError;
use crate::server::Server;

/// A running server. It ends when this is dropped, which must be outside of other runtimes.
#[derive(Debug)]
pub struct Embedded {
    address: String,
    _runtime: Runtime,
}

impl Embedded {
    /// Starts the server that `build` makes, on `threads` threads, and waits until it has reached its store.
    ///
    /// # Errors
    /// Those of `build`, and where no thread or port is free.
    pub fn start<E: From<BenchError>>(
        threads: usize,
        build: impl FnOnce() -> Result<Server, E>,
    ) -> Result<Self, E> {
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name("server").enable_all().build();
        let runtime = runtime.map_err(BenchError::Start)?;
        let address = runtime.block_on(async {
            let server = build()?;
            server.warm_up().await;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(BenchError::Start)?;
            let address = listener.local_addr().map_err(BenchError::Start)?.to_string();
            tokio::spawn(server.run(listener, None, future::pending()));
            Ok::<_, E>(address)
        })?;
        Ok(Self { address, _runtime: runtime })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }
}
