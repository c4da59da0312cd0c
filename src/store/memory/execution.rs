//! The way of a batch through the stripes.

use std::{cell::Cell, ops::Range};

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_protocol::reply::Reason;

use super::{
    MemoryStore,
    cells::{KeyCells, Places},
    plan::{self, Group, RUN_GROUPS_MAX},
    stripe::Stripe,
};
use crate::{
    batch::Batch,
    limit::{self, Decision, Request},
    store::refuse_invalid,
};

thread_local! {
    /// Memory that the next batch of the thread uses again.
    static GROUPS: Cell<Vec<Group>> = const { Cell::new(Vec::new()) };
}

/// Decides a batch and appends its decisions to `out`.
pub(super) fn execute(store: &MemoryStore, batch: &Batch, out: &mut Vec<Decision>) {
    let (first, items) = (out.len(), batch.items().len());
    // One more, so that a single decision finds room behind them.
    out.reserve(items + 1);
    out.extend((0..items).map(|index| batch.undecided(index, Reason::Deadline)));
    if batch.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return;
    }
    let mut groups = GROUPS.take();
    groups.clear();
    let now_us = store.clock.now_us();
    Execution { store, batch, now_us, searched: false, out, first }.run(&mut groups);
    GROUPS.set(groups);
}

struct Execution<'a> {
    store: &'a MemoryStore,
    batch: &'a Batch,
    now_us: u64,
    /// Whether room was looked for in vain.
    searched: bool,
    /// The decisions of the batch, from `first` on. Those of a group are made behind them and then moved.
    out: &'a mut Vec<Decision>,
    first: usize,
}

impl<'a> Execution<'a> {
    fn run(mut self, groups: &mut Vec<Group>) {
        for items in self.batch.groups() {
            match refuse_invalid(self.batch, items.clone()) {
                None => groups.push(Group::new(self.batch, items, &self.store.hasher)),
                Some(refused) => {
                    self.out.extend(refused);
                    self.answer(items);
                }
            }
        }
        plan::sort(groups);
        for run in plan::runs(groups) {
            self.decide_run(run);
        }
    }

    /// Moves the decisions at the end to their items.
    fn answer(&mut self, items: Range<usize>) {
        let end = self.first + self.batch.items().len();
        self.out.copy_within(end.., self.first + items.start);
        self.out.truncate(end);
    }

    /// Decides groups of one stripe. All states are found before the first is used: the processor then waits
    /// for several of them at a time.
    fn decide_run(&mut self, run: &[Group]) {
        let Some(first) = run.first() else { return };
        let mut stripe = self.store.stripes[first.stripe()].0.lock();
        let found: SmallVec<[Places<'_>; RUN_GROUPS_MAX]> =
            run.iter().map(|group| self.find(group, &stripe)).collect();
        for (group, places) in run.iter().zip(found) {
            self.decide_group(group, places, &mut stripe);
            self.answer(group.items());
        }
    }

    /// Finds the states of a group's key, under the policy of its first item.
    fn find(&self, group: &Group, stripe: &Stripe) -> Places<'a> {
        let item = &self.batch.items()[group.items().start];
        let limits = self.batch.policy(item).map_or(&[][..], |policy| policy.ready());
        Places::find(limits, group.key(self.batch), stripe, &self.store.hasher)
    }

    /// Decides a group, once there is room for its states. Its decisions are then at the end of `out`.
    fn decide_group(&mut self, group: &Group, places: Places<'_>, stripe: &mut MutexGuard<'_, Stripe>) {
        let batch = self.batch;
        let items = &batch.items()[group.items()];
        let requests: SmallVec<[Request<'_>; 1]> =
            items.iter().filter_map(|item| batch.request(item).ok()).collect();
        while !self.try_decide(&requests, group, places, stripe) {
            // Others may change the stripe meanwhile: where rows were added or removed, `places` has another
            // generation than the stripe and is not used again.
            if self.searched || !MutexGuard::unlocked(stripe, || self.store.make_room()) {
                self.searched = true;
                self.out.extend(group.items().map(|index| batch.undecided(index, Reason::StoreFull)));
                return;
            }
        }
    }

    /// Decides a group; false, and nothing is done, where there is no room for a new state.
    fn try_decide(
        &mut self,
        requests: &[Request<'_>],
        group: &Group,
        places: Places<'_>,
        stripe: &mut Stripe,
    ) -> bool {
        let first = self.out.len();
        let now_us = stripe.time_us(self.now_us);
        let store = self.store;
        let mut cells = KeyCells::new(stripe, group.key(self.batch), places, &store.hasher, &store.bounds);
        limit::decide(requests, &mut cells, now_us, self.out);
        let is_full = cells.is_full();
        if is_full {
            cells.undo();
            self.out.truncate(first);
        }
        !is_full
    }
}
