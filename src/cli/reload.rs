//! The configuration of a running server is loaded again at SIGHUP and when its file has changed.
//!
//! The file is read every second. What tells of changes by itself does not see all of them: a file on a network, one
//! that is mounted into a container, a link to a directory that is exchanged. And a file of some KiB costs nothing.

use std::{convert::Infallible, fs, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    signal::unix::Signal,
    task::{JoinError, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

use super::settings::Source;
use crate::{
    config::{Config, ConfigError},
    limit::UnsupportedLimit,
    metrics::Metrics,
    policy::{PolicyChanges, PolicySwitch},
};

const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Loads the configuration of a server again.
pub(super) struct Reload {
    source: Source,
    /// What holds now: of later configurations only the policies.
    config: Config,
    policies: PolicySwitch,
    metrics: Arc<Metrics>,
    /// The bytes of the file that was loaded last.
    loaded: Option<Vec<u8>>,
}

impl Reload {
    /// For a server that was started with `config`, which came from `source`.
    pub(super) fn new(source: Source, config: Config, policies: PolicySwitch, metrics: Arc<Metrics>) -> Self {
        let loaded = source.file.as_ref().and_then(|file| fs::read(file).ok());
        Self { source, config, policies, metrics, loaded }
    }

    /// Reloads whenever there is a reason.
    pub(super) async fn run(mut self, mut hangup: Signal) -> Infallible {
        let mut ticks = interval(READ_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = self.loaded.clone();
        loop {
            let is_asked = tokio::select! {
                _ = hangup.recv() => true,
                _ = ticks.tick(), if self.source.file.is_some() => false,
            };
            let text = read(self.source.file.clone()).await;
            // Seen twice, so that a file is not taken while it is being written.
            if is_asked || (text != self.loaded && text == last) {
                self.reload().await;
                self.loaded.clone_from(&text);
            }
            last = text;
        }
    }

    async fn reload(&mut self) {
        match self.try_reload().await {
            Ok(changes) => {
                self.metrics.config_reloads.inc();
                tell(&changes);
            }
            Err(error) => {
                self.metrics.config_reload_failures.inc();
                tracing::error!("the configuration stays as it was: {error}");
            }
        }
    }

    async fn try_reload(&mut self) -> Result<PolicyChanges, ReloadError> {
        let source = self.source.clone();
        let loaded = spawn_blocking(move || source.load()).await??;
        let next = Config { policies: loaded.policies.clone(), ..self.config.clone() };
        let changes = self.policies.replace(next.ready_policies(&self.metrics)?);
        for key in next.fixed_differences(&loaded) {
            tracing::warn!("the configuration has another `{key}`: it takes effect at the next start");
        }
        self.config = next;
        Ok(changes)
    }
}

/// Why a configuration is not taken.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Limit(#[from] UnsupportedLimit),
    #[error("it could not be loaded: {0}")]
    Lost(#[from] JoinError),
}

/// The bytes of the file; `None` where there are none to be had.
async fn read(file: Option<PathBuf>) -> Option<Vec<u8>> {
    // A file on a network may take its time.
    spawn_blocking(move || fs::read(file?).ok()).await.ok()?
}

fn tell(PolicyChanges { added, changed, removed }: &PolicyChanges) {
    tracing::info!(?added, ?changed, ?removed, "the configuration was loaded again");
}
