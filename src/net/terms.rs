//! What a server offers to its clients, and what comes of a HELLO.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tollgate_protocol::{
    define::Define,
    error::DecodeError,
    hello::{FEATURE_CHECKSUM, Hello, HelloOk},
    limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN},
    reply,
    ring::RingSecret,
};

use crate::{
    limit::UnsupportedLimit,
    metrics::Metrics,
    pace::Pace,
    policy::{OnUnavailable, Policy, PolicySwitch, PolicyTable},
    server::ServerConfig,
};

/// What is the same for all connections of a server.
#[derive(Debug)]
pub(crate) struct Terms {
    config: ServerConfig,
    boot_id: u64,
    secret: RingSecret,
    on_unavailable: OnUnavailable,
    /// The named policies.
    pub(crate) policies: PolicySwitch,
    /// Where everything is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Of the lines that tell of clients which break a rule or are refused.
    pub(crate) pace: Pace,
}

impl Terms {
    /// The terms of a server that starts now.
    pub(crate) fn new(
        config: ServerConfig,
        policies: PolicySwitch,
        secret: RingSecret,
        on_unavailable: OnUnavailable,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            config,
            boot_id: fastrand::u64(..),
            secret,
            on_unavailable,
            policies,
            metrics,
            pace: Pace::new(),
        }
    }

    /// After how long an idle connection is closed; `None`: never.
    pub(crate) fn idle(&self) -> Option<Duration> {
        (self.config.idle_ms > 0).then(|| Duration::from_millis(self.config.idle_ms))
    }

    /// The answer to a HELLO, which announces `policies`.
    pub(crate) fn negotiate(&self, hello: &Hello, policies: &PolicyTable) -> HelloOk {
        let frame_bytes_most = self.config.frame_bytes_max.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX) as u64;
        let inflight_most = u64::from(self.config.inflight_max.max(1));
        let frame_bytes_max =
            hello.frame_bytes_max.unwrap_or(frame_bytes_most).clamp(FRAME_BYTES_MIN as u64, frame_bytes_most);
        // A full REPLY fits in a frame.
        let items_fit = reply::items_max(frame_bytes_max as usize) as u64;
        HelloOk {
            features: hello.features & FEATURE_CHECKSUM,
            frame_bytes_max,
            items_max: (self.config.items_max as u64).clamp(1, items_fit),
            inflight_max: hello.inflight_max.unwrap_or(inflight_most).clamp(1, inflight_most),
            idle_ms: self.config.idle_ms,
            boot_id: self.boot_id,
            policies: policies.announce(),
        }
    }

    /// Makes the policy of a DEFINE ready, and says for which alias.
    ///
    /// # Errors
    /// What is wrong with the definition. It concerns no other frame.
    pub(crate) fn inline_policy(&self, payload: &Bytes) -> Result<(u64, Policy), Refusal> {
        let Define { alias, limits } = Define::decode(payload)?;
        let policy = Policy::inline(limits, self.on_unavailable, &self.secret, &self.metrics)?;
        Ok((alias, policy))
    }
}

/// Why a definition is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Unsupported(#[from] UnsupportedLimit),
}
