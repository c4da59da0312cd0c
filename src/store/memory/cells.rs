//! The states of one key in a locked stripe, as the arithmetic sees them.

use ahash::RandomState;
use smallvec::SmallVec;
use tollgate_protocol::limits::LIMITS_MAX;

use super::{
    MemoryStore,
    bounds::Bounds,
    stripe::{Key, RowId, Stripe},
};
use crate::limit::{Cells, PolicyLimit, Request, State, StateId};

/// Where the states of a key under some limits are.
pub(super) struct Places<'a> {
    limits: &'a [PolicyLimit],
    rows: [Option<RowId>; LIMITS_MAX],
    /// The generation of the stripe for which they are valid.
    generation: u64,
}

impl<'a> Places<'a> {
    /// Says where the states probably are, so that they can be touched before they are needed.
    pub(super) fn guess(
        limits: &'a [PolicyLimit],
        key: Key<'_>,
        stripe: &Stripe,
        hasher: &RandomState,
    ) -> Self {
        let mut rows = [None; LIMITS_MAX];
        for (row, limit) in rows.iter_mut().zip(limits) {
            *row = stripe.guess(limit.state_id, key, hasher);
        }
        Self { limits, rows, generation: stripe.generation() }
    }

    /// Lets the processor fetch the states; what it gives means nothing.
    pub(super) fn touch(&self, stripe: &Stripe) -> u8 {
        self.rows.iter().flatten().fold(0, |bits, row| bits ^ stripe.touch(*row))
    }

    /// Finds the states, as the stripe is now.
    pub(super) fn confirm(&mut self, key: Key<'_>, stripe: &Stripe, hasher: &RandomState) {
        let is_fresh = self.generation == stripe.generation();
        for (row, limit) in self.rows.iter_mut().zip(self.limits) {
            *row = match *row {
                Some(at) if is_fresh && stripe.is_at(at, limit.state_id, key) => Some(at),
                None if is_fresh => None,
                _ => stripe.find(limit.state_id, key, hasher),
            };
        }
        self.generation = stripe.generation();
    }

    /// Where the state is; the outer `None` where it was not looked for.
    fn get(&self, id: StateId) -> Option<Option<RowId>> {
        let mut places = self.limits.iter().zip(self.rows);
        places.find(|(limit, _)| limit.state_id == id).map(|(_, row)| row)
    }
}

/// The states of one key.
pub(super) struct KeyCells<'a> {
    stripe: &'a mut Stripe,
    key: Key<'a>,
    places: &'a Places<'a>,
    hasher: &'a RandomState,
    bounds: &'a Bounds,
    /// Whether there was no room for a state.
    is_full: bool,
    /// Whether more than one state may change: where there is no room for one of them, none is to.
    is_joint: bool,
    /// States before their joint change.
    before: SmallVec<[(StateId, Option<State>); LIMITS_MAX]>,
}

impl<'a> KeyCells<'a> {
    /// The states of `key` in its stripe, some of which were found before, for one use by `requests`.
    pub(super) fn new(
        stripe: &'a mut Stripe,
        key: Key<'a>,
        places: &'a Places<'a>,
        requests: &[Request<'_>],
        store: &'a MemoryStore,
    ) -> Self {
        let is_joint = !matches!(requests, [Request { limits: [_], .. }]);
        let (hasher, bounds) = (&store.hasher, &store.bounds);
        Self { stripe, key, places, hasher, bounds, is_full: false, is_joint, before: SmallVec::new() }
    }

    /// Whether there was no room for a state.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes all joint changes back, the last one first. This needs no room: only charges add states, and they
    /// remove none that would have to be added again.
    pub(super) fn undo(mut self) {
        for (id, state) in std::mem::take(&mut self.before).into_iter().rev() {
            self.write(self.find(id), id, state);
        }
    }

    fn find(&self, id: StateId) -> Option<RowId> {
        let is_valid = self.places.generation == self.stripe.generation();
        let known = if is_valid { self.places.get(id) } else { None };
        known.unwrap_or_else(|| self.stripe.find(id, self.key, self.hasher))
    }

    /// Replaces, removes or adds the state, which is now `at`.
    fn write(&mut self, at: Option<RowId>, id: StateId, state: Option<State>) {
        match (at, state) {
            (Some(at), Some(state)) => self.stripe.replace(at, state),
            (Some(at), None) => self.stripe.remove(at, self.hasher, self.bounds),
            (None, Some(state)) => {
                self.is_full |= !self.stripe.insert(id, self.key, state, self.hasher, self.bounds);
            }
            (None, None) => {}
        }
    }
}

impl Cells for KeyCells<'_> {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.find(id).and_then(|at| self.stripe.get(at))
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        let at = self.find(id);
        if self.is_joint {
            self.before.push((id, at.and_then(|at| self.stripe.get(at))));
        }
        self.write(at, id, state);
    }
}
