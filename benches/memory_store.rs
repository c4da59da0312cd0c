//! The embedded store: batches of checks on states of many keys or of one.

use std::sync::Arc;

use criterion::Criterion;
use tollgate::{
    batch::Batch,
    bench::workload::{Distribution, Key, Workload},
    clock::Clock,
    metrics::Metrics,
    policy::{OnUnavailable, Policy, SessionPolicies},
    store::memory::{MemoryConfig, MemoryStore},
};
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder},
    limit::Limit,
    ring::RingSecret,
};

use crate::common::{ALIAS, BATCHES, check_payload, measure};

/// A limit that lets nearly all pass: also one key is asked little more often than that.
const LIMIT: Limit = Limit::TokenBucket { rate: 10_000_000, period_us: 1_000_000, capacity: 10_000_000 };

/// Checks that are asked over and over: more than fit in the caches with their states.
const CHECKS: usize = 1 << 18;

const WORKLOADS: [(&str, u64, Distribution); 4] = [
    ("hot", 1, Distribution::Hot),
    ("uniform_1k", 1_000, Distribution::Uniform),
    ("uniform_100k", 100_000, Distribution::Uniform),
    ("uniform_1m", 1_000_000, Distribution::Uniform),
];

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory_store");
    for (name, keys, distribution) in WORKLOADS {
        for items in BATCHES {
            measure(&mut group, name, items, || {
                let workload = Workload::new(keys, distribution, 1, 1);
                let mut subject = Subject::new(&workload, items);
                move || subject.decide_next()
            });
        }
    }
    group.finish();
}

struct Subject {
    store: MemoryStore,
    batches: Vec<Batch>,
    next: usize,
    decisions: Vec<tollgate::limit::Decision>,
}

impl Subject {
    /// A store that knows all keys of a workload, and what it will be asked: batches of `items` checks.
    fn new(workload: &Workload, items: usize) -> Self {
        let config = MemoryConfig { bytes_max: u64::MAX, keys_max: u64::MAX };
        let store = MemoryStore::new(config, Clock::monotonic(), Arc::new(Metrics::new()));
        let policies = policies();
        let mut decisions = Vec::new();
        let all: Vec<_> = (0..workload.keys()).map(|index| Key::new(index as u32)).collect();
        for keys in all.chunks(1_024) {
            decisions.clear();
            store.decide(&batch(keys, &policies), &mut decisions);
        }
        let asked: Vec<_> = workload.stream(0).take(CHECKS).map(Key::new).collect();
        let batches = asked.chunks(items).map(|keys| batch(keys, &policies)).collect();
        Self { store, batches, next: 0, decisions }
    }

    fn decide_next(&mut self) -> usize {
        self.decisions.clear();
        self.store.decide(&self.batches[self.next], &mut self.decisions);
        self.next = if self.next + 1 == self.batches.len() { 0 } else { self.next + 1 };
        self.decisions.len()
    }
}

fn policies() -> Arc<SessionPolicies> {
    let metrics = Metrics::new();
    let policy = Policy::inline(LIMIT.into(), OnUnavailable::Deny, &RingSecret::default(), &metrics);
    let mut policies = SessionPolicies::new(Arc::default());
    policies.define(ALIAS, Some(policy.unwrap()));
    Arc::new(policies)
}

fn batch(keys: &[Key], policies: &Arc<SessionPolicies>) -> Batch {
    let payload = check_payload(&mut CheckEncoder::default(), keys);
    let check = CheckBatch::decode(payload, keys.len()).unwrap();
    Batch { check, policies: Arc::clone(policies), deadline: None }
}
