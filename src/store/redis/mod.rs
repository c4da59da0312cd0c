//! One Redis or a Redis Cluster.

use std::{sync::Arc, time::Duration};

use crate::{batch::Batch, limit::Decision, metrics::Metrics, placement::Placement};

mod url;

pub use url::{ParseRedisUrlError, RedisUrl};

/// How to reach Redis.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// Where it is.
    pub url: RedisUrl,
    /// A call that takes longer is given up.
    pub timeout: Duration,
    /// Certificates (PEM) of the authority that signed Redis's; `None`: those of the system.
    pub tls_ca_pem: Option<Vec<u8>>,
}

/// Why a store cannot even try to reach Redis. An unreachable Redis is not such a reason: the store starts,
/// is not ready, and goes on trying.
#[derive(Debug, thiserror::Error)]
pub enum RedisStoreError {
    /// The certificates cannot be used.
    #[error("the TLS certificates of `redis.tls_ca_file` cannot be used: {0}")]
    Tls(String),
    /// Redis could not be reached, where an answer was needed at once.
    #[error("Redis at {url} cannot be reached: {reason}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
}

/// States in Redis.
#[derive(Debug)]
pub struct RedisStore {}

impl RedisStore {
    /// Starts the store: tasks that connect to Redis in the background, within the current tokio runtime.
    ///
    /// # Errors
    /// [`RedisStoreError::Tls`].
    pub fn start(
        _config: RedisConfig,
        _placement: Arc<Placement>,
        _metrics: Arc<Metrics>,
    ) -> Result<Self, RedisStoreError> {
        Ok(Self {})
    }

    /// Decides a batch; the decisions are in the order of its items.
    pub async fn decide(&self, _batch: Batch) -> Vec<Decision> {
        Vec::new()
    }

    /// Whether every shard answers.
    pub fn is_ready(&self) -> bool {
        false
    }
}

/// Address of the shard that serves each partition now.
///
/// # Errors
/// [`RedisStoreError`].
pub async fn shards_of_partitions(
    _config: &RedisConfig,
    _placement: &Placement,
) -> Result<Vec<String>, RedisStoreError> {
    Ok(Vec::new())
}
