//! End to end: the client, the loopback, and a server with the embedded store on a thread of this process.

use std::sync::Arc;

use criterion::Criterion;
use tollgate::{
    bench::{BenchError, embedded::Embedded},
    clock::Clock,
    metrics::Metrics,
    policy::{OnUnavailable, PolicySwitch, PolicyTable},
    server::{Server, ServerConfig},
    store::{
        Store,
        memory::{MemoryConfig, MemoryStore},
    },
};
use tollgate_protocol::ring::RingSecret;

use crate::round_trip;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("server");
    round_trip::bench(&mut group, || {
        let embedded = Embedded::start(1, || Ok::<_, BenchError>(server())).unwrap();
        (embedded.address().to_owned(), embedded)
    });
    group.finish();
}

fn server() -> Server {
    let metrics = Arc::new(Metrics::new());
    let config = MemoryConfig { bytes_max: u64::MAX, keys_max: u64::MAX };
    let store = Store::Memory(MemoryStore::new(config, Clock::monotonic(), Arc::clone(&metrics)));
    let secret = RingSecret::default();
    let policies = PolicySwitch::new(PolicyTable::default());
    Server::new(ServerConfig::default(), store, policies, secret, OnUnavailable::Deny, metrics)
}
