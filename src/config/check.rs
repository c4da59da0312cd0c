//! From what is written to what holds: every value is looked at, every problem is told.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use tollgate_protocol::ring::RingSecret;

use super::{
    Config, ConfigError, LogConfig, Overrides, PlacementConfig, Secret, StoreConfig,
    defaults::{self, Number},
    error::{Origin, Problems},
    file::{ConnectionSection, FileConfig, MemorySection},
    policies::check_policies,
};
use crate::{
    server::ServerConfig,
    store::{
        memory::MemoryConfig,
        redis::{RedisConfig, RedisUrl, ScriptClock},
    },
};

const LISTEN_FLAG: &str = "--listen (TOLLGATE_LISTEN)";
const ADMIN_FLAG: &str = "--admin (TOLLGATE_ADMIN)";
const STORE_FLAG: &str = "--store (TOLLGATE_STORE)";
const STORE_TIMEOUT_FLAG: &str = "--store-timeout-ms (TOLLGATE_STORE_TIMEOUT_MS)";
const DENY_CACHE_ENTRIES_FLAG: &str = "--deny-cache-entries (TOLLGATE_DENY_CACHE_ENTRIES)";
const PARTITIONS_FLAG: &str = "--partitions (TOLLGATE_PARTITIONS)";
const PLACEMENT_SECRET_VARIABLE: &str = "TOLLGATE_PLACEMENT_SECRET";

/// Puts `overrides` above `written`, and checks what holds then.
pub(super) fn check(
    file: Option<&Path>,
    written: FileConfig,
    overrides: Overrides,
) -> Result<Config, ConfigError> {
    let mut problems = Problems::new(file);
    let FileConfig { redis, .. } = written;
    let on_unavailable = written.on_unavailable.unwrap_or_default();

    let listen = in_file("listen", written.listen).below(LISTEN_FLAG, overrides.listen);
    let admin = in_file("admin", written.admin).below(ADMIN_FLAG, overrides.admin);
    let url = in_file("store", written.store).below(STORE_FLAG, overrides.store);
    let timeout_ms =
        in_file("redis.timeout_ms", redis.timeout_ms).below(STORE_TIMEOUT_FLAG, overrides.store_timeout_ms);
    let deny_cache_entries = in_file("redis.deny_cache_entries", redis.deny_cache_entries)
        .below(DENY_CACHE_ENTRIES_FLAG, overrides.deny_cache_entries);
    let partitions =
        in_file("redis.partitions", redis.partitions).below(PARTITIONS_FLAG, overrides.partitions);
    let secret = in_file("redis.placement_secret", redis.placement_secret)
        .below(PLACEMENT_SECRET_VARIABLE, overrides.placement_secret);
    let tls_ca_file = in_file("redis.tls_ca_file", redis.tls_ca_file);
    let store = StoreGiven { url, timeout_ms, deny_cache_entries, tls_ca_file };

    // In the order of the file, in which problems are told.
    let (listen, admin) = (parse_listen(&mut problems, listen), parse_admin(&mut problems, admin));
    let connection = check_connection(&mut problems, &written.connection);
    let store = check_store(&mut problems, store, &written.memory);
    let partitions_number = match &store {
        StoreConfig::Redis(redis) if !redis.url.cluster => &defaults::PARTITIONS_ONE_REDIS,
        _ => &defaults::PARTITIONS,
    };

    let config = Config {
        listen,
        admin,
        log: LogConfig {
            level: overrides.log_level.or(written.log.level).unwrap_or_default(),
            format: overrides.log_format.or(written.log.format).unwrap_or_default(),
        },
        connection,
        store,
        placement: PlacementConfig {
            secret: check_secret(&mut problems, secret),
            partitions: whole(&mut problems, partitions_number, partitions) as u16,
            key_prefix: check_key_prefix(&mut problems, in_file("redis.key_prefix", redis.key_prefix)),
        },
        on_unavailable,
        policies: check_policies(&mut problems, written.policies, on_unavailable),
    };
    problems.finish(config)
}

/// A value and where it was written; nothing where nothing was said.
pub(super) struct Given<T>(Option<(Origin, T)>);

pub(super) fn in_file<T>(key: &str, value: Option<T>) -> Given<T> {
    Given(value.map(|value| (Origin::Key(key.to_owned()), value)))
}

impl<T> Given<T> {
    /// What a flag or the environment says, else this.
    fn below(self, flag: &'static str, value: Option<T>) -> Self {
        Self(value.map(|value| (Origin::Flag(flag), value)).or(self.0))
    }
}

/// A number within its range.
pub(super) fn whole(problems: &mut Problems<'_>, number: &Number, given: Given<i64>) -> u64 {
    let Number { default, range } = number;
    let value = match given.0 {
        Some((_, value)) if range.contains(&value) => value,
        Some((origin, value)) => {
            let (min, max) = (range.start(), range.end());
            problems.add(&origin, format_args!(" = {value} is out of range: choose {min} to {max}"));
            *default
        }
        None => *default,
    };
    // No range goes below 0.
    value.unsigned_abs()
}

