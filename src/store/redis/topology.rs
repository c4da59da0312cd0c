//! Which shard serves which slot. One Redis serves all of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::Value;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    RedisConfig, RedisStoreError, ScriptClock,
    deny::DenyCache,
    lane::Lane,
    node::{Address, Node},
    script::{self, Script},
};
use crate::{
    metrics::Metrics,
    placement::{Placement, SLOTS},
};

/// Least time between two questions for the map.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Time after which the map is asked for although nothing seems wrong.
const REFRESH_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// A server that serves no slots is let go when nobody wanted it for this long. One that slots are only moving to
/// is wanted by each call that is sent there by ASK.
const FORGET_AFTER: Duration = Duration::from_secs(10);

/// Clocks of two shards that differ by more than this are told of.
const CLOCK_SKEW_US_MAX: u64 = 50_000;

/// Which lane serves which slot, at one time.
#[derive(Debug, Default)]
pub(super) struct SlotMap {
    /// The shards that serve a slot.
    pub(super) lanes: Vec<Arc<Lane>>,
    /// For each slot the index of its lane, or [`UNSERVED`].
    slots: Vec<u16>,
}

const UNSERVED: u16 = u16::MAX;

impl SlotMap {
    /// Index of the lane that serves a slot.
    pub(super) fn lane_of(&self, slot: u16) -> Option<usize> {
        let index = usize::from(*self.slots.get(usize::from(slot))?);
        (index < self.lanes.len()).then_some(index)
    }

    /// Whether the same servers serve the same slots.
    fn is_same(&self, other: &Self) -> bool {
        let same_lanes = self.lanes.len() == other.lanes.len()
            && self.lanes.iter().zip(&other.lanes).all(|(lane, other)| Arc::ptr_eq(lane, other));
        same_lanes && self.slots == other.slots
    }
}

/// The lane of a server that is known.
#[derive(Debug)]
struct Known {
    lane: Arc<Lane>,
    /// When it was last asked for.
    wanted: Instant,
}

/// The shards of a store.
#[derive(Debug)]
pub(super) struct Topology {
    config: RedisConfig,
    script: &'static Script,
    placement: Arc<Placement>,
    metrics: Arc<Metrics>,
    deny_cache: Option<DenyCache>,
    map: ArcSwap<SlotMap>,
    /// All servers that are known, with or without slots: the seeds, those of the last map, and those that calls
    /// were sent to lately.
    lanes: Mutex<HashMap<Address, Known>>,
    /// Why no server told the map, where that is so.
    failure: Mutex<Option<String>>,
    /// Wakes the task that asks for the map.
    stale: Arc<Notify>,
    /// Tells that there is a map.
    published: Notify,
    stop: CancellationToken,
}

