//! The embedded store under a clock that the tests set.

mod allocation;
mod atomicity;
mod differential;
mod reclaim;
mod room;
mod threads;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ahash::RandomState;
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    policy::Limits,
    reply::Reason,
    ring::RingSecret,
};

use super::{MemoryConfig, MemoryStore, PaddedStripe, stripe::Key};
use crate::{
    batch::Batch,
    clock::Clock,
    limit::{Decision, decide::refuse},
    metrics::Metrics,
    policy::{OnUnavailable, Policy, PolicyTable, SessionPolicies},
};

/// The start of every whole second, minute and hour that the tests count from.
const NOW_US: u64 = 1_785_002_400_000_000;

const SECOND_US: u64 = 1_000_000;

/// A store without bounds that matter.
pub(super) const ROOMY: MemoryConfig = MemoryConfig { bytes_max: u64::MAX, keys_max: u64::MAX };

/// A store, its clock, and the policies of a connection: policy `i` has the alias `2*i + 1`.
pub(super) struct Subject {
    pub(super) store: MemoryStore,
    now_us: Arc<AtomicU64>,
    policies: Arc<SessionPolicies>,
}

impl Subject {
    /// A store whose policies deny where it cannot answer. Limits of a policy are joined by ` + `.
    pub(super) fn new(config: MemoryConfig, policies: &[&str]) -> Self {
        let policies: Vec<_> = policies.iter().map(|text| (*text, OnUnavailable::Deny)).collect();
        Self::with_verdicts(config, &policies)
    }

    fn with_verdicts(config: MemoryConfig, policies: &[(&str, OnUnavailable)]) -> Self {
        let now_us = Arc::new(AtomicU64::new(NOW_US));
        let metrics = Arc::new(Metrics::new());
        let mut store = MemoryStore::new(config, Clock::Manual(now_us.clone()), metrics);
        // The same in each run, so that a failure comes back.
        store.hasher = RandomState::with_seeds(1, 2, 3, 4);
        Self { store, now_us, policies: session(policies) }
    }

    pub(super) fn batch(&self, items: &[Item<'_>]) -> Batch {
        let mut encoder = CheckEncoder::default();
        items.iter().for_each(|item| encoder.push(item));
        let mut payload = bytes::BytesMut::new();
        encoder.finish(&mut payload, true, None);
        let check = CheckBatch::decode(payload.freeze(), items.len()).expect("a batch as clients write it");
        Batch { check, policies: self.policies.clone(), deadline: None }
    }

    fn decide(&self, items: &[Item<'_>]) -> Vec<Decision> {
        let mut out = Vec::new();
        self.store.decide(&self.batch(items), &mut out);
        assert_eq!(out.len(), items.len());
        out
    }

    fn ask(&self, item: Item<'_>) -> Decision {
        self.decide(&[item])[0]
    }

    /// What remains for a key.
    fn remaining(&self, policy: usize, key: &[u8]) -> u64 {
        let decision = self.ask(item(Operation::Peek, policy, 0, key));
        decision.details.expect("a peek is told what remains").remaining
    }

    pub(super) fn advance(&self, us: u64) {
        self.now_us.fetch_add(us, Ordering::AcqRel);
    }

    fn step_back(&self, us: u64) {
        self.now_us.fetch_sub(us, Ordering::AcqRel);
    }

    /// One pass over all stripes; how many states were removed.
    pub(super) fn sweep(&self) -> u64 {
        self.store.stripes.iter().map(|stripe| self.sweep_stripe(stripe)).sum()
    }

    fn sweep_stripe(&self, stripe: &PaddedStripe) -> u64 {
        let mut reclaimed = 0;
        loop {
            let step = self.store.step(&stripe.0);
            reclaimed += step.reclaimed;
            if step.finished {
                return reclaimed;
            }
        }
    }

    pub(super) fn keys(&self) -> u64 {
        self.store.bounds.keys()
    }

    fn bytes(&self) -> u64 {
        self.store.bounds.bytes()
    }

    /// Bytes that the stripes hold from the allocator.
    fn allocated_bytes(&self) -> usize {
        self.store.stripes.iter().map(|stripe| stripe.0.lock().allocated_bytes()).sum()
    }

    fn stripe_of(&self, key: &[u8]) -> usize {
        Key::new(key, &self.store.hasher).stripe()
    }

    /// Keys that share a stripe.
    fn keys_of_one_stripe(&self, count: usize) -> Vec<Vec<u8>> {
        let keys = (0u32..).map(|index| format!("user:{index}").into_bytes());
        keys.filter(|key| self.stripe_of(key) == 7).take(count).collect()
    }
}

fn session(policies: &[(&str, OnUnavailable)]) -> Arc<SessionPolicies> {
    let mut session = SessionPolicies::new(Arc::new(PolicyTable::default()));
    for (index, (text, verdict)) in policies.iter().enumerate() {
        let limits = text.split(" + ").map(|limit| limit.parse().expect("a limit"));
        let limits = Limits::new(limits.collect()).expect("1 to 4 limits");
        let policy = Policy::inline(limits, *verdict, &RingSecret::default(), &Metrics::new());
        session.define(alias(index), Some(policy.expect("limits that can be enforced")));
    }
    Arc::new(session)
}

fn alias(policy: usize) -> u64 {
    2 * policy as u64 + 1
}

fn item(operation: Operation, policy: usize, cost: u64, key: &[u8]) -> Item<'_> {
    Item { operation, alias: alias(policy), cost, key, linked: false }
}

pub(super) fn check(policy: usize, cost: u64, key: &[u8]) -> Item<'_> {
    item(Operation::Check, policy, cost, key)
}

/// Checks that pass together or not at all.
pub(super) fn linked<const N: usize>(mut items: [Item<'_>; N]) -> [Item<'_>; N] {
    items[..N - 1].iter_mut().for_each(|item| item.linked = true);
    items
}

fn reasons(decisions: &[Decision]) -> Vec<Reason> {
    decisions.iter().map(|decision| decision.reason).collect()
}

pub(super) fn allowed(decisions: &[Decision]) -> u64 {
    decisions.iter().filter(|decision| decision.allow).count() as u64
}

/// The answer where the store did not decide.
fn undecided(reason: Reason, allow: bool) -> Decision {
    Decision { allow, degraded: true, ..refuse(reason) }
}
