//! The order in which a batch is decided: stripe by stripe, and within a stripe as in the batch.

use std::ops::Range;

use ahash::RandomState;

use super::{
    STRIPES,
    stripe::{Key, stripe_of},
};
use crate::batch::Batch;

/// Linked items, or a single one.
#[derive(Clone, Copy, Default)]
pub(super) struct Group {
    key_hash: u64,
    // A batch comes from a frame, which has less than 2^24 bytes.
    first: u32,
    end: u32,
}

impl Group {
    /// The places of the items in their batch.
    pub(super) fn items(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// The key of the items.
    pub(super) fn key<'a>(&self, batch: &'a Batch) -> Key<'a> {
        Key { bytes: batch.key(&batch.items()[self.first as usize]), hash: self.key_hash }
    }
}

/// The groups of a batch, sorted by stripe.
pub(super) struct Plan {
    /// As they stand in the batch.
    arrived: Vec<Group>,
    sorted: Vec<Group>,
}

impl Plan {
    /// No groups.
    pub(super) const fn new() -> Self {
        Self { arrived: Vec::new(), sorted: Vec::new() }
    }

    /// The groups of a batch, stripe by stripe. Batches begin with different stripes, so that they do not queue up one
    /// behind the other.
    pub(super) fn stripes(
        &mut self,
        batch: &Batch,
        hasher: &RandomState,
    ) -> impl Iterator<Item = (usize, &[Group])> {
        self.arrived.clear();
        let mut counts = [0; STRIPES];
        for items in batch.groups() {
            let key = Key::new(batch.key(&batch.items()[items.start]), hasher);
            counts[key.stripe()] += 1;
            let (first, end) = (items.start as u32, items.end as u32);
            self.arrived.push(Group { key_hash: key.hash, first, end });
        }
        let ends = self.sort(counts);
        let begin = self.arrived.first().map_or(0, |group| stripe_of(group.key_hash));
        let sorted = &self.sorted[..];
        (begin..STRIPES).chain(0..begin).filter_map(move |stripe| {
            let groups = &sorted[ends[stripe] - counts[stripe]..ends[stripe]];
            (!groups.is_empty()).then_some((stripe, groups))
        })
    }

    /// Sorts by counting, and says where the groups of each stripe end.
    fn sort(&mut self, counts: [usize; STRIPES]) -> [usize; STRIPES] {
        let mut ends = [0; STRIPES];
        let mut end = 0;
        for (stripe, count) in counts.into_iter().enumerate() {
            ends[stripe] = end;
            end += count;
        }
        self.sorted.resize(end, Group::default());
        for group in &self.arrived {
            let end = &mut ends[stripe_of(group.key_hash)];
            self.sorted[*end] = *group;
            *end += 1;
        }
        ends
    }
}
