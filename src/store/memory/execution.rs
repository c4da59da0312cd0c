//! The way of a batch through the stripes.

use std::{cell::RefCell, hint::black_box};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_protocol::reply::Reason;

use super::{
    MemoryStore,
    cells::{KeyCells, Places},
    plan::{Group, Plan},
    stripe::Stripe,
};
use crate::{
    batch::Batch,
    limit::{self, Decision, Request, decide::refuse},
    store::refuse_invalid,
    sync::MutexGuard,
};

/// Most groups that are decided under one lock.
const RUN_GROUPS_MAX: usize = 32;

thread_local! {
    /// Its memory is used again by the next batch of the thread.
    static PLAN: RefCell<Plan> = const { RefCell::new(Plan::new()) };
}

/// Decides a batch and appends its decisions to `out`.
pub(super) fn execute(store: &MemoryStore, batch: &Batch, out: &mut Vec<Decision>) {
    PLAN.with_borrow_mut(|plan| execute_by(plan, store, batch, out));
}

/// As [`execute`], in the memory of `plan`.
pub(super) fn execute_by(plan: &mut Plan, store: &MemoryStore, batch: &Batch, out: &mut Vec<Decision>) {
    let items = batch.items().len();
    if batch.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        out.extend((0..items).map(|index| batch.undecided(index, Reason::Deadline)));
        return;
    }
    let first = out.len();
    out.resize(first + items, refuse(Reason::Unavailable));
    let now_us = store.clock.now_us();
    Execution { store, batch, now_us, searched: false, decisions: &mut out[first..] }.run(plan);
}

struct Execution<'a> {
    store: &'a MemoryStore,
    batch: &'a Batch,
    now_us: u64,
    /// Whether room was looked for in vain.
    searched: bool,
    /// The decisions of the batch, in the order of its items.
    decisions: &'a mut [Decision],
}

impl<'a> Execution<'a> {
    fn run(mut self, plan: &mut Plan) {
        for (stripe, groups) in plan.stripes(self.batch, &self.store.hasher) {
            for run in groups.chunks(RUN_GROUPS_MAX) {
                self.decide_run(stripe, run);
            }
        }
    }

    /// Decides groups of one stripe. The states of all are touched before the first is used: the processor then waits
    /// for many of them at a time.
    fn decide_run(&mut self, stripe: usize, groups: &[Group]) {
        let mut stripe = self.store.stripes[stripe].0.lock();
        let mut places = SmallVec::<[Places<'_>; RUN_GROUPS_MAX]>::new();
        for group in groups {
            places.push(self.guess(group, &stripe));
        }
        black_box(places.iter().fold(0, |bits, places| bits ^ places.touch(&stripe)));
        for (group, places) in groups.iter().zip(&mut places) {
            places.confirm(group.key(self.batch), &stripe, &self.store.hasher);
            self.decide_group(group, places, &mut stripe);
        }
    }

    /// Says where the states probably are that the first item of a group asks for.
    fn guess(&self, group: &Group, stripe: &Stripe) -> Places<'a> {
        let request = self.batch.request(&self.batch.items()[group.items().start]);
        let limits = request.map_or(&[][..], |request| request.limits);
        Places::guess(limits, group.key(self.batch), stripe, &self.store.hasher)
    }

    /// Decides a group.
    fn decide_group(&mut self, group: &Group, places: &Places<'_>, stripe: &mut MutexGuard<'_, Stripe>) {
        let batch = self.batch;
        let items = &batch.items()[group.items()];
        if let [item] = items {
            match batch.request(item) {
                Ok(request) => self.decide_valid(&[request], group, places, stripe),
                Err(reason) => self.decisions[group.items()].fill(refuse(reason)),
            }
        } else if let Some(refused) = refuse_invalid(batch, group.items()) {
            self.decisions[group.items()].copy_from_slice(&refused);
        } else {
            let requests: Vec<_> = items.iter().filter_map(|item| batch.request(item).ok()).collect();
            self.decide_valid(&requests, group, places, stripe);
        }
    }

    /// Decides the valid requests of a group, once there is room for their states.
    fn decide_valid(
        &mut self,
        requests: &[Request<'_>],
        group: &Group,
        places: &Places<'_>,
        stripe: &mut MutexGuard<'_, Stripe>,
    ) {
        while !self.try_decide(requests, group, places, stripe) {
            // Others may change the stripe meanwhile: where rows were added or removed, `places` has another
            // generation than the stripe and is not used again.
            if self.searched {
                for item in group.items() {
                    self.decisions[item] = self.batch.undecided(item, Reason::StoreFull);
                }
                return;
            }
            // Tried again also where none was found: what the sweep removes meanwhile is found by nobody else.
            self.searched = !MutexGuard::unlocked(stripe, || self.store.make_room());
        }
    }

    /// Decides the valid requests of a group; false, and no state is changed, where there is no room for a new one.
    fn try_decide(
        &mut self,
        requests: &[Request<'_>],
        group: &Group,
        places: &Places<'_>,
        stripe: &mut Stripe,
    ) -> bool {
        let now_us = stripe.time_us(self.now_us);
        let mut cells = KeyCells::new(stripe, group.key(self.batch), places, requests, self.store);
        limit::decide(requests, &mut cells, now_us, &mut self.decisions[group.items()]);
        let is_full = cells.is_full();
        if is_full {
            cells.undo();
        }
        !is_full
    }
}
