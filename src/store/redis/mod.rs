//! One Redis or a Redis Cluster.
//!
//! A batch is split by shard; each shard has a lane, which sends what has arrived from all connections in one
//! pipeline, one script call for each partition. The script changes states by the shard's clock and answers
//! what they were; the decisions are then made here by the same steps, so that Redis formats nothing.
//!
//! | module | subject |
//! |---|---|
//! | `url` | where Redis is, as an operator writes it |
//! | `topology` | which shard serves which slot, and its changes |
//! | `lane` | the queue of one shard |
//! | `flight` | one pipeline: calls, redirections, answers |
//! | `deny` | denials that still hold, answered without Redis |
//! | `script` | the script, its arguments and its answer |
//! | `node` | a connection that is kept open |

mod deny;
mod flight;
mod lane;
mod node;
mod script;
mod topology;
mod url;

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};
use tollgate_protocol::reply::Reason;

pub use url::{ParseRedisUrlError, RedisUrl};

use self::{lane::Work, topology::Topology};
use crate::{batch::Batch, clock::Clock, limit::Decision, metrics::Metrics, placement::Placement};

/// How often a store that is waited for is looked at.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Where it is.
    pub url: RedisUrl,
    /// A call that takes longer is given up.
    pub timeout: Duration,
    /// Certificates (PEM) of the authority that signed Redis's; `None`: those of the system.
    pub tls_ca_pem: Option<Vec<u8>>,
    /// Whose time decides.
    pub clock: ScriptClock,
    /// Most denials that are remembered; 0: none are, nor where the clock is an argument.
    pub deny_cache_entries: usize,
}

/// Whose time decides.
#[derive(Clone, Debug, Default)]
pub enum ScriptClock {
    /// That of the shard that holds the key, read once by each script.
    #[default]
    Shard,
    /// This one, for tests that own the time. States then do not expire.
    Argument(Clock),
}

/// Why a store cannot even try to reach Redis. An unreachable Redis is not such a reason: the store starts,
/// is not ready, and goes on trying.
#[derive(Debug, thiserror::Error)]
pub enum RedisStoreError {
    /// The certificates cannot be used.
    #[error("the TLS settings for Redis cannot be used: {0}")]
    Tls(String),
    /// No server told the map of the cluster, where it was needed at once.
    #[error("the Redis Cluster {url} did not tell its slots within {waited_ms} ms: {reason}")]
    NoMap {
        /// Where.
        url: String,
        /// How long was waited, in milliseconds.
        waited_ms: u128,
        /// Each server that was asked, and what came of it.
        reason: String,
    },
}

/// States in Redis.
#[derive(Debug)]
pub struct RedisStore {
    topology: Arc<Topology>,
    placement: Arc<Placement>,
}

impl RedisStore {
    /// Starts the store: tasks that connect to Redis in the background, within the current tokio runtime.
    ///
    /// # Errors
    /// [`RedisStoreError::Tls`].
    pub fn start(
        config: RedisConfig,
        placement: Arc<Placement>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, RedisStoreError> {
        metrics.partitions.set(placement.partitions().len() as i64);
        let topology = Topology::start(config, Arc::clone(&placement), metrics)?;
        Ok(Self { topology, placement })
    }

    /// Whether every shard that is needed is connected.
    pub fn is_ready(&self) -> bool {
        self.topology.is_ready()
    }

    /// Waits until every shard that is needed is connected.
    pub async fn ready(&self) {
        while !self.is_ready() {
            tokio::time::sleep(READY_POLL_INTERVAL).await;
        }
    }

    /// Decides a batch; the decisions are in the order of its items. Takes at most two timeouts of the store:
    /// one in the queue of a shard, one on the way.
    pub async fn decide(&self, batch: Batch) -> Vec<Decision> {
        let batch = Arc::new(batch);
        let undecided = |index| batch.undecided(index, Reason::Unavailable);
        let mut decisions: Vec<_> = (0..batch.items().len()).map(undecided).collect();
        let waiting = self.submit(&batch, &mut decisions);
        for answer in waiting {
            // A lane that ended without an answer sent nothing.
            for (index, decision) in answer.await.unwrap_or_default() {
                decisions[index] = decision;
            }
        }
        decisions
    }

    /// Queues the valid checks at their shards, and answers the others. What no shard serves stays as it is.
    fn submit(
        &self,
        batch: &Arc<Batch>,
        decisions: &mut [Decision],
    ) -> Vec<oneshot::Receiver<Vec<(usize, Decision)>>> {
        let map = self.topology.map();
        let now = Instant::now();
        let mut groups_of_lanes = vec![Vec::new(); map.lanes.len()];
        for group in batch.groups() {
            if let Some(refused) = super::refuse_invalid(batch, group.clone()) {
                decisions[group].copy_from_slice(&refused);
                continue;
            }
            let cache = self.topology.deny_cache();
            if let Some(denied) = cache.and_then(|cache| cache.before(batch, group.clone(), now)) {
                decisions[group.start] = denied;
                continue;
            }
            let partition = self.placement.partition_of(batch.key(&batch.items()[group.start]));
            // A slot that nobody serves leaves its checks undecided.
            if let Some(lane) = map.lane_of(self.placement.partitions()[partition].slot) {
                groups_of_lanes[lane].push((partition, group));
            }
        }
        let mut waiting = Vec::new();
        for (lane, groups) in map.lanes.iter().zip(groups_of_lanes) {
            if !groups.is_empty() {
                let (answer, receiver) = oneshot::channel();
                lane.submit(Work { batch: Arc::clone(batch), groups, queued: now, answer });
                waiting.push(receiver);
            }
        }
        waiting
    }
}

/// Address of the shard that serves each partition now; `None` where no shard does. A Redis Cluster is asked; one
/// Redis serves all.
///
/// # Errors
/// [`RedisStoreError`], also where the cluster does not answer within five seconds.
pub async fn shards_of_partitions(
    config: &RedisConfig,
    placement: &Arc<Placement>,
) -> Result<Vec<Option<String>>, RedisStoreError> {
    const WAIT: Duration = Duration::from_secs(5);
    let topology = Topology::start(config.clone(), Arc::clone(placement), Arc::default())?;
    let map = tokio::time::timeout(WAIT, topology.first_map()).await.map_err(|_| RedisStoreError::NoMap {
        url: config.url.to_string(),
        waited_ms: WAIT.as_millis(),
        reason: topology.failure(),
    })?;
    let shard = |slot| Some(map.lanes[map.lane_of(slot)?].node.to_string());
    Ok(placement.partitions().iter().map(|partition| shard(partition.slot)).collect())
}
