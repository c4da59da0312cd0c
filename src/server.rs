//! The server: listeners and a store in, answers out, until the caller says that it is enough.

use std::{future::Future, io, sync::Arc, time::Duration};

use tokio::{net::TcpListener, time::timeout};
use tollgate_protocol::{
    limits::{FRAME_BYTES_DEFAULT, INFLIGHT_DEFAULT, ITEMS_DEFAULT},
    ring::RingSecret,
};

use crate::{
    admin::{self, Admin},
    metrics::Metrics,
    net::{drain::Drain, listener::Listener, terms::Terms},
    policy::{OnUnavailable, PolicySwitch},
    store::Store,
};

/// Longest time that a server waits for its store before it serves.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// Default of [`ServerConfig::connections_max`].
pub const CONNECTIONS_DEFAULT: usize = 10_000;

/// Default of [`ServerConfig::idle_ms`].
pub const IDLE_MS_DEFAULT: u64 = 300_000;

/// Bounds of the connections of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Most open connections; further clients are told so and closed.
    pub connections_max: usize,
    /// Most batches in flight on a connection, at least 1.
    pub inflight_max: u16,
    /// Largest payload of a frame, in bytes, within [`FRAME_BYTES_MIN`] and [`FRAME_BYTES_MAX`].
    ///
    /// [`FRAME_BYTES_MIN`]: tollgate_protocol::limits::FRAME_BYTES_MIN
    /// [`FRAME_BYTES_MAX`]: tollgate_protocol::limits::FRAME_BYTES_MAX
    pub frame_bytes_max: usize,
    /// Most checks in a frame, at least 1. Clients with smaller frames are offered fewer: all answers of a
    /// batch fit in one frame.
    pub items_max: usize,
    /// A connection on which nothing came for this long is closed, in milliseconds; 0: never.
    pub idle_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_DEFAULT,
            inflight_max: INFLIGHT_DEFAULT as u16,
            frame_bytes_max: FRAME_BYTES_DEFAULT,
            items_max: ITEMS_DEFAULT,
            idle_ms: IDLE_MS_DEFAULT,
        }
    }
}

/// A server that is ready to run.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    terms: Arc<Terms>,
    store: Arc<Store>,
}

impl Server {
    /// A server of `policies`, which can be replaced while it runs, and whose states `store` keeps. `secret` names the states of the policies that
    /// clients define; `on_unavailable` is their verdict where the store cannot answer.
    pub fn new(
        config: ServerConfig,
        store: Store,
        policies: PolicySwitch,
        secret: RingSecret,
        on_unavailable: OnUnavailable,
        metrics: Arc<Metrics>,
    ) -> Self {
        let terms = Arc::new(Terms::new(config, policies, secret, on_unavailable, metrics));
        Self { config, terms, store: Arc::new(store) }
    }

    /// The named policies, which can be replaced.
    pub fn policies(&self) -> &PolicySwitch {
        &self.terms.policies
    }

    /// Where everything is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.terms.metrics
    }

    /// Waits until the store can be reached, for a second at most: the first clients are not to be told that it
    /// cannot. A store that is down does not keep a server from starting.
    pub async fn warm_up(&self) {
        if timeout(WARM_UP_MAX, self.store.ready()).await.is_err() {
            tracing::warn!("the store cannot be reached yet; serving by the policies' verdicts until it can");
        }
    }

    /// Serves clients on `listener`, and health and metrics on `admin`, until `shutdown` is ready; then lets the
    /// clients go: they are told, what is in flight is finished, and after 10 s at the latest the rest is cut
    /// off.
    ///
    /// Dropping the future instead cuts off everything at once.
    ///
    /// # Errors
    /// Where a listener has no address.
    pub async fn run(
        self,
        listener: TcpListener,
        admin: Option<TcpListener>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let address = listener.local_addr()?;
        let drain = Drain::new();
        let router = admin::router(Admin {
            store: Arc::clone(&self.store),
            metrics: Arc::clone(&self.terms.metrics),
            stage: drain.stage(),
        });
        let admin = admin.map(|socket| admin::start(socket, router));
        tracing::info!(%address, "serving");
        let accept = Listener::new(self.terms, Arc::clone(&self.store), self.config.connections_max);
        tokio::select! {
            never = accept.run(&listener, &drain) => match never {},
            never = self.store.maintain() => match never {},
            () = shutdown => {}
        }
        drop(listener);
        tracing::info!(connections = drain.tasks.len(), "shutting down");
        drain.run().await;
        if let Some(admin) = admin {
            admin.stop().await;
        }
        tracing::info!("stopped");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
