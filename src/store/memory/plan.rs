//! The order in which a batch is decided: stripe by stripe, and within a stripe as in the batch.

use std::ops::Range;

use ahash::RandomState;

use super::{STRIPES, stripe::Key};
use crate::batch::Batch;

/// Linked items, or a single one.
#[derive(Clone, Copy)]
pub(super) struct Group {
    key_hash: u64,
    // A batch comes from a frame, which has less than 2^24 bytes.
    first: u32,
    end: u32,
    /// The next group of the stripe.
    next: Option<u32>,
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

/// The groups of a batch, chained up by stripe.
pub(super) struct Plan {
    groups: Vec<Group>,
    /// The first and the last group of each stripe.
    chains: [Option<(u32, u32)>; STRIPES],
    /// The stripes that have groups, as they came up. Batches take locks in different orders, so that they do
    /// not queue up one behind the other.
    stripes: Vec<usize>,
}

impl Plan {
    /// No groups.
    pub(super) const fn new() -> Self {
        Self { groups: Vec::new(), chains: [None; STRIPES], stripes: Vec::new() }
    }

    /// Removes all groups and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        for stripe in self.stripes.drain(..) {
            self.chains[stripe] = None;
        }
    }

    /// Adds a group of items of a batch.
    pub(super) fn push(&mut self, batch: &Batch, items: Range<usize>, hasher: &RandomState) {
        let key = Key::new(batch.key(&batch.items()[items.start]), hasher);
        let (stripe, new) = (key.stripe(), self.groups.len() as u32);
        self.groups.push(Group {
            key_hash: key.hash,
            first: items.start as u32,
            end: items.end as u32,
            next: None,
        });
        match &mut self.chains[stripe] {
            Some((_, last)) => {
                self.groups[*last as usize].next = Some(new);
                *last = new;
            }
            chain => {
                *chain = Some((new, new));
                self.stripes.push(stripe);
            }
        }
    }

    /// The stripes that have groups.
    pub(super) fn stripes(&self) -> &[usize] {
        &self.stripes
    }

    /// The groups of a stripe.
    pub(super) fn groups(&self, stripe: usize) -> Chain<'_> {
        Chain { groups: &self.groups, next: self.chains[stripe].map(|(first, _)| first) }
    }
}

/// The groups of a stripe, in the order of the batch.
pub(super) struct Chain<'a> {
    groups: &'a [Group],
    next: Option<u32>,
}

impl Chain<'_> {
    /// Whether there is no next one.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_none()
    }
}

impl Iterator for Chain<'_> {
    type Item = Group;

    fn next(&mut self) -> Option<Group> {
        let group = self.groups[self.next? as usize];
        self.next = group.next;
        Some(group)
    }
}
