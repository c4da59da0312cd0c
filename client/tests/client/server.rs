//! A scripted server: it says nothing by itself.

use std::{future::Future, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tollgate_client::{Builder, Client, Limit, Reason};
use tollgate_protocol::{
    check::CheckBatch,
    control::{GoAway, GoAwayReason},
    define::{Define, Defined},
    error::{ErrorCode, ErrorFrame},
    frame::{Frame, FrameFormat, FrameType},
    hello::{Hello, HelloOk},
    policy::NamedPolicy,
    reply::{self, Details, ReplyItem},
};

/// Nothing that a test waits for takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(event: F) -> F::Output {
    timeout(PATIENCE, event).await.expect("this never happened")
}

/// A listener; each connection is accepted by hand.
pub(crate) struct Server {
    listener: TcpListener,
    hello: HelloOk,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0").await
    }

    pub(crate) async fn start_at(address: &str) -> Self {
        Self { listener: TcpListener::bind(address).await.unwrap(), hello: hello_ok() }
    }

    /// A server whose HELLO_OK is changed.
    pub(crate) async fn start_with(change: impl FnOnce(&mut HelloOk)) -> Self {
        let mut server = Self::start().await;
        change(&mut server.hello);
        server
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Accepts a connection and answers its HELLO.
    pub(crate) async fn accept(&self) -> Connection {
        soon(self.accept_whenever()).await
    }

    /// As [`Server::accept`], but waits for as long as it takes.
    pub(crate) async fn accept_whenever(&self) -> Connection {
        let mut connection = self.accept_silent().await;
        let frame = connection.frame().await;
        assert_eq!(frame.kind, FrameType::Hello);
        Hello::decode(&frame.payload).unwrap();
        connection.send(FrameType::HelloOk, frame.id, |out| self.hello.encode(out)).await;
        connection
    }

    /// Accepts a connection and says nothing. Waits for as long as it takes.
    pub(crate) async fn accept_silent(&self) -> Connection {
        let (stream, _) = self.listener.accept().await.unwrap();
        let format = FrameFormat { payload_bytes_max: self.hello.frame_bytes_max as usize, checksum: false };
        Connection { stream, input: BytesMut::new(), format, hello: self.hello.clone() }
    }

    /// A client and the server's end of its connection.
    pub(crate) async fn connect(&self) -> (Client, Connection) {
        self.connect_with(|builder| builder).await
    }

    /// As [`Server::connect`], with options.
    pub(crate) async fn connect_with(
        &self,
        options: impl FnOnce(Builder) -> Builder,
    ) -> (Client, Connection) {
        let builder = options(Client::builder().servers([self.address()]).deadline(PATIENCE));
        let (client, connection) = tokio::join!(builder.connect(), self.accept());
        (client.unwrap(), connection)
    }
}

/// The policy `api` of [`hello_ok`].
pub(crate) fn api() -> NamedPolicy {
    NamedPolicy { name: "api".into(), alias: 0, version: 1, limits: limit("token-bucket:100/1m").into() }
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn hello_ok() -> HelloOk {
    HelloOk {
        features: 0,
        frame_bytes_max: 256 * 1024,
        items_max: 4_096,
        inflight_max: 64,
        idle_ms: 300_000,
        boot_id: 1,
        policies: vec![api()],
    }
}

/// A decision without details.
pub(crate) fn decided(allow: bool, reason: Reason) -> ReplyItem {
    ReplyItem { allow, degraded: false, reason, granted: 0, details: None }
}

/// An allowed decision that carries a number.
pub(crate) fn allowed(remaining: u64) -> ReplyItem {
    let details = Details { remaining, ..Details::default() };
    ReplyItem { details: Some(details), ..decided(true, Reason::Ok) }
}

/// The server's end of a connection.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BytesMut,
    format: FrameFormat,
    hello: HelloOk,
}

/// A CHECK frame.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) id: u32,
    pub(crate) batch: CheckBatch,
    pub(crate) payload_bytes: usize,
}

impl Checks {
    pub(crate) fn len(&self) -> usize {
        self.batch.items.len()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.batch.items.iter().map(|item| self.batch.key(item).to_vec());
        keys.map(|key| String::from_utf8(key).unwrap()).collect()
    }
}

impl Connection {
    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.format.decode(&mut self.input).unwrap() {
                return Some(frame);
            }
            if !matches!(soon(self.stream.read_buf(&mut self.input)).await, Ok(1..)) {
                return None;
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        self.next().await.expect("the client closed the connection")
    }

    /// The next frame, which is a CHECK.
    pub(crate) async fn checks(&mut self) -> Checks {
        let frame = self.frame().await;
        assert_eq!(frame.kind, FrameType::Check);
        let payload_bytes = frame.payload.len();
        let batch = CheckBatch::decode(frame.payload, self.hello.items_max as usize).unwrap();
        Checks { id: frame.id, batch, payload_bytes }
    }

    /// The next frame, which is a DEFINE.
    pub(crate) async fn define(&mut self) -> (u32, Define) {
        let frame = self.frame().await;
        assert_eq!(frame.kind, FrameType::Define);
        (frame.id, Define::decode(&frame.payload).unwrap())
    }

    pub(crate) async fn send(&mut self, kind: FrameType, id: u32, write: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        self.format.encode(&mut out, kind, id, write);
        self.send_bytes(&out).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    pub(crate) async fn reply(&mut self, id: u32, items: &[ReplyItem]) {
        self.send(FrameType::Reply, id, |out| {
            reply::put_count(out, items.len());
            items.iter().for_each(|item| item.encode(out));
        })
        .await;
    }

    /// Allows each check of a frame.
    pub(crate) async fn allow(&mut self, checks: &Checks) {
        self.reply(checks.id, &vec![decided(true, Reason::Ok); checks.len()]).await;
    }

    pub(crate) async fn defined(&mut self, id: u32, refused: Option<&str>) {
        let refused = refused.map(Into::into);
        self.send(FrameType::Defined, id, |out| Defined { refused }.encode(out)).await;
    }

    pub(crate) async fn go_away(&mut self, last_id: u32, reconnect_within: Duration) {
        let go_away = GoAway {
            last_id,
            reason: GoAwayReason::Shutdown,
            reconnect_within_ms: reconnect_within.as_millis() as u64,
        };
        self.send(FrameType::GoAway, 0, |out| go_away.encode(out)).await;
    }

    pub(crate) async fn error(&mut self, code: ErrorCode, text: &str) {
        let frame = ErrorFrame { code, offending_id: 0, text: text.into() };
        self.send(FrameType::Error, 0, |out| frame.encode(out)).await;
    }

    /// Waits until the client closes.
    pub(crate) async fn closed(&mut self) {
        let frame = self.next().await;
        assert_eq!(frame, None, "a frame instead of the end");
    }

    /// Answers every frame until the client closes; `remaining` makes that of a check from its key.
    pub(crate) async fn serve(mut self, remaining: impl Fn(&[u8]) -> u64) {
        while let Some(frame) = self.next().await {
            match frame.kind {
                FrameType::Check => {
                    let batch = CheckBatch::decode(frame.payload, self.hello.items_max as usize).unwrap();
                    let items: Vec<_> =
                        batch.items.iter().map(|item| allowed(remaining(batch.key(item)))).collect();
                    self.reply(frame.id, &items).await;
                }
                FrameType::Define => self.defined(frame.id, None).await,
                FrameType::Ping => {
                    self.send(FrameType::Pong, frame.id, |out| out.extend_from_slice(&frame.payload)).await;
                }
                kind => panic!("{kind:?} has no place here"),
            }
        }
    }
}
