//! One stripe: the states of the keys whose hash falls in it.

use ahash::RandomState;
use hashbrown::HashTable;

use super::{
    STRIPES,
    bounds::{Bounds, counted_bytes},
    row::{self, ROW_BYTES_STEP, row_bytes},
    rows::Rows,
};
use crate::limit::{CLOCK_STEP_US_MAX, State, StateId};

/// A key and its hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) hash: u64,
}

impl<'a> Key<'a> {
    pub(super) fn new(bytes: &'a [u8], hasher: &RandomState) -> Self {
        Self { bytes, hash: hasher.hash_one(bytes) }
    }

    /// The number of the key's stripe.
    pub(super) fn stripe(&self) -> usize {
        stripe_of(self.hash)
    }

    /// The hash of one of the key's states.
    fn state_hash(&self, id: StateId, hasher: &RandomState) -> u64 {
        hasher.hash_one(self.hash ^ id.0)
    }
}

/// The number of the stripe of a key with this hash.
pub(super) fn stripe_of(key_hash: u64) -> usize {
    (key_hash >> 32) as usize % STRIPES
}

/// Where a row stands: 8 bits for the length of the row, 24 for its index among the rows of that length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RowId(u32);

const INDEX_BITS: u32 = 24;

impl RowId {
    fn new(class: usize, index: usize) -> Self {
        Self((class as u32) << INDEX_BITS | index as u32)
    }

    fn class(self) -> usize {
        (self.0 >> INDEX_BITS) as usize
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
}

/// Rows in classes by their length. Class 0 has the shortest.
fn class_of(key_bytes: usize) -> usize {
    (row_bytes(key_bytes) - row_bytes(1)) / ROW_BYTES_STEP
}

/// What a step of reclaiming did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// States looked at.
    pub(super) visited: usize,
    /// States removed.
    pub(super) reclaimed: u64,
    /// Whether the step came to the end of the stripe.
    pub(super) finished: bool,
}

/// States of some keys.
#[derive(Default)]
pub(super) struct Stripe {
    index: HashTable<RowId>,
    classes: Vec<Rows>,
    /// Counts the rows that were added and removed.
    generation: u64,
    /// The latest time by which a state was reclaimed.
    reclaimed_at_us: u64,
    /// Where the next step of reclaiming goes on: a class, and the end of its rows that are not yet visited;
    /// `None` where none of them is.
    cursor: (usize, Option<usize>),
}

impl Stripe {
    /// The time to decide by. A batch that read the clock before a state was reclaimed must not see the state's
    /// absence as of then: it decides as of the reclaiming, as the arithmetic does with a clock that is behind.
    pub(super) fn time_us(&mut self, now_us: u64) -> u64 {
        if self.reclaimed_at_us.saturating_sub(now_us) > CLOCK_STEP_US_MAX {
            self.reclaimed_at_us = now_us;
        }
        now_us.max(self.reclaimed_at_us)
    }

    /// Changes whenever what [`Stripe::guess`] and [`Stripe::find`] gave is no longer valid.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Where a state is, if it is anywhere: found without a look at its row, and wrong for one state in some hundred.
    pub(super) fn guess(&self, id: StateId, key: Key<'_>, hasher: &RandomState) -> Option<RowId> {
        let class = class_of(key.bytes.len());
        self.index.find(key.state_hash(id, hasher), |at| at.class() == class).copied()
    }

    /// Reads a little of a row, so that the processor has it soon; what it read means nothing.
    pub(super) fn touch(&self, at: RowId) -> u8 {
        row::touch(self.row(at))
    }

    /// Whether a state is at a place that [`Stripe::guess`] gave.
    pub(super) fn is_at(&self, at: RowId, id: StateId, key: Key<'_>) -> bool {
        row::belongs_to(self.row(at), id, key.bytes)
    }

    /// Finds a state.
    pub(super) fn find(&self, id: StateId, key: Key<'_>, hasher: &RandomState) -> Option<RowId> {
        let class = class_of(key.bytes.len());
        let is_it = |at: &RowId| at.class() == class && self.is_at(*at, id, key);
        self.index.find(key.state_hash(id, hasher), is_it).copied()
    }

    fn row(&self, at: RowId) -> &[u8] {
        self.classes[at.class()].row(at.index())
    }

    /// The state at a place that [`Stripe::find`] gave.
    pub(super) fn get(&self, at: RowId) -> Option<State> {
        row::state(self.row(at))
    }

