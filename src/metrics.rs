//! What an operator can see: counters, gauges and histograms in the Prometheus text format.
//!
//! Labels are policies, reasons and kinds of redirection, never keys: their number is bounded by the configuration.

use std::{array, fmt};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tollgate_protocol::reply::Reason;

const REASONS: usize = Reason::ALL.len();

/// Label of inline policies: policies of the configuration cannot have this name.
pub const INLINE: &str = "(inline)";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    policy: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Decisions under one policy, by reason.
#[derive(Clone, Debug)]
pub struct DecisionCounters([Counter; REASONS]);

impl DecisionCounters {
    /// Counts `count` decisions for one reason.
    pub fn add(&self, reason: Reason, count: u64) {
        if let Some(counter) = self.0.get(usize::from(reason.to_wire())) {
            counter.inc_by(count);
        }
    }
}

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    decisions: Family<DecisionLabels, Counter>,
    redirects: Family<KindLabel, Counter>,
    /// Decisions under inline policies.
    pub inline_decisions: DecisionCounters,
    /// Items that name no policy.
    pub unknown_policy: Counter,
    /// Open connections.
    pub connections: Gauge,
    /// Connections since the start.
    pub connections_total: Counter,
    /// Connections that were closed because their peer broke a rule.
    pub protocol_errors: Counter,
    /// Checks in a batch.
    pub batch_items: Histogram,
    /// Time of a call to the store, in seconds.
    pub store_seconds: Histogram,
    /// Checks in a script call.
    pub script_items: Histogram,
    /// Calls to the store that failed or timed out.
    pub store_failures: Counter,
    /// Partitions of the placement.
    pub partitions: Gauge,
    /// Difference of the clocks of the shards, in microseconds.
    pub clock_skew_us: Gauge,
    /// Shards that are known.
    pub shards: Gauge,
    /// Keys that the embedded store holds.
    pub memory_keys: Gauge,
    /// Bytes that the embedded store counts for them.
    pub memory_bytes: Gauge,
    /// Times that the configuration was loaded again.
    pub config_reloads: Counter,
    /// Times that it could not be, and stayed as it was.
    pub config_reload_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that start at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        let decisions = Family::default();
        registry.register("decisions", "Checks decided, by policy and reason", decisions.clone());
        let redirects = Family::default();
        registry.register("store_redirects", "Redirections by the Redis Cluster, by kind", redirects.clone());
        let items = || Histogram::new(exponential_buckets(1.0, 2.0, 14));
        let metrics = Self {
            inline_decisions: counters(&decisions, INLINE),
            decisions,
            redirects,
            unknown_policy: Counter::default(),
            connections: Gauge::default(),
            connections_total: Counter::default(),
            protocol_errors: Counter::default(),
            batch_items: items(),
            store_seconds: Histogram::new(exponential_buckets(50e-6, 2.0, 16)),
            script_items: items(),
            store_failures: Counter::default(),
            partitions: Gauge::default(),
            clock_skew_us: Gauge::default(),
            shards: Gauge::default(),
            memory_keys: Gauge::default(),
            memory_bytes: Gauge::default(),
            config_reloads: Counter::default(),
            config_reload_failures: Counter::default(),
            registry: Registry::default(),
        };
        metrics.register(&mut registry);
        Self { registry, ..metrics }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("unknown_policy", "Checks that name no policy", self.unknown_policy.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_opened",
            "Connections since the start",
            self.connections_total.clone(),
        );
        registry.register(
            "protocol_errors",
            "Connections closed because the peer broke a rule",
            self.protocol_errors.clone(),
        );
        registry.register("batch_items", "Checks in a batch", self.batch_items.clone());
        registry.register("store_seconds", "Time of a call to the store", self.store_seconds.clone());
        registry.register("script_items", "Checks in a script call", self.script_items.clone());
        registry.register("store_failures", "Calls to the store that failed", self.store_failures.clone());
        registry.register("partitions", "Partitions that keys are placed in", self.partitions.clone());
        registry.register(
            "store_clock_skew_us",
            "Difference of the shards' clocks in microseconds",
            self.clock_skew_us.clone(),
        );
        registry.register("shards", "Shards (Redis primaries) that are known", self.shards.clone());
        registry.register("memory_keys", "Keys held by the embedded store", self.memory_keys.clone());
        registry.register("memory_bytes", "Bytes counted for those keys", self.memory_bytes.clone());
        registry.register("config_reloads", "Reloads of the configuration", self.config_reloads.clone());
        registry.register(
            "config_reload_failures",
            "Configurations that were not taken for an error in them",
            self.config_reload_failures.clone(),
        );
    }

    /// The counters of a named policy.
    pub fn decisions_of(&self, policy: &str) -> DecisionCounters {
        counters(&self.decisions, policy)
    }

    /// Counts a redirection: `moved`, `ask`, `tryagain`.
    pub fn redirected(&self, kind: &'static str) {
        self.redirects.get_or_create(&KindLabel { kind }).inc();
    }

    /// All of them in the Prometheus text format.
    ///
    /// # Errors
    /// None in practice: writing to a `String` does not fail.
    pub fn to_text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn counters(decisions: &Family<DecisionLabels, Counter>, policy: &str) -> DecisionCounters {
    DecisionCounters(array::from_fn(|code| {
        let reason = Reason::from_wire(code as u8).as_str();
        decisions.get_or_create(&DecisionLabels { policy: policy.to_owned(), reason }).clone()
    }))
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(..)")
    }
}
