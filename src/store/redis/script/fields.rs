//! The fields of the hash that a call touches, each once.

use ahash::RandomState;
use hashbrown::{HashTable, hash_table::Entry};

use crate::limit::StateId;

/// Distinct fields, in the order in which they came. The name of a field is the id of a state, and the key. Those of
/// one policy and key follow one another.
#[derive(Debug)]
pub(super) struct Fields {
    /// Their names, one after another.
    names: Vec<u8>,
    /// Where each name ends.
    ends: Vec<usize>,
    /// Of each policy and key: the first field.
    firsts: HashTable<u16>,
    hasher: RandomState,
}

/// About what a name has.
const NAME_BYTES: usize = 32;

impl Fields {
    /// Room for about this many.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            names: Vec::with_capacity(count * NAME_BYTES),
            ends: Vec::with_capacity(count),
            firsts: HashTable::with_capacity(count),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|index| name(&self.names, &self.ends, index))
    }

    /// Index of the first field of a key under limits whose states have these ids; the other fields follow it. There
    /// is at least one id, and the ids of different policies differ.
    pub(super) fn add(&mut self, ids: impl Iterator<Item = StateId> + Clone, key: &[u8]) -> u16 {
        let Some(first_id) = ids.clone().next() else { return 0 };
        let Self { names, ends, firsts, hasher } = self;
        let hash = |id: &[u8], key: &[u8]| hasher.hash_one((id, key));
        let own_id = first_id.0.to_le_bytes();
        let is_it = |&index: &u16| {
            let (id, other) = name(names, ends, usize::from(index)).split_at(own_id.len());
            id == own_id && other == key
        };
        let rehash = |&index: &u16| {
            let (id, key) = name(names, ends, usize::from(index)).split_at(own_id.len());
            hash(id, key)
        };
        match firsts.entry(hash(&own_id, key), is_it, rehash) {
            Entry::Occupied(first) => *first.get(),
            Entry::Vacant(place) => {
                let index = ends.len() as u16;
                place.insert(index);
                for id in ids {
                    names.extend_from_slice(&id.0.to_le_bytes());
                    names.extend_from_slice(key);
                    ends.push(names.len());
                }
                index
            }
        }
    }
}

fn name<'a>(names: &'a [u8], ends: &[usize], index: usize) -> &'a [u8] {
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &names[start..ends[index]]
}
