//! One Redis server: a connection that is kept open, and what is known of its clock.

use std::{
    fmt::Display,
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisConnectionInfo,
    RedisError, TlsCertificates, Value, aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use super::{RedisConfig, RedisStoreError, script::Script};
use crate::pace::Pace;

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Delays between attempts to connect, doubled from the first to the last.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(20);
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(500);

/// How often an open connection is tried and its clock read.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// Commands that wait for the connection's writer.
const PIPELINE_BUFFER: usize = 1_024;

/// Host and port of a Redis server.
pub(super) type Address = (String, u16);

/// A Redis server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    client: Client,
    timeout: Duration,
    script: &'static Script,
    connection: Mutex<Option<Connection>>,
    /// Wakes the task that connects.
    broken: Notify,
    /// Upper bound of the server's clock minus [`Node::elapsed_us`], in microseconds.
    clock_offset_us: AtomicI64,
    /// By how much that may be too high: the time that the answer took.
    clock_error_us: AtomicU64,
    /// Calls that were given up since anything last came from it.
    unanswered: AtomicU32,
    /// When the first of them was sent, by [`Node::elapsed_us`].
    silent_since_us: AtomicU64,
    /// Of the lines that tell of failed calls.
    pace: Pace,
    started: Instant,
}

/// A connection and its number, so that the end of one is not taken for that of the next.
#[derive(Clone, Debug)]
struct Connection {
    number: u64,
    multiplexed: MultiplexedConnection,
}

/// Why a call was not answered.
#[derive(Debug)]
pub(super) enum CallError {
    /// It was not sent.
    NotSent,
    /// It was sent, and no answer came: it may have been executed.
    NoAnswer,
}