impl Topology {
    /// The shards behind a URL, and the task that follows their changes.
    pub(super) fn start(
        config: RedisConfig,
        placement: Arc<Placement>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, RedisStoreError> {
        let topology = Arc::new(Self {
            script: match config.clock {
                ScriptClock::Shard => &script::ON_SHARD_CLOCK,
                ScriptClock::Argument(_) => &script::ON_ARGUMENT,
            },
            deny_cache: deny_cache(&config),
            published: Notify::new(),
            placement,
            metrics,
            map: ArcSwap::default(),
            lanes: Mutex::default(),
            failure: Mutex::default(),
            stale: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            config,
        });
        for address in &topology.config.url.nodes {
            topology.lane(address)?;
        }
        if topology.config.url.cluster {
            let weak = Arc::downgrade(&topology);
            let (stale, stop) = (Arc::clone(&topology.stale), topology.stop.clone());
            tokio::spawn(stop.run_until_cancelled_owned(async move {
                while let Some(topology) = weak.upgrade() {
                    topology.refresh().await;
                    drop(topology);
                    sleep(REFRESH_INTERVAL_MIN).await;
                    // Either way the map is asked for.
                    let _ = timeout(REFRESH_INTERVAL_MAX, stale.notified()).await;
                }
            }));
        } else {
            let lane = topology.lane(&topology.config.url.nodes[0])?;
            topology.publish(SlotMap { lanes: vec![lane], slots: vec![0; usize::from(SLOTS)] });
        }
        Ok(topology)
    }

    /// The map as it is now.
    pub(super) fn map(&self) -> Arc<SlotMap> {
        self.map.load_full()
    }

    /// Has the map asked for anew, soon.
    pub(super) fn mark_stale(&self) {
        self.stale.notify_one();
    }

    /// Whether every slot that a partition uses is served by a shard that is connected.
    pub(super) fn is_ready(&self) -> bool {
        let map = self.map();
        let connected: Vec<_> = map.lanes.iter().map(|lane| lane.node.is_connected()).collect();
        let slots = self.placement.partitions().iter().map(|partition| partition.slot);
        slots.into_iter().all(|slot| map.lane_of(slot).is_some_and(|lane| connected[lane]))
    }

    /// The lane of a server, started where it is new.
    pub(super) fn lane(self: &Arc<Self>, address: &Address) -> Result<Arc<Lane>, RedisStoreError> {
        let wanted = Instant::now();
        let mut lanes = self.lanes.lock();
        if let Some(known) = lanes.get_mut(address) {
            known.wanted = wanted;
            return Ok(Arc::clone(&known.lane));
        }
        let (node, guard) = Node::start(address.clone(), &self.config, self.script, Arc::clone(&self.stale))?;
        let lane = Lane::start(node, guard, Arc::downgrade(self));
        lanes.insert(address.clone(), Known { lane: Arc::clone(&lane), wanted });
        Ok(lane)
    }

    /// The lane that serves a partition now.
    pub(super) fn lane_of(&self, partition: usize) -> Option<Arc<Lane>> {
        let map = self.map();
        Some(Arc::clone(&map.lanes[map.lane_of(self.placement.partitions()[partition].slot)?]))
    }

    /// The Redis key of a partition.
    pub(super) fn redis_key(&self, partition: usize) -> &str {
        &self.placement.partitions()[partition].redis_key
    }

    /// How long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The script that this store runs.
    pub(super) fn script(&self) -> &Script {
        self.script
    }

    /// What the script's prelude takes: the deadline by the shard's clock, or the time itself.
    pub(super) fn time_argument(&self, node: &Node, deadline: Instant) -> u64 {
        match &self.config.clock {
            ScriptClock::Shard => node.shard_time_us(deadline.saturating_duration_since(Instant::now())),
            ScriptClock::Argument(clock) => clock.now_us(),
        }
    }

    /// Denials that are remembered, where they are.
    pub(super) fn deny_cache(&self) -> Option<&DenyCache> {
        self.deny_cache.as_ref()
    }

    /// What an operator can see.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The map, when there is one.
    pub(super) async fn first_map(&self) -> Arc<SlotMap> {
        loop {
            let published = self.published.notified();
            let map = self.map();
            if !map.lanes.is_empty() {
                return map;
            }
            published.await;
        }
    }

    /// Why no server told the map when they were last asked; empty where one did, or none was asked yet.
    pub(super) fn failure(&self) -> String {
        self.failure.lock().clone().unwrap_or_default()
    }

    fn publish(&self, map: SlotMap) {
        self.metrics.shards.set(map.lanes.len() as i64);
        self.map.store(Arc::new(map));
        self.published.notify_waiters();
    }

    /// Asks one server after another for the map, those that are connected first, until one has an answer.
    async fn refresh(self: &Arc<Self>) {
        let mut lanes: Vec<_> = self.lanes.lock().values().map(|known| Arc::clone(&known.lane)).collect();
        // Any of them knows. Not always the same one is asked, since that one may be cut off, and last one that has
        // fallen silent.
        fastrand::shuffle(&mut lanes);
        lanes.sort_by_key(|lane| (!lane.node.is_connected(), lane.node.is_silent()));
        let mut failures = Vec::new();
        for lane in lanes {
            match self.ask(&lane.node).await {
                Ok(ranges) => return self.adopt(&ranges),
                Err(reason) => failures.push(format!("{}: {reason}", lane.node)),
            }
        }
        failures.sort_unstable();
        self.tell_no_map(failures.join("; "));
    }

    /// Tells why there is no map, unless that was told last.
    fn tell_no_map(&self, reason: String) {
        let mut failure = self.failure.lock();
        if failure.as_ref() != Some(&reason) {
            warn!(reason, "no server tells the map of the Redis Cluster; trying again");
            *failure = Some(reason);
        }
    }

    async fn ask(&self, node: &Node) -> Result<Vec<SlotRange>, String> {
        let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
        let value = node.ask_once(&command).await.map_err(|error| error.to_string())?;
        let ranges = read_slots(&value, &node.address.0).ok_or("not an answer to CLUSTER SLOTS")?;
        if ranges.is_empty() { Err("it knows no slots".to_owned()) } else { Ok(ranges) }
    }

    fn adopt(self: &Arc<Self>, ranges: &[SlotRange]) {
        let mut map = SlotMap { lanes: Vec::new(), slots: vec![UNSERVED; usize::from(SLOTS)] };
        for range in ranges {
            let lane = match self.lane(&range.primary) {
                Ok(lane) => lane,
                Err(error) => {
                    warn!(%error, "a shard cannot be used");
                    continue;
                }
            };
            let known = map.lanes.iter().position(|known| Arc::ptr_eq(known, &lane));
            let index = known.unwrap_or_else(|| {
                map.lanes.push(lane);
                map.lanes.len() - 1
            });
            map.slots[usize::from(range.first)..=usize::from(range.last)].fill(index as u16);
        }
        *self.failure.lock() = None;
        self.forget_others(&map);
        self.warn_of_clock_skew(&map);
        if !self.map().is_same(&map) {
            info!(shards = map.lanes.len(), "the map of the Redis Cluster is new");
        }
        self.publish(map);
    }

    /// Lets go of servers that serve nothing and that nobody wants any more, but for the seeds.
    fn forget_others(&self, map: &SlotMap) {
        self.lanes.lock().retain(|address, known| {
            self.config.url.nodes.contains(address)
                || known.wanted.elapsed() < FORGET_AFTER
                || map.lanes.iter().any(|kept| Arc::ptr_eq(kept, &known.lane))
        });
    }

    fn warn_of_clock_skew(&self, map: &SlotMap) {
        let connected = map.lanes.iter().filter(|lane| lane.node.is_connected());
        let (earliest, latest): (Vec<u64>, Vec<u64>) = connected.map(|lane| lane.node.shard_now_us()).unzip();
        if let (Some(latest_of_slowest), Some(earliest_of_fastest)) =
            (latest.iter().min(), earliest.iter().max())
        {
            // What is certain of it: a slow answer is not a fast clock.
            let skew_us = earliest_of_fastest.saturating_sub(*latest_of_slowest);
            self.metrics.clock_skew_us.set(skew_us as i64);
            if skew_us > CLOCK_SKEW_US_MAX {
                warn!(skew_us, "the clocks of the shards differ: a failover may let more pass, once");
            }
        }
    }
}

/// Denials are remembered by this server's clock, which is not one that tests set.
fn deny_cache(config: &RedisConfig) -> Option<DenyCache> {
    let entries = config.deny_cache_entries;
    (entries > 0 && matches!(config.clock, ScriptClock::Shard)).then(|| DenyCache::new(entries))
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Slots `first..=last` and the server that takes writes for them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    primary: Address,
}

/// Reads the answer to CLUSTER SLOTS. A host that is empty or missing means the server that was asked.
fn read_slots(value: &Value, asked: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = value else { return None };
    ranges.iter().map(|range| read_range(range, asked)).collect()
}

fn read_range(range: &Value, asked: &str) -> Option<SlotRange> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), ..] = &primary[..] else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        Value::SimpleString(host) if !host.is_empty() => host.clone(),
        _ => asked.to_owned(),
    };
    let slot = |slot: i64| u16::try_from(slot).ok().filter(|&slot| slot < SLOTS);
    let (first, last) = (slot(*first)?, slot(*last)?);
    (first <= last).then_some(SlotRange { first, last, primary: (host, u16::try_from(*port).ok()?) })
}