    /// Replaces the state at a place that [`Stripe::find`] gave.
    pub(super) fn replace(&mut self, at: RowId, state: State) {
        row::write_state(self.classes[at.class()].row_mut(at.index()), state);
    }

    /// Adds a state that is not there; false where there is no room.
    pub(super) fn insert(
        &mut self,
        id: StateId,
        key: Key<'_>,
        state: State,
        hasher: &RandomState,
        bounds: &Bounds,
    ) -> bool {
        let class = class_of(key.bytes.len());
        for new_class in self.classes.len()..=class {
            self.classes.push(Rows::new(row_bytes(1) + new_class * ROW_BYTES_STEP));
        }
        let index = self.classes[class].len();
        if index >> INDEX_BITS != 0 || !bounds.take(counted_bytes(key.bytes.len())) {
            return false;
        }
        self.generation += 1;
        row::write(self.classes[class].push(), id, key.bytes, state);
        let classes = &self.classes;
        self.index.insert_unique(key.state_hash(id, hasher), RowId::new(class, index), |&at| {
            row_hash(classes, at, hasher)
        });
        true
    }

    /// Removes the state at a place that [`Stripe::find`] gave.
    pub(super) fn remove(&mut self, at: RowId, hasher: &RandomState, bounds: &Bounds) {
        bounds.give_back(1, self.unlink(at, hasher));
    }

    /// Removes a state and says how many bytes were counted for it.
    fn unlink(&mut self, at: RowId, hasher: &RandomState) -> u64 {
        self.generation += 1;
        if let Ok(entry) = self.index.find_entry(row_hash(&self.classes, at, hasher), |other| *other == at) {
            entry.remove();
        }
        let rows = &self.classes[at.class()];
        let bytes = counted_bytes(row::key(rows.row(at.index())).len());
        let last = RowId::new(at.class(), rows.len() - 1);
        if last != at {
            let last_hash = row_hash(&self.classes, last, hasher);
            if let Some(moved) = self.index.find_mut(last_hash, |other| *other == last) {
                *moved = at;
            }
        }
        self.classes[at.class()].swap_remove(at.index());
        bytes
    }

    /// Looks at up to `rows_max` states, from where the last step ended, and removes those that are the same as
    /// none at `now_us`.
    pub(super) fn reclaim(
        &mut self,
        now_us: u64,
        rows_max: usize,
        hasher: &RandomState,
        bounds: &Bounds,
    ) -> Step {
        let now_us = self.time_us(now_us);
        let mut step = Step::default();
        let mut bytes = 0;
        while step.visited < rows_max {
            let Some(at) = self.next_row() else {
                step.finished = true;
                self.shrink(hasher);
                break;
            };
            step.visited += 1;
            if self.get(at).is_none_or(|state| state.expires_at_us() <= now_us) {
                bytes += self.unlink(at, hasher);
                step.reclaimed += 1;
                self.reclaimed_at_us = now_us;
            }
        }
        bounds.give_back(step.reclaimed, bytes);
        step
    }

    /// The next row of the pass; `None` at its end. Goes from the last row of a class to the first, so that
    /// what takes the place of a removed row was visited.
    fn next_row(&mut self) -> Option<RowId> {
        loop {
            let (class, end) = self.cursor;
            let Some(rows) = self.classes.get(class) else {
                self.cursor = (0, None);
                return None;
            };
            let end = end.map_or(rows.len(), |end| end.min(rows.len()));
            if let Some(index) = end.checked_sub(1) {
                self.cursor.1 = Some(index);
                return Some(RowId::new(class, index));
            }
            self.cursor = (class + 1, None);
        }
    }

    /// Gives memory back after many states were removed.
    fn shrink(&mut self, hasher: &RandomState) {
        self.classes.iter_mut().for_each(Rows::shrink);
        let (len, classes) = (self.index.len(), &self.classes);
        if self.index.capacity() > 4 * len {
            self.index.shrink_to(2 * len, |&at| row_hash(classes, at, hasher));
        }
    }

    /// Bytes from the allocator.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        let classes = self.classes.capacity() * size_of::<Rows>();
        classes + self.index.allocation_size() + self.classes.iter().map(Rows::allocated_bytes).sum::<usize>()
    }
}

/// The hash of the state in a row.
fn row_hash(classes: &[Rows], at: RowId, hasher: &RandomState) -> u64 {
    let row = classes[at.class()].row(at.index());
    Key::new(row::key(row), hasher).state_hash(row::id(row), hasher)
}