impl Node {
    /// A server and the task that keeps a connection to it, which ends with the guard. `on_change` is told when
    /// the connection came or went.
    pub(super) fn start(
        address: Address,
        config: &RedisConfig,
        script: &'static Script,
        on_change: Arc<Notify>,
    ) -> Result<(Arc<Self>, DropGuard), RedisStoreError> {
        let node = Arc::new(Self {
            client: open(&address, config)?,
            address,
            timeout: config.timeout,
            script,
            connection: Mutex::new(None),
            broken: Notify::new(),
            clock_offset_us: AtomicI64::new(0),
            clock_error_us: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
            silent_since_us: AtomicU64::new(0),
            pace: Pace::new(),
            started: Instant::now(),
        });
        let stop = CancellationToken::new();
        let task = Arc::clone(&node);
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(async move { task.keep_connected(on_change).await }),
        );
        Ok((node, stop.drop_guard()))
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.lock().is_some()
    }

    /// The instant `after` from now by this server's clock: never too early, late by a round trip at the most.
    pub(super) fn shard_time_us(&self, after: Duration) -> u64 {
        let offset_us = self.clock_offset_us.load(Ordering::Relaxed);
        (self.elapsed_us() + after.as_micros() as u64).saturating_add_signed(offset_us)
    }

    /// Learns the server's clock from an answer to a call that was sent at `sent`.
    pub(super) fn learn_clock(&self, sent: Instant, shard_now_us: u64) {
        let sent_us = (sent - self.started).as_micros() as u64;
        self.clock_offset_us.store(shard_now_us as i64 - sent_us as i64, Ordering::Relaxed);
        self.clock_error_us.store(sent.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// The earliest and the latest that this server's clock may show now, in microseconds.
    pub(super) fn shard_now_us(&self) -> (u64, u64) {
        let latest_us = self.shard_time_us(Duration::ZERO);
        (latest_us.saturating_sub(self.clock_error_us.load(Ordering::Relaxed)), latest_us)
    }

    /// Microseconds since this was started.
    fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Sends commands in one write and waits for all their answers until `deadline`.
    pub(super) async fn call(
        &self,
        pipeline: &Pipeline,
        count: usize,
        deadline: Instant,
    ) -> Result<Vec<Value>, CallError> {
        let connection = self.connection.lock().clone();
        let Some(Connection { number, mut multiplexed }) = connection else { return Err(CallError::NotSent) };
        match timeout_at(deadline, multiplexed.send_packed_commands(pipeline, 0, count)).await {
            Ok(Ok(values)) => {
                self.was_heard();
                Ok(values)
            }
            Ok(Err(error)) => {
                self.drop_connection(number, &error);
                Err(CallError::NoAnswer)
            }
            Err(_) => {
                self.was_not_heard(number);
                Err(CallError::NoAnswer)
            }
        }
    }

    /// Whether it answers: calls that were given up since it was last heard speak against it.
    pub(super) fn is_silent(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Tells of a call that failed, unless one was told of a moment ago: a fault of the server can fail every call.
    pub(super) fn tell_failed_call(&self, error: &RedisError, advice: &str) {
        if self.pace.is_due() {
            warn!(node = %self, %error, "a script call failed{advice}");
        }
    }

    fn was_heard(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// Slow is not dead: a connection is given up when three calls and nothing at all came back for three timeouts.
    fn was_not_heard(&self, number: u64) {
        let (now_us, timeout_us) = (self.elapsed_us(), self.timeout.as_micros() as u64);
        let unanswered = 1 + self.unanswered.fetch_add(1, Ordering::Relaxed);
        if unanswered == 1 {
            self.silent_since_us.store(now_us.saturating_sub(timeout_us), Ordering::Relaxed);
        }
        let silence_us = now_us.saturating_sub(self.silent_since_us.load(Ordering::Relaxed));
        if unanswered >= 3 && silence_us >= 3 * timeout_us {
            self.drop_connection(number, format_args!("nothing came for {} ms", silence_us / 1_000));
        }
    }

    fn drop_connection(&self, number: u64, reason: impl Display) {
        let dropped = self.connection.lock().take_if(|connection| connection.number == number);
        if dropped.is_some() {
            warn!(node = %self, %reason, "the connection to Redis is lost");
            self.broken.notify_one();
        }
    }

    async fn keep_connected(&self, on_change: Arc<Notify>) {
        let mut delay = RECONNECT_DELAY_MIN;
        let mut told = None;
        for number in 0.. {
            match self.connect().await {
                Ok(multiplexed) => {
                    info!(node = %self, "connected to Redis");
                    (delay, told) = (RECONNECT_DELAY_MIN, None);
                    *self.connection.lock() = Some(Connection { number, multiplexed });
                    on_change.notify_one();
                    self.watch().await;
                }
                Err(error) => self.tell_unreachable(&error, &mut told),
            }
            on_change.notify_one();
            tokio::time::sleep(delay.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            delay = (2 * delay).min(RECONNECT_DELAY_MAX);
        }
    }

    /// Tells why there is no connection, unless that was `told` last.
    fn tell_unreachable(&self, error: &RedisError, told: &mut Option<String>) {
        let reason = error.to_string();
        if told.as_ref() != Some(&reason) {
            warn!(node = %self, reason, "Redis cannot be reached; trying again");
            *told = Some(reason);
        }
    }

    /// Opens a connection, reads the server's clock and gives it the script. A missing password shows here: the
    /// connection opens without it, and the first command is refused.
    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_BUFFER);
        let prepare = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            self.read_clock(&mut connection).await?;
            redis::cmd("SCRIPT").arg("LOAD").arg(&self.script.text).exec_async(&mut connection).await?;
            self.warn_of_eviction(&mut connection).await;
            Ok(connection)
        };
        in_time(prepare).await
    }

    async fn read_clock(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let sent = Instant::now();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
        self.learn_clock(sent, seconds * 1_000_000 + micros);
        self.was_heard();
        Ok(())
    }

    /// A Redis that evicts hands out quota again.
    async fn warn_of_eviction(&self, connection: &mut MultiplexedConnection) {
        let info: Result<String, _> = redis::cmd("INFO").arg("memory").query_async(connection).await;
        let Ok(info) = info else { return };
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let policy = field("maxmemory_policy:").unwrap_or("noeviction");
        if policy != "noeviction" && field("maxmemory:").is_some_and(|bytes| bytes != "0") {
            warn!(node = %self, policy, "this Redis evicts: what was charged can be forgotten; set maxmemory-policy noeviction");
        }
    }

    /// Tries the connection now and then, and returns when it is gone.
    async fn watch(&self) {
        loop {
            // Either way it is tried: a connection that is gone shows at once.
            let _ = timeout(PROBE_INTERVAL, self.broken.notified()).await;
            let connection = self.connection.lock().clone();
            let Some(Connection { number, mut multiplexed }) = connection else { return };
            match timeout(self.timeout, self.read_clock(&mut multiplexed)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.drop_connection(number, &error),
                Err(_) => self.was_not_heard(number),
            }
        }
    }

    /// One command, on a connection of its own where there is none yet.
    pub(super) async fn ask_once(&self, command: &redis::Cmd) -> Result<Value, RedisError> {
        let kept = self.connection.lock().clone();
        let ask = async {
            let mut connection = match kept {
                Some(connection) => connection.multiplexed,
                None => self.connect().await?,
            };
            command.query_async(&mut connection).await
        };
        in_time(ask).await
    }
}

/// What `exchange` gives, or an error where it takes longer than to connect and ask a few things.
async fn in_time<T>(exchange: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    let late = |_| Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
    timeout(4 * CONNECT_TIMEOUT, exchange).await.unwrap_or_else(late)
}

impl Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.address.0, self.address.1)
    }
}

fn open((host, port): &Address, config: &RedisConfig) -> Result<Client, RedisStoreError> {
    let tls_error = |error: RedisError| RedisStoreError::Tls(error.to_string());
    let url = &config.url;
    let address = if url.tls {
        ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host.clone(), *port)
    };
    let mut login = RedisConnectionInfo::default().set_db(url.database);
    if let Some(username) = &url.username {
        login = login.set_username(username);
    }
    if let Some(password) = &url.password {
        login = login.set_password(password);
    }
    let info = address.into_connection_info().map_err(tls_error)?;
    let info = info.set_redis_settings(login).set_tcp_settings(TcpSettings::default().set_nodelay(true));
    if url.tls {
        let certificates = TlsCertificates { client_tls: None, root_cert: config.tls_ca_pem.clone() };
        Client::build_with_tls(info, certificates).map_err(tls_error)
    } else {
        Client::open(info).map_err(tls_error)
    }
}
