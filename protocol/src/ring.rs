//! Consistent hashing of keys to nodes: servers in a client, partitions in a server.
//!
//! Each node stands at [`POINTS`] points of the ring; a key belongs to the node of the first point at or
//! after its hash. Points and keys are hashed with SipHash-2-4 under a 128-bit secret, so that nobody who does
//! not know it can aim keys at a node. `SPEC.md` gives the bytes that are hashed, and golden vectors.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::hash::{BuildHasher, Hash, Hasher};

use hashring::HashRing;
use siphasher::sip::SipHasher24;

/// Points of a node on the ring. Of 100,000 keys on 128 nodes the largest share is then about 1.15 times the mean; it
/// was above 1.25 under 4 of 1,000 secrets.
pub const POINTS: u32 = 512;

/// Secret under which the ring is hashed. All that place the same keys must have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RingSecret([u8; 16]);

impl RingSecret {
    /// A secret from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A secret from a text of any length: the SipHash-2-4-128 of it under the default secret.
    pub fn from_text(text: &str) -> Self {
        let hasher = siphasher::sip128::SipHasher24::new_with_key(&Self::default().0);
        Self(hasher.hash(text.as_bytes()).as_bytes())
    }

    /// SipHash-2-4 of `bytes` under this secret.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(bytes)
    }
}

/// The published secret, for those who trust whoever chooses the keys.
impl Default for RingSecret {
    fn default() -> Self {
        Self(*b"tollgate ring v1")
    }
}

/// Never shows the secret.
impl core::fmt::Debug for RingSecret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RingSecret(..)")
    }
}

/// `hashring` hashes by `std::hash::Hash`, whose bytes are not a promise; these types write exactly the bytes
/// that the specification names.
impl BuildHasher for RingSecret {
    type Hasher = SipHasher24;

    fn build_hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.0)
    }
}

struct Key<'a>(&'a [u8]);

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

/// One point of a node: hashed as the node's name, a zero byte, and the point's number in 4 bytes.
#[derive(Clone)]
struct Point {
    node: u32,
    number: u32,
    name: Arc<[u8]>,
}

impl Hash for Point {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.name);
        state.write(&[0]);
        state.write(&self.number.to_le_bytes());
    }
}

/// A ring of nodes, known by their index.
#[derive(Clone)]
pub struct Ring {
    secret: RingSecret,
    ring: HashRing<Point, RingSecret>,
    sections: Sections,
}

impl Ring {
    /// A ring of the named nodes. Node `i` has `names[i]`; a node's points depend on its name alone, so that
    /// the same node keeps its place whichever others there are. Of nodes with the same name the first has all
    /// the keys.
    pub fn new<N: AsRef<[u8]>>(secret: RingSecret, names: impl IntoIterator<Item = N>) -> Self {
        let mut points = Vec::new();
        for (node, name) in (0..).zip(names) {
            let name: Arc<[u8]> = name.as_ref().into();
            points.extend((0..POINTS).map(|number| Point { node, number, name: Arc::clone(&name) }));
        }
        let sections =
            Sections::new(points.iter().map(|point| (secret.hash_one(point), point.node)).collect());
        let mut ring = HashRing::with_hasher(secret);
        ring.batch_add(points);
        Self { secret, ring, sections }
    }

    /// Index of the node that a key belongs to; `None` where the ring has no node.
    pub fn node(&self, key: &[u8]) -> Option<usize> {
        self.sections
            .node(self.secret.hash(key))
            .or_else(|| self.ring.get(&Key(key)).map(|point| point.node as usize))
    }
}

/// The ring cut into sections of the same length, many for each point. Most have no point within, so that all
/// hashes of such a section belong to the same node, and the ring need not be searched.
#[derive(Clone)]
struct Sections {
    /// By how much a hash is shifted to be the index of its section.
    shift: u32,
    /// Of each section: its node, or [`Sections::DIVIDED`].
    nodes: Box<[u16]>,
}

impl Sections {
    /// The section has a point within, or a node without a `u16`.
    const DIVIDED: u16 = u16::MAX;

    const PER_POINT: usize = 8;

    /// Most sections: 1 MiB.
    const COUNT_MAX: usize = 1 << 19;

    /// Cuts the ring of these points: hash and node of each.
    fn new(mut points: Vec<(u64, u32)>) -> Self {
        points.sort_unstable();
        let count = (points.len() * Self::PER_POINT).next_power_of_two().clamp(2, Self::COUNT_MAX);
        let shift = u64::BITS - count.trailing_zeros();
        let mut points = points.iter().peekable();
        // After the last point the ring begins anew.
        let first = points.peek().map_or(Self::DIVIDED.into(), |(_, node)| *node);
        let node = |section: u64| {
            let next = points.peek().map_or(first, |(_, node)| *node);
            let mut is_divided = false;
            while points.next_if(|(hash, _)| hash >> shift == section).is_some() {
                is_divided = true;
            }
            if is_divided { Self::DIVIDED } else { u16::try_from(next).unwrap_or(Self::DIVIDED) }
        };
        Self { shift, nodes: (0..count as u64).map(node).collect() }
    }

    /// The node of a hash, where its section has one.
    fn node(&self, hash: u64) -> Option<usize> {
        let node = self.nodes[(hash >> self.shift) as usize];
        (node != Self::DIVIDED).then_some(usize::from(node))
    }
}

impl core::fmt::Debug for Ring {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring").field("points", &self.ring.len()).finish()
    }
}
