use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    io::{DuplexStream, ReadHalf, WriteHalf, duplex, split},
    task::JoinHandle,
    time::sleep,
};
use tollgate_protocol::{control::GoAway, error::ErrorCode, frame::FrameType, hello::Hello, reply::Reason};

// Time is paused in these tests: it goes on only while everybody waits.
use super::*;
use crate::{
    net::{
        drain::Drain,
        testing::{self, Client, check, ping},
    },
    server::ServerConfig,
};

/// Bytes that the socket holds in each direction.
const SOCKET_BYTES: usize = 64 * 1024;

struct Served {
    client: Client<DuplexStream>,
    drain: Drain,
    connection: JoinHandle<Result<(), Lost>>,
}

/// A connection that was just accepted.
fn accept(config: ServerConfig) -> Served {
    let (client, server) = duplex(SOCKET_BYTES);
    let (reader, writer) = split(server);
    serve_on(config, client, reader, writer)
}

fn serve_on(
    config: ServerConfig,
    client: DuplexStream,
    reader: ReadHalf<DuplexStream>,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) -> Served {
    let drain = Drain::new();
    let store = Arc::new(testing::store());
    let connection = tokio::spawn(serve(testing::terms(config), store, reader, writer, drain.stage()));
    Served { client: Client::new(client), drain, connection }
}

impl Served {
    async fn greet(&mut self) {
        self.client.send(&testing::hello(1, &Hello::default())).await;
        self.client.expect(FrameType::HelloOk, 1).await;
    }

    async fn go_away(&mut self) -> GoAway {
        GoAway::decode(&self.client.expect(FrameType::GoAway, 0).await).expect("GOAWAY")
    }

    /// How the connection ended, once the client is gone.
    async fn end(self) -> Result<(), Lost> {
        drop(self.client);
        self.connection.await.expect("no panic")
    }
}

async fn open(config: ServerConfig) -> Served {
    let mut served = accept(config);
    served.greet().await;
    served
}

