//! `tollgate serve`

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::Arc,
};

use clap::Args;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    CliError, Outcome, log,
    reload::Reload,
    settings::{Source, StoreArgs},
};
use crate::{
    clock::Clock,
    config::{Config, LogFormat, LogLevel, Overrides, StoreConfig},
    metrics::Metrics,
    policy::{PolicySwitch, PolicyTable},
    server::Server,
    store::{Store, memory::MemoryStore, redis::RedisStore},
};

/// Run a server
///
/// Prints `listening on ADDR` once it answers. SIGTERM and SIGINT end it: it takes no new connections, answers
/// what it has, and tells its clients to go elsewhere; a second signal ends it at once.
///
/// Policies are taken over from the file when it changes, and at SIGHUP; a file with an error changes nothing. All else
/// takes effect at the next start.
///
/// Flags win over environment variables, and these over the file; RUST_LOG wins over the level of the log.
/// TOLLGATE_PLACEMENT_SECRET sets the secret under which keys are placed in a Redis store, the same on all
/// servers.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tollgate serve
  tollgate serve --config /etc/tollgate.toml --listen 0.0.0.0:7420
  tollgate serve --store redis-cluster://10.0.0.1:6379,10.0.0.2:6379 --admin off")]
pub(super) struct ServeArgs {
    /// Where clients connect; port 0 takes a free one [default: 127.0.0.1:7420]
    #[arg(long, env = "TOLLGATE_LISTEN", value_name = "ADDR")]
    listen: Option<String>,

    /// Where metrics and health are served by HTTP, or `off` [default: 127.0.0.1:7421]
    #[arg(long, env = "TOLLGATE_ADMIN", value_name = "ADDR")]
    admin: Option<String>,

    #[command(flatten)]
    store: StoreArgs,

    /// Denials of a Redis store that are remembered for up to a second; 0 for none [default: 65536]
    #[arg(long, env = "TOLLGATE_DENY_CACHE_ENTRIES", value_name = "N")]
    deny_cache_entries: Option<i64>,

    /// The least severe level that is logged [default: info]
    #[arg(long, env = "TOLLGATE_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<LogLevel>,

    /// How the log is written [default: human]
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

pub(super) fn run(args: ServeArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let ServeArgs { listen, admin, store, deny_cache_entries, log_level, log_format } = args;
    let overrides =
        Overrides { listen, admin, deny_cache_entries, log_level, log_format, ..Overrides::default() };
    let source = store.source(overrides)?;
    let config = source.load()?;
    log::start(config.log)?;
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(CliError::Runtime)?;
    runtime.block_on(serve(source, config, out))
}

async fn serve(source: Source, config: Config, out: &mut impl Write) -> Result<Outcome, CliError> {
    // Signals are heard from here on, so that none is lost after the address was printed.
    let mut signals = Signals::new().map_err(CliError::Signals)?;
    let hangup = signal(SignalKind::hangup()).map_err(CliError::Signals)?;
    let listener = bind("--listen", config.listen).await?;
    let admin = match config.admin {
        Some(address) => Some(bind("--admin", address).await?),
        None => None,
    };
    warn_of_published_secret(&config);
    let server = server(&config)?;
    if let Some(admin) = &admin {
        let address = admin.local_addr().map_err(CliError::Server)?;
        tracing::info!(%address, "serving health and metrics");
    }
    let reload = Reload::new(source, config, server.policies().clone(), Arc::clone(server.metrics()));
    server.warm_up().await;
    let address = listener.local_addr().map_err(CliError::Server)?;
    writeln!(out, "listening on {address}")?;
    out.flush()?;

    let stop = CancellationToken::new();
    tokio::select! {
        stopped = server.run(listener, admin, stop.clone().cancelled_owned()) => {
            stopped.map_err(CliError::Server)?;
            Ok(Outcome::Done)
        }
        never = reload.run(hangup) => match never {},
        () = signals.twice(&stop) => {
            tracing::warn!("a second signal: stopped at once");
            Ok(Outcome::Failed)
        }
    }
}

async fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|source| CliError::Bind { flag, address, source })
}

/// The server of a configuration. A Redis store connects in the background: a runtime must be there.
pub(super) fn server(config: &Config) -> Result<Server, CliError> {
    let metrics = Arc::new(Metrics::new());
    let policies = PolicySwitch::new(PolicyTable::new(config.ready_policies(&metrics)?));
    let store = match &config.store {
        StoreConfig::Memory(memory) => {
            Store::Memory(MemoryStore::new(*memory, Clock::monotonic(), Arc::clone(&metrics)))
        }
        StoreConfig::Redis(redis) => {
            let placement = Arc::new(config.placement());
            Store::Redis(RedisStore::start(redis.clone(), placement, Arc::clone(&metrics))?)
        }
    };
    let secret = config.placement.secret.unwrap_or_default();
    Ok(Server::new(config.connection, store, policies, secret, config.on_unavailable, metrics))
}

/// In memory, keys have no place to be aimed at.
fn warn_of_published_secret(config: &Config) {
    if config.placement.secret.is_none() && matches!(config.store, StoreConfig::Redis(_)) {
        tracing::warn!(
            "keys are placed under the published secret: whoever can choose keys can aim them all at one \
             partition, and so overload one shard; set redis.placement_secret or TOLLGATE_PLACEMENT_SECRET, the \
             same on all servers"
        );
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Cancels `stop` at the first signal, and is ready at the second.
    pub(super) async fn twice(&mut self, stop: &CancellationToken) {
        self.next().await;
        stop.cancel();
        self.next().await;
    }
}
