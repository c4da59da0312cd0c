//! The configuration: a TOML file, overridden by the environment, overridden by flags.
//!
//! | module | subject |
//! |---|---|
//! | [`defaults`] | what holds where nothing is said, and the ranges |
//! | [`secret`] | texts that are never shown |
//! | [`error`] | what can be wrong, told all at once |
//! | `file` | the file as it is written |
//! | `check`, `policies` | from what is written to what holds |

use std::{net::SocketAddr, path::Path};

use clap::ValueEnum;
use serde::Deserialize;
use tollgate_protocol::{policy::Limits, ring::RingSecret};

use crate::{
    limit::UnsupportedLimit,
    metrics::Metrics,
    placement::Placement,
    policy::{Enforcement, OnUnavailable, Policy},
    server::ServerConfig,
    store::{memory::MemoryConfig, redis::RedisConfig},
};

mod check;
pub mod defaults;
pub mod error;
mod file;
mod policies;
pub mod secret;

pub use error::{ConfigError, Problem};
pub use policies::{LimitError, parse_limit};
pub use secret::Secret;

/// What a server or a command needs to know, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where metrics and health are served; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// What is logged.
    pub log: LogConfig,
    /// Bounds of connections.
    pub connection: ServerConfig,
    /// Where states are kept.
    pub store: StoreConfig,
    /// Where a key's state is within a Redis store.
    pub placement: PlacementConfig,
    /// The verdict of inline policies where the store cannot answer.
    pub on_unavailable: OnUnavailable,
    /// The named policies, in the order of their names.
    pub policies: Vec<PolicyConfig>,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The least severe level that is logged.
    pub level: LogLevel,
    /// How a record is written.
    pub format: LogFormat,
}

/// The least severe level that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What an operator must act on.
    Error,
    /// What an operator should know.
    Warn,
    /// Starts, stops and changes of state.
    #[default]
    Info,
    /// Connections.
    Debug,
    /// Everything.
    Trace,
}

/// How a record of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Human,
    /// A JSON object a line.
    Json,
}

/// Where states are kept.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// In the memory of the server.
    Memory(MemoryConfig),
    /// In Redis.
    Redis(RedisConfig),
}

impl StoreConfig {
    /// Whether both say the same. The clock of a script is that of the shard in every configuration.
    fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(memory), Self::Memory(other)) => memory == other,
            (Self::Redis(redis), Self::Redis(other)) => {
                (&redis.url, redis.timeout, &redis.tls_ca_pem, redis.deny_cache_entries)
                    == (&other.url, other.timeout, &other.tls_ca_pem, other.deny_cache_entries)
            }
            _ => false,
        }
    }
}

/// Where a key's state is within a Redis store: the same on all servers that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementConfig {
    /// Secret under which keys are hashed; `None`: the published one, for those who trust whoever chooses keys.
    pub secret: Option<RingSecret>,
    /// Number of partitions, 1..=4,096.
    pub partitions: u16,
    /// What stands after the hash tag in a Redis key.
    pub key_prefix: String,
}

/// A named policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// The name.
    pub name: String,
    /// The limits, each of which can be enforced exactly.
    pub limits: Limits,
    /// The verdict where the store cannot answer.
    pub on_unavailable: OnUnavailable,
    /// Share of the keys for which it is enforced, 0..=100; 0: a shadow.
    pub enforce_percent: u8,
}

/// What flags and the environment say; each wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--store`; it may hold a password.
    pub store: Option<Secret>,
    /// `--store-timeout-ms`
    pub store_timeout_ms: Option<i64>,
    /// `--deny-cache-entries`
    pub deny_cache_entries: Option<i64>,
    /// `--partitions`
    pub partitions: Option<i64>,
    /// `TOLLGATE_PLACEMENT_SECRET`
    pub placement_secret: Option<Secret>,
    /// `--log-level`
    pub log_level: Option<LogLevel>,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
}

impl Config {
    /// Reads `file`, where there is one, and puts `overrides` above it.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and [`ConfigError::Parse`] where the file is not what a configuration looks like;
    /// [`ConfigError::Invalid`] with every value that does not do.
    pub fn load(file: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        let written = file.map(file::FileConfig::read).transpose()?.unwrap_or_default();
        check::check(file, written, overrides)
    }

    /// The placement of keys.
    pub fn placement(&self) -> Placement {
        let PlacementConfig { secret, partitions, key_prefix } = &self.placement;
        Placement::new(secret.unwrap_or_default(), *partitions, key_prefix)
    }

    /// The named policies, ready to decide, and their names.
    ///
    /// # Errors
    /// None for a configuration from [`Config::load`], which refuses limits that cannot be enforced exactly.
    pub fn ready_policies(&self, metrics: &Metrics) -> Result<Vec<(String, Policy)>, UnsupportedLimit> {
        let secret = self.placement.secret.unwrap_or_default();
        let ready = self.policies.iter().map(|policy| {
            let PolicyConfig { name, limits, on_unavailable, enforce_percent } = policy;
            let policy = Policy::named(name, limits.clone(), *on_unavailable, &secret, metrics)?;
            Ok((name.clone(), policy.with_enforcement(Enforcement::new(*enforce_percent, secret))))
        });
        ready.collect()
    }

    /// What is different in `other` and cannot be changed while a server runs, by the keys of the file: all but the
    /// policies.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let fixed = [
            ("listen", self.listen == other.listen),
            ("admin", self.admin == other.admin),
            ("log", self.log == other.log),
            ("connection", self.connection == other.connection),
            ("store, memory and redis", self.store.is_as(&other.store) && self.placement == other.placement),
            ("on_unavailable, for inline policies", self.on_unavailable == other.on_unavailable),
        ];
        fixed.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests;
