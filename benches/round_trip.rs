//! A client that asks a server over the loopback, and waits for the answers.

use criterion::{BenchmarkGroup, measurement::WallTime};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tollgate::bench::workload::{Distribution, Key, Workload};
use tollgate_client::{CheckError, Client, Decision, Limit, PolicyRef};

use crate::common::measure;

const LIMIT: Limit = Limit::TokenBucket { rate: 100, period_us: 1_000_000, capacity: 100 };

/// Single checks that wait at a time.
const CALLS: [usize; 3] = [1, 64, 1_000];

/// Checks in one call.
const BATCHES: [usize; 3] = [64, 256, 1_024];

/// Measures single checks and calls of many on the server that `start` gives. Its address comes first; the rest
/// is kept while it is measured.
pub(crate) fn bench<S>(group: &mut BenchmarkGroup<'_, WallTime>, start: impl Fn() -> (String, S)) {
    for calls in CALLS {
        measure(group, "calls", calls, || {
            let (address, server) = start();
            let caller = Caller::new(address, calls);
            move || {
                let _server = &server;
                caller.calls()
            }
        });
    }
    for checks in BATCHES {
        measure(group, "batch", checks, || {
            let (address, server) = start();
            let caller = Caller::new(address, checks);
            move || {
                let _server = &server;
                caller.batch()
            }
        });
    }
}

struct Caller {
    runtime: Runtime,
    client: Client,
    policy: PolicyRef,
    keys: Vec<Key>,
}

impl Caller {
    fn new(address: String, keys: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(Client::connect(address)).unwrap();
        let policy = client.define(LIMIT).unwrap();
        let workload = Workload::new(100_000, Distribution::Uniform, 1, 1);
        Self { runtime, client, policy, keys: workload.stream(0).take(keys).map(Key::new).collect() }
    }

    /// One check for each key, all at the same time.
    fn calls(&self) {
        let check = |key| self.client.check(&self.policy, key, 1);
        assert_decided(&self.runtime.block_on(async { join_all(self.keys.iter().map(check)).await }));
    }

    /// One call for all keys.
    fn batch(&self) {
        assert_decided(&self.runtime.block_on(self.client.check_many(&self.policy, &self.keys, 1)));
    }
}

/// What is not decided is quick, and not what is measured.
fn assert_decided(answers: &[Result<Decision, CheckError>]) {
    let error = answers.iter().find_map(|answer| answer.as_ref().err());
    assert!(error.is_none(), "{error:?}");
}