fn check_connection(problems: &mut Problems<'_>, section: &ConnectionSection) -> ServerConfig {
    let mut whole = |number, key, value| whole(problems, number, in_file(key, value));
    // The ranges are within the types.
    ServerConfig {
        connections_max: whole(
            &defaults::CONNECTIONS_MAX,
            "connection.connections_max",
            section.connections_max,
        ) as usize,
        inflight_max: whole(&defaults::INFLIGHT_MAX, "connection.inflight_max", section.inflight_max) as u16,
        frame_bytes_max: whole(
            &defaults::FRAME_BYTES_MAX,
            "connection.frame_bytes_max",
            section.frame_bytes_max,
        ) as usize,
        items_max: whole(&defaults::ITEMS_MAX, "connection.items_max", section.items_max) as usize,
        idle_ms: whole(&defaults::IDLE_MS, "connection.idle_ms", section.idle_ms),
    }
}

fn parse_listen(problems: &mut Problems<'_>, given: Given<String>) -> SocketAddr {
    let Some((origin, text)) = given.0 else { return defaults::LISTEN };
    text.parse().unwrap_or_else(|_| {
        problems.add(
            &origin,
            format_args!(
                " = {text:?} is not an IP address and a port: write e.g. 127.0.0.1:7420, or [::]:7420 for all \
                 interfaces"
            ),
        );
        defaults::LISTEN
    })
}

fn parse_admin(problems: &mut Problems<'_>, given: Given<String>) -> Option<SocketAddr> {
    let Some((origin, text)) = given.0 else { return Some(defaults::ADMIN) };
    if text == "off" {
        return None;
    }
    let address = text.parse().ok();
    if address.is_none() {
        problems.add(
            &origin,
            format_args!(
                " = {text:?} is not an IP address and a port: write e.g. 127.0.0.1:7421, or off for none"
            ),
        );
    }
    address
}

/// What was said about a store.
struct StoreGiven {
    url: Given<Secret>,
    timeout_ms: Given<i64>,
    deny_cache_entries: Given<i64>,
    tls_ca_file: Given<String>,
}

/// What is said of the store that is not used is checked as well.
fn check_store(problems: &mut Problems<'_>, given: StoreGiven, memory: &MemorySection) -> StoreConfig {
    let memory = check_memory(problems, memory);
    let timeout = Duration::from_millis(whole(problems, &defaults::STORE_TIMEOUT_MS, given.timeout_ms));
    let deny_cache_entries =
        whole(problems, &defaults::DENY_CACHE_ENTRIES, given.deny_cache_entries) as usize;
    let tls_ca_pem = read_tls_ca(problems, given.tls_ca_file);
    match parse_store(problems, given.url) {
        Some(url) => {
            let clock = ScriptClock::Shard;
            StoreConfig::Redis(RedisConfig { url, timeout, tls_ca_pem, clock, deny_cache_entries })
        }
        None => StoreConfig::Memory(memory),
    }
}

fn check_memory(problems: &mut Problems<'_>, section: &MemorySection) -> MemoryConfig {
    let mut size = |number, key, value| whole(problems, number, in_file(key, value));
    MemoryConfig {
        bytes_max: size(&defaults::MEMORY_BYTES_MAX, "memory.bytes_max", section.bytes_max),
        keys_max: size(&defaults::MEMORY_KEYS_MAX, "memory.keys_max", section.keys_max),
    }
}

/// Where Redis is; `None`: states are kept in memory. The text is not told: it may hold a password.
fn parse_store(problems: &mut Problems<'_>, given: Given<Secret>) -> Option<RedisUrl> {
    let (origin, text) = given.0?;
    if text.expose() == defaults::STORE {
        return None;
    }
    let parsed = text.expose().parse();
    parsed.map_err(|error| problems.add(&origin, format_args!(" is not a store: {error}"))).ok()
}

fn check_secret(problems: &mut Problems<'_>, given: Given<Secret>) -> Option<RingSecret> {
    let (origin, secret) = given.0?;
    if secret.expose().is_empty() {
        problems
            .add(&origin, " is empty: write a secret of your own, the same on all servers, or leave it out");
    }
    Some(RingSecret::from_text(secret.expose()))
}

fn check_key_prefix(problems: &mut Problems<'_>, given: Given<String>) -> String {
    let Some((origin, prefix)) = given.0 else { return defaults::KEY_PREFIX.to_owned() };
    let fits = (1..=defaults::KEY_PREFIX_BYTES_MAX).contains(&prefix.len());
    if !fits || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte)) {
        problems.add(
            &origin,
            format_args!(
                " = {prefix:?} does not do: write 1 to {} ASCII letters, digits, `-`, `_`, `.`, `:`, `/`",
                defaults::KEY_PREFIX_BYTES_MAX
            ),
        );
    }
    prefix
}

/// The certificates of the authority that signed Redis's.
fn read_tls_ca(problems: &mut Problems<'_>, given: Given<String>) -> Option<Vec<u8>> {
    let (origin, path) = given.0?;
    let read = fs::read(&path);
    read.map_err(|error| {
        let text = format_args!(" = {path:?} cannot be read: {error}");
        problems.add(&origin, text);
    })
    .ok()
}
