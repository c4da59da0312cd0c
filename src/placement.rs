//! Where a key's state is: key -> partition -> hash tag -> slot.
//!
//! The ring places keys in partitions, so that another number of partitions moves only a share of the keys. A
//! partition is a hash tag whose slot is chosen so that the slots of all partitions are evenly spaced. The tag
//! stands first in the Redis key, so that braces in a client's key mean nothing.

use crc::{CRC_16_XMODEM, Crc};
use tollgate_protocol::ring::{Ring, RingSecret};

/// Slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// Most partitions: enough for 128 shards and more, and a ring of 2 million points, some 50 MB.
pub const PARTITIONS_MAX: u16 = 4_096;

const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The partitions of a server; the same on all servers of a cluster.
#[derive(Debug)]
pub struct Placement {
    ring: Ring,
    partitions: Vec<Partition>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// What stands between the braces of its Redis key.
    pub tag: String,
    /// The Redis Cluster slot of the tag.
    pub slot: u16,
    /// The Redis key of the hash that holds its states.
    pub redis_key: String,
}

impl Placement {
    /// A placement in `count` partitions, 1..=4,096, under a secret; `prefix` stands after the tag.
    pub fn new(secret: RingSecret, count: u16, prefix: &str) -> Self {
        let count = count.clamp(1, PARTITIONS_MAX);
        let tags = tags_of_slots();
        let partition = |index: u16| {
            let slot = (u32::from(index) * u32::from(SLOTS) / u32::from(count)) as u16;
            let tag = tags[usize::from(slot)].to_string();
            Partition { redis_key: format!("{{{tag}}}{prefix}"), tag, slot }
        };
        Self {
            ring: Ring::new(secret, (0..count).map(|index| index.to_string())),
            partitions: (0..count).map(partition).collect(),
        }
    }

    /// Index of the partition of a key.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        // A placement has at least one partition, so that the ring has a node.
        self.ring.node(key).unwrap_or(0)
    }

    /// All partitions, by index.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }
}

/// The smallest whole number, as text, that hashes to each slot.
fn tags_of_slots() -> Vec<u32> {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    let mut number = 0;
    while missing > 0 {
        let slot = usize::from(CRC16.checksum(number.to_string().as_bytes()) % SLOTS);
        if tags[slot].is_none() {
            tags[slot] = Some(number);
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_evenly_spaced_and_those_of_their_tags() {
        for count in [1, 3, 64, 100, 1_000] {
            let placement = Placement::new(RingSecret::default(), count, "t");
            let slots: Vec<u16> = placement.partitions().iter().map(|partition| partition.slot).collect();
            assert_eq!(slots.len(), usize::from(count));
            let step = SLOTS / count;
            assert!(slots.windows(2).all(|pair| [step, step + 1].contains(&(pair[1] - pair[0]))), "{count}");
            for partition in placement.partitions() {
                assert_eq!(CRC16.checksum(partition.tag.as_bytes()) % SLOTS, partition.slot);
                assert_eq!(partition.redis_key, format!("{{{}}}t", partition.tag));
            }
        }
    }

    /// These are what Redis's CLUSTER KEYSLOT says of the tags, and must never change: states would be lost.
    #[test]
    fn golden_tags_and_keys() {
        let placement = Placement::new(RingSecret::default(), 64, "tollgate");
        let of = |index: usize| {
            let Partition { tag, slot, redis_key } = &placement.partitions()[index];
            (tag.as_str(), *slot, redis_key.as_str())
        };
        assert_eq!(of(0), GOLDEN_PARTITIONS[0]);
        assert_eq!(of(1), GOLDEN_PARTITIONS[1]);
        assert_eq!(of(63), GOLDEN_PARTITIONS[2]);
        for (key, partition) in GOLDEN_KEYS {
            assert_eq!(placement.partition_of(key.as_bytes()), partition, "{key}");
        }
    }

    const GOLDEN_PARTITIONS: [(&str, u16, &str); 3] =
        [("3560", 0, "{3560}tollgate"), ("2464", 256, "{2464}tollgate"), ("49727", 16128, "{49727}tollgate")];
    const GOLDEN_KEYS: [(&str, usize); 4] = [("user:1", 26), ("user:2", 59), ("{a}b", 18), ("x", 3)];
}