/// Reads the `host:port` of a redirection; an empty host means the server that sent it.
pub(super) fn read_address(text: &str, asked: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = if host.is_empty() { asked } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), node(text("replica"), 1)])
    }

    #[test]
    fn the_primary_of_each_range_is_read() {
        let value = Value::Array(vec![
            range(0, 99, text("10.0.0.1"), 7_000),
            range(100, 100, text(""), 7_001),
            range(101, 16_383, Value::Nil, 7_002),
        ]);
        let ranges = read_slots(&value, "10.9.9.9").unwrap();
        let read: Vec<_> =
            ranges.iter().map(|range| (range.first, range.last, range.primary.clone())).collect();
        let at = |host: &str, port| (host.to_owned(), port);
        let expected = [
            (0, 99, at("10.0.0.1", 7_000)),
            (100, 100, at("10.9.9.9", 7_001)),
            (101, 16_383, at("10.9.9.9", 7_002)),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        for (first, last, port) in [(-1, 5, 1), (5, 4, 1), (0, 16_384, 1), (0, 5, 70_000)] {
            let value = Value::Array(vec![range(first, last, text("h"), port)]);
            assert_eq!(read_slots(&value, "h"), None, "{first} {last} {port}");
        }
        assert_eq!(read_slots(&Value::Okay, "h"), None);
        assert_eq!(read_slots(&Value::Array(vec![Value::Array(Vec::new())]), "h"), None);
    }

    #[test]
    fn addresses_of_redirections() {
        assert_eq!(read_address("10.0.0.1:7000", "h"), Some(("10.0.0.1".to_owned(), 7_000)));
        assert_eq!(read_address(":7000", "h"), Some(("h".to_owned(), 7_000)));
        assert_eq!(read_address("fe80::1:7000", "h"), Some(("fe80::1".to_owned(), 7_000)));
        assert_eq!(read_address("nowhere", "h"), None);
        assert_eq!(read_address("h:70000", "h"), None);
    }
}
