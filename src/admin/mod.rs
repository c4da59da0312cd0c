//! Health and metrics over HTTP, for whoever operates the server.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process serves |
//! | `/readyz` | 200 while clients are welcome; else 503 and one line that says why |
//! | `/metrics` | all metrics in the OpenMetrics text format |

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{metrics::Metrics, net::drain::Stage, store::Store};

/// The format that `prometheus-client` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Requests that are being answered when the server stops get this long.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What the answers are made of.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) store: Arc<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stage: watch::Receiver<Stage>,
}

/// The paths.
pub(crate) fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    match admin.not_ready() {
        None => (StatusCode::OK, "ready\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.to_text() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl Admin {
    /// Why no client should come here now.
    fn not_ready(&self) -> Option<&'static str> {
        if *self.stage.borrow() > Stage::Serving {
            return Some("the server is shutting down\n");
        }
        match &*self.store {
            Store::Redis(redis) if !redis.is_ready() => Some("Redis cannot be reached\n"),
            Store::Redis(_) | Store::Memory(_) => None,
        }
    }
}

/// A running HTTP server.
#[derive(Debug)]
pub(crate) struct AdminServer {
    stop: CancellationToken,
    task: AbortOnDropHandle<io::Result<()>>,
}

/// Starts to answer on `listener`.
pub(crate) fn start(listener: TcpListener, router: Router) -> AdminServer {
    let stop = CancellationToken::new();
    let serve = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let task = AbortOnDropHandle::new(tokio::spawn(serve.into_future()));
    AdminServer { stop, task }
}

impl AdminServer {
    /// Stops, after the requests that are being answered.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        match timeout(STOP_TIMEOUT, self.task).await {
            Ok(Ok(Ok(()))) | Err(_) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the admin listener failed: {error}"),
            Ok(Err(error)) => tracing::error!("the admin listener's task failed: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
