//! What holds where nothing is said, and the range of each number.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
};

use tollgate_protocol::limits;

use crate::{
    placement::PARTITIONS_MAX,
    server::{CONNECTIONS_DEFAULT, IDLE_MS_DEFAULT},
};

/// Where clients connect: this machine alone, until an operator says other.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420);
/// Where metrics and health are served.
pub const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7421);
/// Where states are kept.
pub const STORE: &str = "memory";
/// What stands after the hash tag in a Redis key.
pub const KEY_PREFIX: &str = "tollgate";
/// Longest key prefix, in bytes.
pub const KEY_PREFIX_BYTES_MAX: usize = 64;

/// A number of the configuration: its default and its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// Where nothing is said.
    pub default: i64,
    /// What may be said.
    pub range: RangeInclusive<i64>,
}

const fn number(default: i64, min: i64, max: i64) -> Number {
    Number { default, range: min..=max }
}

/// `connection.connections_max`
pub const CONNECTIONS_MAX: Number = number(CONNECTIONS_DEFAULT as i64, 1, 1_000_000);
/// `connection.inflight_max`
pub const INFLIGHT_MAX: Number = number(limits::INFLIGHT_DEFAULT as i64, 1, u16::MAX as i64);
/// `connection.frame_bytes_max`
pub const FRAME_BYTES_MAX: Number = number(
    limits::FRAME_BYTES_DEFAULT as i64,
    limits::FRAME_BYTES_MIN as i64,
    limits::FRAME_BYTES_MAX as i64,
);
/// `connection.items_max`
pub const ITEMS_MAX: Number = number(limits::ITEMS_DEFAULT as i64, 1, 65_536);
/// `connection.idle_ms`: up to a day.
pub const IDLE_MS: Number = number(IDLE_MS_DEFAULT as i64, 1, 86_400_000);
/// `memory.bytes_max`: 4 KiB to 1 PiB.
pub const MEMORY_BYTES_MAX: Number = number(1 << 30, 1 << 12, 1 << 50);
/// `memory.keys_max`
pub const MEMORY_KEYS_MAX: Number = number(10_000_000, 1, 1 << 40);
/// `policies.*.enforce_percent`
pub const ENFORCE_PERCENT: Number = number(100, 0, 100);
/// `redis.timeout_ms`: up to a minute.
pub const STORE_TIMEOUT_MS: Number = number(50, 1, 60_000);
/// `redis.deny_cache_entries`: none to some 5 GiB of them.
pub const DENY_CACHE_ENTRIES: Number = number(1 << 16, 0, 1 << 26);
/// `redis.partitions`; see also [`PARTITIONS_ONE_REDIS`].
pub const PARTITIONS: Number = number(64, 1, PARTITIONS_MAX as i64);
/// `redis.partitions` where one Redis has them all: the fewer calls, the less a check costs.
pub const PARTITIONS_ONE_REDIS: Number = Number { default: 16, ..PARTITIONS };
