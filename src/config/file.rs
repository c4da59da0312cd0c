//! The file as it is written: shapes and types, no meaning.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use super::{ConfigError, LogFormat, LogLevel, Secret};
use crate::policy::OnUnavailable;

/// The whole file. Numbers are wide, so that those out of range are told as such.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileConfig {
    pub(super) listen: Option<String>,
    pub(super) admin: Option<String>,
    pub(super) store: Option<Secret>,
    pub(super) on_unavailable: Option<OnUnavailable>,
    #[serde(default)]
    pub(super) log: LogSection,
    #[serde(default)]
    pub(super) connection: ConnectionSection,
    #[serde(default)]
    pub(super) memory: MemorySection,
    #[serde(default)]
    pub(super) redis: RedisSection,
    #[serde(default)]
    pub(super) policies: BTreeMap<String, PolicySection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSection {
    pub(super) level: Option<LogLevel>,
    pub(super) format: Option<LogFormat>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionSection {
    pub(super) connections_max: Option<i64>,
    pub(super) inflight_max: Option<i64>,
    pub(super) frame_bytes_max: Option<i64>,
    pub(super) items_max: Option<i64>,
    pub(super) idle_ms: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemorySection {
    pub(super) bytes_max: Option<i64>,
    pub(super) keys_max: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedisSection {
    pub(super) timeout_ms: Option<i64>,
    pub(super) deny_cache_entries: Option<i64>,
    pub(super) partitions: Option<i64>,
    pub(super) placement_secret: Option<Secret>,
    pub(super) key_prefix: Option<String>,
    pub(super) tls_ca_file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicySection {
    pub(super) limits: Vec<String>,
    pub(super) on_unavailable: Option<OnUnavailable>,
    pub(super) enforce_percent: Option<i64>,
}

impl FileConfig {
    /// Reads a file. The first thing that has not the right shape ends the reading: what follows it could not
    /// be told apart.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), text: describe(&text, &error) })
    }
}

/// The error with the line that it is about, unless that line may hold a secret.
fn describe(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    if !may_hold_secret(text, line) {
        return error.to_string().trim_end().to_owned();
    }
    let number = before.matches('\n').count() + 1;
    format!(
        "TOML parse error at line {number}, column {}, which is not shown because it may hold a secret: check \
         the name of its key, and that its value is a text in quotes",
        before[start..].chars().count() + 1
    )
}

/// A text over several lines could spread a secret over lines that do not look like one.
fn may_hold_secret(text: &str, line: &str) -> bool {
    let is_marked = line.contains("secret") || line.contains('@') || line.contains("://");
    is_marked || text.contains("\"\"\"") || text.contains("'''")
}
