//! The client's side of the protocol, frame by frame and byte by byte.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tollgate_protocol::{
    check::{CheckEncoder, Item},
    define::{Define, Defined},
    error::ErrorFrame,
    frame::{Frame, FrameFormat, FrameType},
    hello::{Hello, HelloOk},
    policy::Limits,
    reply::{self, ReplyItem},
};

use super::PATIENCE;

/// A connection to a server.
pub(crate) struct Wire {
    socket: TcpStream,
    input: BytesMut,
    pub(crate) format: FrameFormat,
    last_id: u32,
}

impl Wire {
    /// A connection on which nothing was said.
    pub(crate) async fn open(server: SocketAddr) -> Self {
        let socket = TcpStream::connect(server).await.expect("the server listens");
        socket.set_nodelay(true).expect("a TCP socket");
        Self { socket, input: BytesMut::new(), format: FrameFormat::CLIENT_BEFORE_HELLO, last_id: 0 }
    }

    /// A connection that is greeted, and what the server said.
    pub(crate) async fn greet(server: SocketAddr) -> (Self, HelloOk) {
        let mut wire = Self::open(server).await;
        let id = wire.send(FrameType::Hello, |out| Hello::default().encode(out)).await;
        let hello_ok = HelloOk::decode(&wire.expect(FrameType::HelloOk, id).await).expect("HELLO_OK");
        (wire, hello_ok)
    }

    /// Sends bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.socket.write_all(bytes)).await.expect("in time").expect("open");
    }

    /// Sends bytes to a server that may have closed the connection.
    pub(crate) async fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        timeout(PATIENCE, self.socket.write_all(bytes)).await.expect("in time").is_ok()
    }

    /// Sends a frame under the next id.
    pub(crate) async fn send(&mut self, kind: FrameType, write: impl FnOnce(&mut BytesMut)) -> u32 {
        self.last_id += 1;
        let mut bytes = BytesMut::new();
        self.format.encode(&mut bytes, kind, self.last_id, write);
        self.send_bytes(&bytes).await;
        self.last_id
    }

    /// Sends a batch that wants details.
    pub(crate) async fn send_check(&mut self, items: &[Item<'_>]) -> u32 {
        let mut encoder = CheckEncoder::default();
        items.iter().for_each(|item| encoder.push(item));
        self.send(FrameType::Check, |out| encoder.finish(out, true, None)).await
    }

    /// Asks a batch and waits for its answer.
    pub(crate) async fn check(&mut self, items: &[Item<'_>]) -> Vec<ReplyItem> {
        let id = self.send_check(items).await;
        self.expect_reply(id, items.len()).await
    }

    /// Defines a policy.
    pub(crate) async fn define(&mut self, alias: u64, limits: Limits) -> Defined {
        let id = self.send(FrameType::Define, |out| Define { alias, limits }.encode(out)).await;
        Defined::decode(&self.expect(FrameType::Defined, id).await).expect("DEFINED")
    }

    /// The next frame; `None` where the server closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.format.decode(&mut self.input).expect("a frame of the server") {
                return Some(frame);
            }
            let read = timeout(PATIENCE, self.socket.read_buf(&mut self.input)).await.expect("in time");
            // A server that was killed resets the connection.
            if read.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The payload of the next frame, which must be of this type and id.
    pub(crate) async fn expect(&mut self, kind: FrameType, id: u32) -> Bytes {
        let frame = self.next().await.expect("a frame, not the end");
        assert_eq!((frame.kind, frame.id), (kind, id), "{frame:?}");
        frame.payload
    }

    pub(crate) async fn expect_reply(&mut self, id: u32, count: usize) -> Vec<ReplyItem> {
        reply::decode(&self.expect(FrameType::Reply, id).await, count).expect("decisions")
    }

    /// The ERROR that is the next and last frame.
    pub(crate) async fn expect_error(&mut self) -> ErrorFrame {
        let payload = self.expect(FrameType::Error, 0).await;
        assert_eq!(self.next().await, None, "ERROR is the last frame");
        ErrorFrame::decode(&payload).expect("ERROR")
    }

    /// Exactly the next bytes of the server.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.input.len() < count {
            let read = timeout(PATIENCE, self.socket.read_buf(&mut self.input)).await.expect("in time");
            assert!(read.expect("open") > 0, "the server closed the connection");
        }
        self.input.split_to(count).to_vec()
    }
}
