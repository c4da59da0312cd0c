//! The order in which a batch is decided: stripe by stripe.

use std::ops::Range;

use ahash::RandomState;

use super::{STRIPES, stripe::Key};
use crate::batch::Batch;

/// Most groups that are decided under one lock.
pub(super) const RUN_GROUPS_MAX: usize = 32;

/// Valid items that are linked, or a single one.
#[derive(Clone, Copy)]
pub(super) struct Group {
    key_hash: u64,
    first: u32,
    end: u32,
}

impl Group {
    /// A group of a batch's items.
    pub(super) fn new(batch: &Batch, items: Range<usize>, hasher: &RandomState) -> Self {
        let key = Key::new(batch.key(&batch.items()[items.start]), hasher);
        // A batch comes from a frame, which has less than 2^24 bytes.
        Self { key_hash: key.hash, first: items.start as u32, end: items.end as u32 }
    }

    /// The places of the items in their batch.
    pub(super) fn items(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// The key of the items.
    pub(super) fn key<'a>(&self, batch: &'a Batch) -> Key<'a> {
        Key { bytes: batch.key(&batch.items()[self.first as usize]), hash: self.key_hash }
    }

    /// The stripe of the key.
    pub(super) fn stripe(&self) -> usize {
        (self.key_hash >> 32) as usize % STRIPES
    }
}

/// Orders groups by stripe, and within a stripe as in the batch. Batches begin with different stripes, so that
/// they do not queue up one behind the other.
pub(super) fn sort(groups: &mut [Group]) {
    let begin = groups.first().map_or(0, Group::stripe);
    groups.sort_unstable_by_key(|group| (group.stripe() ^ begin, group.first));
}

/// The runs of sorted groups: a run is decided under one lock.
pub(super) fn runs(groups: &[Group]) -> impl Iterator<Item = &[Group]> {
    let stripes = groups.chunk_by(|a, b| a.stripe() == b.stripe());
    stripes.flat_map(|groups| groups.chunks(RUN_GROUPS_MAX))
}
