//! Accepts connections, and refuses those above the bound.

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tollgate_protocol::{
    error::{ErrorCode, ErrorFrame},
    frame::{FrameFormat, FrameType},
};
use tracing::Instrument;

use super::{connection, drain::Drain, linger::linger, terms::Terms};
use crate::store::Store;

/// Pause after `accept` failed for want of something (descriptors, memory) that only time can bring.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Refused clients that are told so at a time. More than these are closed without a word.
const REFUSALS_MAX: usize = 64;

/// Accepts connections and starts a task for each.
#[derive(Debug)]
pub(crate) struct Listener {
    terms: Arc<Terms>,
    store: Arc<Store>,
    connections_max: usize,
    connections: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

impl Listener {
    pub(crate) fn new(terms: Arc<Terms>, store: Arc<Store>, connections_max: usize) -> Self {
        let connections_max = connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            terms,
            store,
            connections_max,
            connections: Arc::new(Semaphore::new(connections_max)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        }
    }

    /// Accepts until it is dropped.
    pub(crate) async fn run(&self, socket: &TcpListener, drain: &Drain) -> Infallible {
        loop {
            match socket.accept().await {
                Ok((stream, peer)) => self.start(stream, peer, drain),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!("cannot accept connections for now: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, drain: &Drain) {
        let span = tracing::info_span!("connection", %peer, client = tracing::field::Empty);
        let metrics = &self.terms.metrics;
        metrics.connections_total.inc();
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            if self.terms.pace.is_due() {
                span.in_scope(|| tracing::warn!("refused: {} connections are open", self.connections_max));
            }
            self.refuse(stream, drain);
            return;
        };
        let open = Open::new(metrics.connections.clone());
        let (terms, store, stage) = (Arc::clone(&self.terms), Arc::clone(&self.store), drain.stage());
        let serve = async move {
            let _held = (permit, open);
            tracing::debug!("opened");
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("TCP_NODELAY cannot be set: {error}");
            }
            let (reader, writer) = stream.into_split();
            match connection::serve(terms, store, reader, writer, stage).await {
                Ok(()) => tracing::debug!("closed"),
                Err(lost) => tracing::debug!("lost: {lost}"),
            }
        };
        drain.tasks.spawn(serve.instrument(span));
    }

    fn refuse(&self, mut stream: TcpStream, drain: &Drain) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let text = format!("this server is open to {} connections at a time", self.connections_max);
        let frame = ErrorFrame { code: ErrorCode::TooManyConnections, offending_id: 0, text };
        let mut output = BytesMut::new();
        FrameFormat::SERVER_BEFORE_HELLO.encode(&mut output, FrameType::Error, 0, |out| frame.encode(out));
        drain.tasks.spawn(async move {
            let _held = permit;
            // An empty socket takes a frame this small at once, or is gone.
            if stream.write_all(&output).await.is_ok() {
                let (mut reader, mut writer) = stream.split();
                linger(&mut reader, &mut writer).await;
            }
        });
    }
}

/// Whether `accept` failed for one connection, which the next one does not share.
fn is_of_one_connection(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Counts a connection as open for as long as it lives.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
