//! Flags that override the configuration, shared by the commands that read one.

use std::{
    env::{self, VarError},
    path::PathBuf,
};

use clap::Args;

use super::{CliError, usage};
use crate::config::{Config, ConfigError, Overrides, Secret};

const PLACEMENT_SECRET: &str = "TOLLGATE_PLACEMENT_SECRET";

/// Where a configuration is, and what it says of the store.
#[derive(Args)]
pub(super) struct StoreArgs {
    /// Configuration in TOML; flags and the environment win over it
    #[arg(long, env = "TOLLGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where states are kept
    ///
    /// `memory`; redis://[user:password@]host:port[/database] or rediss://… (TLS) for one Redis;
    /// redis-cluster://[user:password@]host:port,host:port or rediss-cluster://… (TLS) for a Redis Cluster.
    /// Set a URL with a password in the environment or the file: others on this machine can see flags.
    #[arg(long, env = "TOLLGATE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// Partitions that keys are placed in, the same on all servers
    #[arg(long, env = "TOLLGATE_PARTITIONS", value_name = "N")]
    partitions: Option<i64>,

    /// Milliseconds after which a call to Redis is given up
    #[arg(long, env = "TOLLGATE_STORE_TIMEOUT_MS", value_name = "MS")]
    store_timeout_ms: Option<i64>,
}

/// Where a configuration comes from. It can be loaded again.
#[derive(Clone)]
pub(super) struct Source {
    /// The file, if there is one.
    pub(super) file: Option<PathBuf>,
    overrides: Overrides,
}

impl StoreArgs {
    /// The configuration under these flags and `others`.
    pub(super) fn source(self, others: Overrides) -> Result<Source, CliError> {
        let overrides = Overrides {
            store: self.store.map(Secret::from),
            partitions: self.partitions,
            store_timeout_ms: self.store_timeout_ms,
            placement_secret: placement_secret()?,
            ..others
        };
        Ok(Source { file: self.config, overrides })
    }
}

impl Source {
    /// Loads the configuration as it is now.
    pub(super) fn load(&self) -> Result<Config, ConfigError> {
        Config::load(self.file.as_deref(), self.overrides.clone())
    }
}

/// The secret is no flag: others on the machine can see flags.
fn placement_secret() -> Result<Option<Secret>, CliError> {
    match env::var(PLACEMENT_SECRET) {
        Ok(secret) => Ok(Some(secret.into())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(usage(format_args!("{PLACEMENT_SECRET} is not UTF-8: set it to a text")))
        }
    }
}
