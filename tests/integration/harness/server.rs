//! A Tollgate server within the test process.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tollgate::{
    clock::Clock,
    metrics::Metrics,
    placement::Placement,
    policy::{OnUnavailable, Policy, PolicySwitch, PolicyTable},
    server::{self, ServerConfig},
    store::{
        Store,
        memory::{MemoryConfig, MemoryStore},
        redis::{RedisConfig, RedisStore, ScriptClock},
    },
};
use tollgate_client::Client;
use tollgate_protocol::{limit::Limit, policy::Limits, ring::RingSecret};

use super::{PATIENCE, eventually_some, http_get};

/// What a server is made of.
pub(crate) struct Setup {
    /// Names and limits, the limits of a policy joined by ` + `.
    pub(crate) policies: &'static [(&'static str, &'static str)],
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) connection: ServerConfig,
    /// The clock of the embedded store.
    pub(crate) clock: Clock,
    /// Where states are kept; `None`: in the embedded store.
    pub(crate) redis: Option<RedisConfig>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policies: &[("api", "token-bucket:5/1h"), ("window", "sliding-window:5/1h")],
            on_unavailable: OnUnavailable::Deny,
            connection: ServerConfig::default(),
            clock: Clock::monotonic(),
            redis: None,
        }
    }
}

impl Setup {
    /// States in a Redis or a cluster, and patience with it: the machine may be slow.
    pub(crate) fn on_redis(url: &str) -> Self {
        let redis = RedisConfig {
            url: url.parse().expect("a URL of Redis"),
            timeout: Duration::from_secs(2),
            tls_ca_pem: None,
            clock: ScriptClock::Shard,
            deny_cache_entries: 1 << 16,
        };
        Self { redis: Some(redis), ..Self::default() }
    }
}

/// Limits from texts that are joined by ` + `.
pub(crate) fn limits(text: &str) -> Limits {
    let limits = text.split(" + ").map(|limit| limit.parse::<Limit>().expect("a limit"));
    Limits::new(limits.collect()).expect("1..=4 limits")
}

/// A running server. Dropping it cuts everything off at once.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start(setup: Setup) -> Self {
        let metrics = Arc::new(Metrics::new());
        let secret = RingSecret::default();
        let policy = |&(name, text): &(&str, &str)| {
            let policy = Policy::named(name, limits(text), setup.on_unavailable, &secret, &metrics);
            (name.to_owned(), policy.expect("limits that can be enforced"))
        };
        let policies = PolicySwitch::new(PolicyTable::new(setup.policies.iter().map(policy)));
        let store = match setup.redis {
            None => {
                let bounds = MemoryConfig { bytes_max: 1 << 26, keys_max: 1_000_000 };
                Store::Memory(MemoryStore::new(bounds, setup.clock, Arc::clone(&metrics)))
            }
            Some(config) => {
                let placement = Arc::new(Placement::new(secret, 64, "tollgate"));
                let store = RedisStore::start(config, placement, Arc::clone(&metrics));
                Store::Redis(store.expect("a store"))
            }
        };
        let (connection, verdict) = (setup.connection, setup.on_unavailable);
        let server = server::Server::new(connection, store, policies, secret, verdict, Arc::clone(&metrics));
        let bind = async || TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (listener, admin) = (bind().await, bind().await);
        let (address, admin_address) =
            (listener.local_addr().expect("an address"), admin.local_addr().expect("an address"));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(listener, Some(admin), async { drop(stopped.await) }));
        Self { address, admin: admin_address, metrics, stop, task }
    }

    /// A server that is ready: its store is connected.
    pub(crate) async fn start_ready(setup: Setup) -> Self {
        let server = Self::start(setup).await;
        server.ready().await;
        server
    }

    /// Waits until the server says that it is ready.
    pub(crate) async fn ready(&self) {
        eventually_some("the server is ready", async || {
            let (status, _) = http_get(self.admin, "/readyz").await;
            (status == 200).then_some(())
        })
        .await;
    }

    /// A client of this server alone, as patient as the tests are.
    pub(crate) async fn client(&self) -> Client {
        connect(&[self.address]).await
    }

    /// Shuts down as on SIGTERM, and waits for it.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let stopped = tokio::time::timeout(PATIENCE, self.task).await.expect("a shutdown takes 10 s at most");
        stopped.expect("no panic").expect("no failure");
    }

    /// The sum of a metric over all its labels, as an operator reads it.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(&self.metrics.to_text().expect("metrics are text"), name)
    }
}

/// A client of servers.
pub(crate) async fn connect(servers: &[SocketAddr]) -> Client {
    let builder = Client::builder().servers(servers.iter().map(ToString::to_string)).deadline(PATIENCE);
    builder.connect().await.expect("the servers can be reached")
}

/// The sum of the samples of `name` in a text of metrics; a name may go on with a part of its labels.
pub(crate) fn metric(text: &str, name: &str) -> f64 {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let values = samples.filter_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let is_it =
            sample == name || sample.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ',', '}']));
        is_it.then(|| value.parse::<f64>().expect("a number"))
    });
    values.sum()
}