#[tokio::test(start_paused = true)]
async fn checks_are_decided() {
    let mut served = open(ServerConfig::default()).await;
    for id in 2..12 {
        served.client.send(&check(id, "k")).await;
        assert_eq!(served.client.expect_reply(id, 1).await[0].reason, Reason::Ok);
    }
    served.client.send(&check(12, "k")).await;
    assert_eq!(served.client.expect_reply(12, 1).await[0].reason, Reason::Denied);
    served.end().await.expect("no loss");
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_many_reads_is_decided() {
    let mut served = open(ServerConfig::default()).await;
    let keys: Vec<String> = (0..4_096).map(|number| format!("a key of some length {number:030}")).collect();
    let items: Vec<(u64, &str)> = keys.iter().map(|key| (9, key.as_str())).collect();
    let payload = testing::checks(&items, true, None);
    let bytes = testing::frame(FrameType::Check, 2, |out| out.extend_from_slice(&payload));
    assert!(bytes.len() > 2 * SOCKET_BYTES);
    served.client.send(&bytes).await;
    let decisions = served.client.expect_reply(2, items.len()).await;
    assert!(decisions.iter().all(|decision| decision.reason == Reason::UnknownPolicy));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_much_to_ask_does_not_keep_the_others_waiting() {
    const FRAMES: u32 = 12;
    let mut busy = open(ServerConfig::default()).await;
    let mut other = open(ServerConfig::default()).await;
    let payload = testing::checks(&[(0, "hot"); 4_096], false, None);
    for id in 2..2 + FRAMES {
        let bytes = testing::frame(FrameType::Check, id, |out| out.extend_from_slice(&payload));
        busy.client.send(&bytes).await;
    }
    other.client.send(&check(2, "user:1")).await;
    other.client.expect_reply(2, 1).await;
    let answered = std::iter::from_fn(|| busy.client.next().now_or_never().flatten()).count();
    assert!(answered < FRAMES as usize / 2, "{answered} frames were answered first");
}

/// Counts writes.
struct Counting(WriteHalf<DuplexStream>, Arc<std::sync::atomic::AtomicUsize>);

impl AsyncWrite for Counting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn all_answers_to_one_read_are_one_write() {
    let (client, server) = duplex(SOCKET_BYTES);
    let (reader, writer) = split(server);
    let writes = Arc::default();
    let mut served = serve_on(ServerConfig::default(), client, reader, Counting(writer, Arc::clone(&writes)));
    served.greet().await;
    let before = writes.load(std::sync::atomic::Ordering::Relaxed);
    let bytes: Vec<u8> = (0..20).flat_map(|n| [check(2 + 2 * n, "k"), ping(3 + 2 * n)].concat()).collect();
    served.client.send(&bytes).await;
    for id in 2..42 {
        assert_eq!(served.client.next().await.expect("an answer").id, id);
    }
    assert_eq!(writes.load(std::sync::atomic::Ordering::Relaxed) - before, 1);
}

#[tokio::test(start_paused = true)]
async fn more_batches_than_the_credit_are_all_answered() {
    let mut served = open(ServerConfig { inflight_max: 2, ..ServerConfig::default() }).await;
    let bytes: Vec<u8> = (2..102).flat_map(|id| check(id, "k")).collect();
    served.client.send(&bytes).await;
    for id in 2..102 {
        served.client.expect_reply(id, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_told_and_closes() {
    let mut served = open(ServerConfig::default()).await;
    served.client.send(&[check(2, "k"), ping(2), check(3, "k")].concat()).await;
    served.client.expect_reply(2, 1).await;
    let error = served.client.expect_error().await;
    assert_eq!((error.code, error.offending_id), (ErrorCode::UnexpectedFrame, 2));
    served.end().await.expect("no loss");
}

/// Sends four bytes, one a second, and waits for the ERROR that the rest would have come too late.
async fn send_too_slowly(served: &mut Served, bytes: &[u8]) -> u32 {
    let started = Instant::now();
    for byte in &bytes[..4] {
        served.client.send(&[*byte]).await;
        sleep(Duration::from_secs(1)).await;
    }
    let error = served.client.expect_error().await;
    assert_eq!((error.code, started.elapsed().as_secs()), (ErrorCode::Timeout, 5), "{}", error.text);
    error.offending_id
}

#[tokio::test(start_paused = true)]
async fn hello_must_be_whole_in_time() {
    let mut served = accept(ServerConfig::default());
    send_too_slowly(&mut served, &testing::hello(1, &Hello::default())).await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_must_be_whole_in_time() {
    let mut served = open(ServerConfig::default()).await;
    sleep(Duration::from_secs(60)).await;
    let ping = ping(2);
    served.client.send(&ping[..8]).await;
    assert_eq!(send_too_slowly(&mut served, &ping[8..]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn each_frame_has_its_own_time() {
    let mut served = open(ServerConfig::default()).await;
    // The end of a frame and the start of the next come together, 4 s after each other.
    served.client.send(&ping(2)[..4]).await;
    for id in 2..10 {
        sleep(Duration::from_secs(4)).await;
        served.client.send(&[&ping(id)[4..], &ping(id + 1)[..4]].concat()).await;
        served.client.expect(FrameType::Pong, id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_by_go_away() {
    let started = Instant::now();
    let mut served = open(ServerConfig { idle_ms: 30_000, ..ServerConfig::default() }).await;
    sleep(Duration::from_secs(20)).await;
    served.client.send(&ping(7)).await;
    served.client.expect(FrameType::Pong, 7).await;
    let go_away = served.go_away().await;
    assert_eq!((go_away.reason, go_away.last_id), (GoAwayReason::Idle, 7));
    assert_eq!(started.elapsed().as_secs(), 50);
    served.client.expect_end().await;
    served.end().await.expect("no loss");
}

#[tokio::test(start_paused = true)]
async fn without_idle_ms_a_connection_stays_open() {
    let mut served = open(ServerConfig { idle_ms: 0, ..ServerConfig::default() }).await;
    sleep(Duration::from_secs(30 * 24 * 3_600)).await;
    served.client.send(&check(2, "k")).await;
    served.client.expect_reply(2, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_cut_off_and_costs_a_bounded_amount() {
    let mut served = open(ServerConfig { inflight_max: u16::MAX, ..ServerConfig::default() }).await;
    let started = Instant::now();
    let mut sent_bytes = 0;
    for id in 2.. {
        let ping = ping(id);
        if served.client.socket.write_all(&ping).await.is_err() {
            break;
        }
        sent_bytes += ping.len();
    }
    assert!(sent_bytes >= OUTPUT_BYTES_MAX, "{sent_bytes}");
    // An answer is as long as its PING: what was taken waits as output, as input, or in the sockets.
    assert!(sent_bytes <= OUTPUT_BYTES_MAX + 8 * SOCKET_BYTES, "{sent_bytes}");
    assert!(started.elapsed() >= WRITE_TIMEOUT);
    assert!(matches!(served.end().await, Err(Lost::WriteTimeout)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_writes_before_it_reads_is_answered_in_full() {
    let served = open(ServerConfig::default()).await;
    let (mut reader, mut writer) = split(served.client.socket);
    let count = 3 * OUTPUT_BYTES_MAX / ping(2).len();
    let write = tokio::spawn(async move {
        for id in (2..).take(count) {
            writer.write_all(&ping(id)).await.expect("open");
        }
        writer.shutdown().await.expect("open");
    });
    sleep(Duration::from_secs(4)).await;
    let mut answers = Vec::new();
    reader.read_to_end(&mut answers).await.expect("open");
    assert_eq!(answers.len(), count * ping(2).len());
    write.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_its_side_is_still_answered() {
    let mut served = open(ServerConfig::default()).await;
    served.client.send(&check(2, "k")).await;
    served.client.socket.shutdown().await.expect("open");
    served.client.expect_reply(2, 1).await;
    served.client.expect_end().await;
    served.end().await.expect("no loss");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_announced_and_then_names_the_last_frame() {
    let mut served = open(ServerConfig::default()).await;
    served.drain.tasks.spawn(std::future::pending::<()>());
    let drain = served.drain.run();
    let client = async {
        let first = GoAway::decode(&served.client.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
        assert_eq!(first.last_id, u32::MAX);
        served.client.send(&check(2, "k")).await;
        served.client.expect_reply(2, 1).await;
        let last = GoAway::decode(&served.client.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
        assert_eq!((last.last_id, last.reason), (2, GoAwayReason::Shutdown));
        served.client.send(&check(3, "k")).await;
        served.client.expect_end().await;
    };
    tokio::select! {
        () = drain => panic!("a task is left"),
        () = client => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_cuts_its_connections_off() {
    let mut served = open(ServerConfig::default()).await;
    drop(served.drain);
    served.client.expect_end().await;
    assert!(matches!(served.connection.await.expect("no panic"), Err(Lost::Cut)));
}
