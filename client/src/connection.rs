//! One task that owns one socket.

use std::{pin::pin, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tollgate_protocol::{
    error::ErrorFrame,
    frame::{FrameFormat, FrameType},
    hello::{Hello, HelloOk},
};

use crate::{
    batcher::{HELLO_ID, INFLIGHT_WANTED},
    error::Broken,
    session::Session,
};

/// An attempt to connect, HELLO included, is given up after this time: enough for one lost packet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Free room in the read buffer before each read.
const READ_BYTES: usize = 64 * 1024;

const CLIENT_NAME: &str = concat!("tollgate-client/", env!("CARGO_PKG_VERSION"));

/// A socket whose HELLO was answered.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: TcpStream,
    /// What came after the answer.
    pub(crate) input: BytesMut,
    pub(crate) hello: HelloOk,
}

/// Connects to `host:port` and says HELLO.
pub(crate) async fn open(address: &str) -> Result<Opened, Broken> {
    let opened = timeout(CONNECT_TIMEOUT, shake_hands(address)).await;
    opened.unwrap_or(Err(Broken::ConnectTimeout(CONNECT_TIMEOUT)))
}

async fn shake_hands(address: &str) -> Result<Opened, Broken> {
    let format = FrameFormat::CLIENT_BEFORE_HELLO;
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&hello(format)).await?;
    let mut input = BytesMut::new();
    loop {
        if let Some(frame) = format.decode(&mut input)? {
            return match frame.kind {
                FrameType::HelloOk if frame.id == HELLO_ID => {
                    Ok(Opened { stream, input, hello: HelloOk::decode(&frame.payload)? })
                }
                FrameType::Error => Err(Broken::Server(ErrorFrame::decode(&frame.payload)?)),
                FrameType::GoAway => Err(Broken::Leaving),
                kind => Err(Broken::Unexpected { kind, id: frame.id }),
            };
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(Broken::Closed);
        }
    }
}

fn hello(format: FrameFormat) -> BytesMut {
    let hello = Hello {
        client_name: Some(CLIENT_NAME.into()),
        inflight_max: Some(INFLIGHT_WANTED as u64),
        ..Hello::default()
    };
    let mut out = BytesMut::new();
    format.encode(&mut out, FrameType::Hello, HELLO_ID, |out| hello.encode(out));
    out
}

/// Moves bytes and time between the socket and its session, until either is done.
pub(crate) async fn run(mut stream: TcpStream, mut session: Session) {
    match exchange(&mut stream, &mut session).await {
        Ok(()) => session.end(&Broken::Closed),
        Err(broken) => session.end(&broken),
    }
}

async fn exchange(stream: &mut TcpStream, session: &mut Session) -> Result<(), Broken> {
    let (mut reader, mut writer) = stream.split();
    let mut timer = pin!(sleep_until(Instant::now()));
    loop {
        let Some(wake_at) = session.turn(Instant::now().into_std())? else { return Ok(()) };
        if !session.rest(wake_at) {
            continue;
        }
        let wake_at = Instant::from_std(wake_at);
        if wake_at < timer.deadline() || timer.is_elapsed() {
            timer.as_mut().reset(wake_at);
        }
        session.input.reserve(READ_BYTES);
        tokio::select! {
            biased;
            written = writer.write_buf(&mut session.out), if !session.out.is_empty() => {
                session.written(written?)?;
            }
            read = reader.read_buf(&mut session.input) => session.heard(read?, Instant::now().into_std())?,
            // All callers that can run do so before the frame is closed, and share it. Without this the task runs
            // right after the first of them, and sends its request alone.
            () = session.link.called() => tokio::task::yield_now().await,
            () = &mut timer => {}
        }
    }
}
