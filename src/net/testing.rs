//! What the tests of this module share: a server's terms, and the client's side of the wire.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tollgate_protocol::{
    check::{CheckEncoder, Item, Operation},
    control::Ping,
    define::Define,
    error::ErrorFrame,
    frame::{Frame, FrameFormat, FrameType},
    hello::{Hello, HelloOk},
    limit::Limit,
    policy::Limits,
    reply::{self, ReplyItem},
    ring::RingSecret,
};

use super::terms::Terms;
use crate::{
    clock::Clock,
    metrics::Metrics,
    policy::{OnUnavailable, Policy, PolicySwitch, PolicyTable},
    server::ServerConfig,
    store::{
        Store,
        memory::{MemoryConfig, MemoryStore},
    },
};

/// Format of frames without a checksum, of any size.
pub(crate) const PLAIN: FrameFormat = FrameFormat::CLIENT_BEFORE_HELLO;

/// The bound of every wait. Nothing takes this long where nothing is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn limits(text: &str) -> Limits {
    text.parse::<Limit>().expect("a limit").into()
}

/// One named policy: `api`, with the alias 0, of which 10 pass at once.
pub(crate) fn policies(metrics: &Metrics) -> PolicySwitch {
    let (deny, secret) = (OnUnavailable::Deny, RingSecret::default());
    let api = Policy::named("api", limits("token-bucket:10/1h"), deny, &secret, metrics).expect("a policy");
    PolicySwitch::new(PolicyTable::new([("api".to_owned(), api)]))
}

pub(crate) fn terms(config: ServerConfig) -> Arc<Terms> {
    let metrics = Arc::new(Metrics::new());
    let policies = policies(&metrics);
    Arc::new(Terms::new(config, policies, RingSecret::default(), OnUnavailable::Deny, metrics))
}

/// A store whose time stands still.
pub(crate) fn store() -> Store {
    let config = MemoryConfig { bytes_max: 1 << 20, keys_max: 1_000 };
    let clock = Clock::Manual(Arc::new(AtomicU64::new(1_700_000_000_000_000)));
    Store::Memory(MemoryStore::new(config, clock, Arc::new(Metrics::new())))
}

/// A frame without a checksum.
pub(crate) fn frame(kind: FrameType, id: u32, write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut bytes = BytesMut::new();
    PLAIN.encode(&mut bytes, kind, id, write);
    bytes
}

pub(crate) fn hello(id: u32, hello: &Hello) -> BytesMut {
    frame(FrameType::Hello, id, |out| hello.encode(out))
}

pub(crate) fn ping(id: u32) -> BytesMut {
    frame(FrameType::Ping, id, |out| Ping(*b"12345678").encode(out))
}

pub(crate) fn define(id: u32, alias: u64, limit: &str) -> BytesMut {
    frame(FrameType::Define, id, |out| Define { alias, limits: limits(limit) }.encode(out))
}

/// A payload of checks of cost 1, each of a policy and a key.
pub(crate) fn checks(items: &[(u64, &str)], details: bool, deadline_us: Option<u64>) -> BytesMut {
    let mut encoder = CheckEncoder::default();
    for &(alias, key) in items {
        let key = key.as_bytes();
        encoder.push(&Item { operation: Operation::Check, alias, cost: 1, key, linked: false });
    }
    let mut payload = BytesMut::new();
    encoder.finish(&mut payload, details, deadline_us);
    payload
}

/// A CHECK of one key under `api`.
pub(crate) fn check(id: u32, key: &str) -> BytesMut {
    frame(FrameType::Check, id, |out| out.extend_from_slice(&checks(&[(0, key)], false, None)))
}

/// The frames that `bytes` are, whole.
pub(crate) fn frames(format: FrameFormat, bytes: &mut BytesMut) -> Vec<Frame> {
    let frames = std::iter::from_fn(|| format.decode(bytes).expect("frames of the server")).collect();
    assert!(bytes.is_empty(), "half a frame: {bytes:?}");
    frames
}

/// The one frame that `bytes` are: its type, id and payload.
pub(crate) fn only_frame(bytes: &mut BytesMut) -> (FrameType, u32, Bytes) {
    let mut frames = frames(PLAIN, bytes);
    let frame = frames.pop().expect("a frame");
    assert_eq!(frames, [], "one frame only");
    (frame.kind, frame.id, frame.payload)
}

/// A client's side of a connection.
pub(crate) struct Client<S> {
    pub(crate) socket: S,
    input: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, input: BytesMut::new() }
    }

    /// A client that said HELLO.
    pub(crate) async fn greeted(socket: S) -> Self {
        let mut client = Self::new(socket);
        client.send(&hello(1, &Hello::default())).await;
        let answer = client.expect(FrameType::HelloOk, 1).await;
        HelloOk::decode(&answer).expect("HELLO_OK");
        client
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.socket.write_all(bytes)).await.expect("in time").expect("open");
    }

    /// The next frame; `None` where the server closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = PLAIN.decode(&mut self.input).expect("a frame of the server") {
                return Some(frame);
            }
            let read = self.socket.read_buf(&mut self.input);
            if timeout(PATIENCE, read).await.expect("in time").expect("open") == 0 {
                assert!(self.input.is_empty(), "half a frame: {:?}", self.input);
                return None;
            }
        }
    }

    /// The payload of the next frame, which must be of this type and id.
    pub(crate) async fn expect(&mut self, kind: FrameType, id: u32) -> Bytes {
        let frame = self.next().await.expect("a frame, not the end");
        assert_eq!((frame.kind, frame.id), (kind, id));
        frame.payload
    }

    /// The decisions of the next frame, which must be the REPLY to `id`.
    pub(crate) async fn expect_reply(&mut self, id: u32, count: usize) -> Vec<ReplyItem> {
        reply::decode(&self.expect(FrameType::Reply, id).await, count).expect("decisions")
    }

    /// The ERROR that is the next and last frame.
    pub(crate) async fn expect_error(&mut self) -> ErrorFrame {
        let payload = self.expect(FrameType::Error, 0).await;
        self.expect_end().await;
        ErrorFrame::decode(&payload).expect("ERROR")
    }

    pub(crate) async fn expect_end(&mut self) {
        assert_eq!(self.next().await, None);
    }
}

/// The whole answer to a GET, head and body.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: tollgate\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("open");
    let mut answer = String::new();
    timeout(PATIENCE, socket.read_to_string(&mut answer)).await.expect("in time").expect("open");
    answer
}
