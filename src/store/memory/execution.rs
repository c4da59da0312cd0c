//! The way of a batch through the stripes.

use std::{cell::RefCell, ops::Range, slice};

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
    // One more, so that a decision finds room behind them.
    out.reserve(items + 1);
    out.resize(first + items, refuse(Reason::Unavailable));
    let now_us = store.clock.now_us();
    Execution { store, batch, now_us, searched: false, out, first }.run(plan);
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

/// A group, what its first item asks, and where the states for that are.
struct Found<'a> {
    group: Group,
    request: Result<Request<'a>, Reason>,
    places: Places<'a>,
}

impl<'a> Execution<'a> {
    fn run(mut self, plan: &mut Plan) {
        plan.clear();
        for items in self.batch.groups() {
            plan.push(self.batch, items, &self.store.hasher);
        }
        for &stripe in plan.stripes() {
            let mut groups = plan.groups(stripe);
            while !groups.is_empty() {
                self.decide_run(stripe, groups.by_ref().take(RUN_GROUPS_MAX));
            }
        }
    }

    /// Decides groups of one stripe. All states are found before the first is used: the processor then waits
    /// for several of them at a time.
    fn decide_run(&mut self, stripe: usize, groups: impl Iterator<Item = Group>) {
        let mut stripe = self.store.stripes[stripe].0.lock();
        let mut run = SmallVec::<[Found<'_>; RUN_GROUPS_MAX]>::new();
        for group in groups {
            run.push(self.find(group, &stripe));
        }
        for found in &run {
            self.decide_group(found, &mut stripe);
            self.answer(found.group.items());
        }
    }

    /// Finds the states that the first item of a group asks for.
    fn find(&self, group: Group, stripe: &Stripe) -> Found<'a> {
        let request = self.batch.request(&self.batch.items()[group.items().start]);
        let limits = request.map_or(&[][..], |request| request.limits);
        let places = Places::find(limits, group.key(self.batch), stripe, &self.store.hasher);
        Found { group, request, places }
    }

    /// Moves the decisions at the end to their items.
    fn answer(&mut self, items: Range<usize>) {
        let end = self.first + self.batch.items().len();
        for (decision, item) in (end..self.out.len()).zip(items) {
            self.out[self.first + item] = self.out[decision];
        }
        self.out.truncate(end);
    }

    /// Decides a group. Its decisions are then at the end of `out`.
    fn decide_group(&mut self, found: &Found<'_>, stripe: &mut MutexGuard<'_, Stripe>) {
        let batch = self.batch;
        let items = found.group.items();
        if items.len() == 1 {
            match &found.request {
                Ok(request) => self.decide_valid(slice::from_ref(request), found, stripe),
                Err(reason) => self.out.push(refuse(*reason)),
            }
        } else if let Some(refused) = refuse_invalid(batch, items.clone()) {
            self.out.extend(refused);
        } else {
            let items = &batch.items()[items];
            let requests: Vec<_> = items.iter().filter_map(|item| batch.request(item).ok()).collect();
            self.decide_valid(&requests, found, stripe);
        }
    }

    /// Decides the valid requests of a group, once there is room for their states.
    fn decide_valid(
        &mut self,
        requests: &[Request<'_>],
        found: &Found<'_>,
        stripe: &mut MutexGuard<'_, Stripe>,
    ) {
        while !self.try_decide(requests, found, stripe) {
            // Others may change the stripe meanwhile: where rows were added or removed, `places` has another
            // generation than the stripe and is not used again.
            if self.searched {
                let items = found.group.items();
                self.out.extend(items.map(|index| self.batch.undecided(index, Reason::StoreFull)));
                return;
            }
            // Tried again also where none was found: what the sweep removes meanwhile is found by nobody else.
            self.searched = !MutexGuard::unlocked(stripe, || self.store.make_room());
        }
    }

    /// Decides the valid requests of a group; false, and nothing is done, where there is no room for a new state.
    fn try_decide(&mut self, requests: &[Request<'_>], found: &Found<'_>, stripe: &mut Stripe) -> bool {
        let first = self.out.len();
        let now_us = stripe.time_us(self.now_us);
        let key = found.group.key(self.batch);
        let mut cells = KeyCells::new(stripe, key, &found.places, requests, self.store);
        limit::decide(requests, &mut cells, now_us, self.out);
        let is_full = cells.is_full();
        if is_full {
            cells.undo();
            self.out.truncate(first);
        }
        !is_full
    }
}
