//! Stores as subjects: the same batches as a server would hand them.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::runtime::Runtime;
use tollgate::{
    batch::Batch,
    clock::Clock,
    limit::Decision,
    metrics::Metrics,
    placement::Placement,
    policy::{PolicyTable, SessionPolicies},
    store::{
        memory::{MemoryConfig, MemoryStore},
        redis::{RedisConfig, RedisStore, ScriptClock},
    },
};
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item},
    limits::{ITEMS_DEFAULT, KEY_BYTES_MAX},
    policy::Limits,
    ring::RingSecret,
};

use crate::{
    harness::eventually,
    subject::{Ask, Subject, named_policies},
};

/// A batch as a server reads it from the wire.
fn batch(policies: &Arc<SessionPolicies>, asks: &[Ask]) -> Batch {
    let mut encoder = CheckEncoder::default();
    for ask in asks {
        encoder.push(&Item {
            operation: ask.operation,
            alias: 2 * ask.policy as u64,
            cost: ask.cost,
            key: &key(ask.key),
            linked: ask.linked,
        });
    }
    let mut payload = BytesMut::new();
    encoder.finish(&mut payload, true, None);
    let check = CheckBatch::decode(payload.freeze(), ITEMS_DEFAULT).expect("the encoder's own bytes");
    Batch { check, policies: Arc::clone(policies), deadline: None }
}

/// Keys of all kinds: with braces, with any bytes, of the greatest length.
fn key(number: u32) -> Vec<u8> {
    match number % 4 {
        0 => format!("user:{number}").into_bytes(),
        1 => format!("{{brace}}{number}").into_bytes(),
        2 => [&[0, 0xff, b'\r', b'\n'][..], &number.to_be_bytes()].concat(),
        _ => [&number.to_be_bytes()[..], &[b'x'; KEY_BYTES_MAX - 4]].concat(),
    }
}

fn session(policies: &[Limits], metrics: &Metrics) -> Arc<SessionPolicies> {
    let table = PolicyTable::new(named_policies(policies, metrics));
    Arc::new(SessionPolicies::new(Arc::new(table)))
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

/// The embedded store, whose clock is set by hand.
pub(crate) struct Memory {
    store: MemoryStore,
    now_us: Arc<AtomicU64>,
    policies: Arc<SessionPolicies>,
    metrics: Arc<Metrics>,
}

impl Memory {
    pub(crate) fn new(policies: &[Limits]) -> Self {
        Self::with_room(policies, 1_000_000)
    }

    pub(crate) fn with_room(policies: &[Limits], keys_max: u64) -> Self {
        let (now_us, metrics) = (Arc::new(AtomicU64::new(0)), Arc::new(Metrics::new()));
        let bounds = MemoryConfig { bytes_max: 1 << 28, keys_max };
        let store = MemoryStore::new(bounds, Clock::Manual(Arc::clone(&now_us)), Arc::clone(&metrics));
        Self { store, now_us, policies: session(policies, &metrics), metrics }
    }
}

impl Subject for Memory {
    fn configure(&mut self, policies: &[Limits]) {
        self.policies = session(policies, &self.metrics);
    }

    fn decide(&mut self, now_us: u64, asks: &[Ask]) -> Vec<Decision> {
        self.now_us.store(now_us, Ordering::Release);
        let mut decisions = Vec::new();
        self.store.decide(&batch(&self.policies, asks), &mut decisions);
        decisions
    }
}

/// A store in Redis whose scripts take their time from an argument.
pub(crate) struct Redis {
    store: RedisStore,
    now_us: Arc<AtomicU64>,
    policies: Arc<SessionPolicies>,
    metrics: Arc<Metrics>,
}

impl Redis {
    /// A store with states of its own in a Redis that others may use too.
    pub(crate) fn new(url: &str) -> Self {
        static PREFIXES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("test-{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let (now_us, metrics) = (Arc::new(AtomicU64::new(0)), Arc::new(Metrics::new()));
        let config = RedisConfig {
            url: url.parse().expect("a URL of Redis"),
            timeout: Duration::from_secs(10),
            tls_ca_pem: None,
            clock: ScriptClock::Argument(Clock::Manual(Arc::clone(&now_us))),
            deny_cache_entries: 0,
        };
        let placement = Arc::new(Placement::new(RingSecret::default(), 64, &prefix));
        let _in_runtime = RUNTIME.enter();
        let store = RedisStore::start(config, placement, Arc::clone(&metrics)).expect("a store");
        eventually("the store is ready", || store.is_ready());
        Self { store, now_us, policies: session(&[], &metrics), metrics }
    }
}

impl Subject for Redis {
    fn configure(&mut self, policies: &[Limits]) {
        self.policies = session(policies, &self.metrics);
    }

    fn decide(&mut self, now_us: u64, asks: &[Ask]) -> Vec<Decision> {
        self.now_us.store(now_us, Ordering::Release);
        RUNTIME.block_on(self.store.decide(batch(&self.policies, asks)))
    }
}
