//! The ring: its golden vectors, and what it promises.

use std::collections::BTreeMap;

use proptest::{collection::btree_set, prelude::*};
use tollgate_protocol::ring::{POINTS, Ring, RingSecret};

use crate::{
    golden::{bytes_of, check_all},
    specification::bounds,
};

fn secret_of(hex: &str) -> RingSecret {
    RingSecret::from_bytes(bytes_of(hex).try_into().expect("16 bytes"))
}

#[test]
fn vectors() {
    check_all("ring.txt", |entry| {
        let secret = secret_of(&entry.need("secret_hex"));
        let text = entry.take("secret_text");
        if let Some(text) = &text {
            assert!(RingSecret::from_text(text) == secret, "{text}");
        }
        if let Some(hash) = entry.take("hash") {
            assert_eq!(format!("{:016x}", secret.hash(&entry.bytes())), hash);
        } else if let Some(nodes) = entry.take("nodes") {
            let nodes: Vec<&str> = nodes.lines().collect();
            let ring = Ring::new(secret, &nodes);
            for place in entry.need("places").lines() {
                let (key, node) = place.split_once(" -> ").expect("`key -> node`");
                assert_eq!(ring.node(key.as_bytes()).map(|index| nodes[index]), Some(node), "{key}");
            }
        } else {
            assert!(text.is_some(), "{}: nothing is said of the secret", entry.name);
        }
    });
    let default = secret_of("74 6f 6c 6c 67 61 74 65 20 72 69 6e 67 20 76 31");
    assert!(RingSecret::default() == default, "the default secret");
}

/// The ring as SPEC.md describes it, step by step.
fn by_the_book(secret: RingSecret, names: &[String], key: &[u8]) -> Option<usize> {
    let mut points = BTreeMap::new();
    for (node, name) in names.iter().enumerate() {
        for number in 0..POINTS {
            let bytes = [name.as_bytes(), &[0], &number.to_le_bytes()].concat();
            points.insert(secret.hash(&bytes), node);
        }
    }
    let at_or_after = points.range(secret.hash(key)..).next();
    at_or_after.or_else(|| points.iter().next()).map(|(_, &node)| node)
}

fn names() -> impl Strategy<Value = Vec<String>> {
    btree_set("[a-z0-9.:]{0,12}", 1..6).prop_map(|names| names.into_iter().collect())
}

/// The name of the node that has a key.
fn owner<'a>(ring: &Ring, names: &'a [String], key: &str) -> &'a str {
    &names[ring.node(key.as_bytes()).expect("a ring with nodes")]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_key_is_where_the_specification_says(secret: [u8; 16], names in names(), key: Vec<u8>) {
        let secret = RingSecret::from_bytes(secret);
        prop_assert_eq!(Ring::new(secret, &names).node(&key), by_the_book(secret, &names, &key));
    }

    /// Read backwards: a node that is added takes keys, and none moves between the others.
    #[test]
    fn a_node_that_leaves_moves_its_own_keys_alone(
        secret: [u8; 16],
        names in names(),
        leaving: prop::sample::Index,
    ) {
        let secret = RingSecret::from_bytes(secret);
        let mut fewer = names.clone();
        let left = fewer.remove(leaving.index(names.len()));
        prop_assume!(!fewer.is_empty());
        let (before, after) = (Ring::new(secret, &names), Ring::new(secret, &fewer));
        for key in (0..500).map(|number| format!("user:{number}")) {
            let (old, new) = (owner(&before, &names, &key), owner(&after, &fewer, &key));
            prop_assert!(old == new || old == left, "{key} moved from {old} to {new}");
        }
    }
}

#[test]
fn points_are_those_of_the_specification() {
    assert_eq!(bounds()["POINTS"], u64::from(POINTS));
}

#[test]
fn a_ring_without_nodes_has_no_keys() {
    assert_eq!(Ring::new(RingSecret::default(), [""; 0]).node(b"user:1"), None);
}

#[test]
fn the_secret_is_never_shown() {
    let shown = format!("{:?}", RingSecret::from_text("correct horse battery staple"));
    assert_eq!(shown, "RingSecret(..)");
}

/// Keys of the fullest of 128 partitions, over their mean.
fn fullest_over_mean(secret: RingSecret) -> f64 {
    const PARTITIONS: usize = 128;
    const KEYS: u32 = 100_000;
    let ring = Ring::new(secret, (0..PARTITIONS).map(|partition| partition.to_string()));
    let mut keys = [0u32; PARTITIONS];
    for number in 0..KEYS {
        keys[ring.node(format!("user:{number}").as_bytes()).expect("a ring with nodes")] += 1;
    }
    let fullest = keys.into_iter().max().expect("partitions");
    f64::from(fullest) * PARTITIONS as f64 / f64::from(KEYS)
}

#[test]
fn partitions_are_balanced() {
    let others = ["1", "2", "3", "4", "5", "6", "7"].map(RingSecret::from_text);
    for (number, secret) in [RingSecret::default()].into_iter().chain(others).enumerate() {
        let ratio = fullest_over_mean(secret);
        assert!(ratio <= 1.25, "secret {number}: the fullest partition has {ratio:.3} times the mean");
    }
}
