//! Operations on policies of several limits, and linked checks.
//!
//! All limits of a policy are charged together or not at all, and so are linked checks. Denials and peeks
//! charge nothing. The Redis script takes the same steps on the same states; here stands also what is told of
//! them: what remains, and when to come back.

use std::collections::HashMap;

use tollgate_protocol::{
    check::Operation,
    limits::LIMITS_MAX,
    reply::{Details, Reason, ReplyItem},
};

use super::{
    rule::{Rolled, Rule},
    state::{State, StateId},
};

/// What a check is answered, with times exact to the microsecond.
pub type Decision = ReplyItem;

/// A limit of a policy and the name of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLimit {
    /// The arithmetic.
    pub rule: Rule,
    /// The state.
    pub state_id: StateId,
}

/// An operation on one key that was found valid: see [`validate`].
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked.
    pub operation: Operation,
    /// The cost.
    pub cost: u64,
    /// The limits of the policy, 1..=4.
    pub limits: &'a [PolicyLimit],
}

/// The states of one key.
pub trait Cells {
    /// The state under a limit.
    fn get(&mut self, id: StateId) -> Option<State>;
    /// Replaces the state under a limit; `None` removes it.
    fn set(&mut self, id: StateId, state: Option<State>);
}

/// Whether an operation may be asked with this cost.
///
/// # Errors
/// [`Reason::BadOperation`] or [`Reason::BadCost`].
pub fn validate(operation: Operation, cost: u64) -> Result<(), Reason> {
    match operation {
        Operation::Check | Operation::Peek | Operation::Reset => Ok(()),
        Operation::Refund | Operation::Force | Operation::TakeUpTo if cost > 0 => Ok(()),
        Operation::Refund | Operation::Force | Operation::TakeUpTo => Err(Reason::BadCost),
        Operation::Unknown(_) => Err(Reason::BadOperation),
    }
}

/// Decides linked requests on one key, in order, all or nothing, and writes the decision of each to its place in
/// `out`, which has as many. A single request is the common case.
pub fn decide(requests: &[Request<'_>], cells: &mut impl Cells, now_us: u64, out: &mut [Decision]) {
    match (requests, &mut *out) {
        ([request], [decision]) => *decision = decide_one(request, cells, now_us),
        (linked, _) => decide_linked(linked, cells, now_us, out),
    }
}

/// Decides checks of which each must pass on top of those before it. Where one does not, all come back with the
/// slowest.
fn decide_linked(requests: &[Request<'_>], cells: &mut impl Cells, now_us: u64, out: &mut [Decision]) {
    let mut totals = HashMap::new();
    let refuse_on_top = |request: &Request<'_>| {
        for limit in request.limits {
            let total: &mut u64 = totals.entry(limit.state_id).or_default();
            *total = total.saturating_add(request.cost);
        }
        View::new(request.limits, cells, now_us).refusal(|limit| totals[&limit.state_id])
    };
    let refusals: Vec<_> = requests.iter().map(refuse_on_top).collect();
    if refusals.iter().all(Option::is_none) {
        for (request, decision) in requests.iter().zip(out) {
            *decision = decide_one(request, cells, now_us);
        }
        return;
    }
    let never = refusals.iter().flatten().any(|refusal| refusal.reason == Reason::CostOverLimit);
    let slowest = refusals.iter().flatten().filter_map(|refusal| refusal.details?.retry_after_us).max();
    let retry_after_us = if never { None } else { slowest };
    for ((request, refusal), decision) in requests.iter().zip(refusals).zip(out) {
        let view = View::new(request.limits, cells, now_us);
        view.settle(cells);
        let alone = refusal.unwrap_or_else(|| view.allow(Reason::Linked));
        let details = alone.details.map(|details| Details { retry_after_us, ..details });
        *decision = Decision { allow: false, details, ..alone };
    }
}

fn decide_one(request: &Request<'_>, cells: &mut impl Cells, now_us: u64) -> Decision {
    let mut view = View::new(request.limits, cells, now_us);
    let cost = request.cost;
    match request.operation {
        Operation::Check if cost > 0 => match view.refusal(|_| cost) {
            None => view.change(cells, |rule, rolled| rule.charge(rolled, cost)),
            Some(refusal) => {
                view.settle(cells);
                refusal
            }
        },
        Operation::Check | Operation::Peek => {
            view.refusal(|_| cost).unwrap_or_else(|| view.allow(Reason::Ok))
        }
        Operation::TakeUpTo => view.take_up_to(cells, cost),
        Operation::Force => view.change(cells, |rule, rolled| rule.charge(rolled, cost)),
        Operation::Refund => view.change(cells, |rule, rolled| rule.refund(rolled, cost)),
        Operation::Reset => view.change(cells, |rule, _| rule.roll(None, now_us)),
        Operation::Unknown(_) => refuse(Reason::BadOperation),
    }
}

/// A decision for an item that was not executed.
pub fn refuse(reason: Reason) -> Decision {
    Decision { allow: false, degraded: false, reason, granted: 0, details: None }
}

/// The states of a policy's limits at one instant.
struct View<'a> {
    limits: &'a [PolicyLimit],
    rolled: [Option<Rolled>; LIMITS_MAX],
    now_us: u64,
}

impl<'a> View<'a> {
    fn new(limits: &'a [PolicyLimit], cells: &mut impl Cells, now_us: u64) -> Self {
        let mut rolled = [None; LIMITS_MAX];
        for (slot, limit) in rolled.iter_mut().zip(limits) {
            *slot = Some(limit.rule.roll(cells.get(limit.state_id).as_ref(), now_us));
        }
        Self { limits, rolled, now_us }
    }

    /// Stores what was read where it ends sooner than what is stored: under a raised limit, or a clock that was
    /// set back. A key that is only ever denied would otherwise stay in the past. Never where it ends later:
    /// servers that disagree about a limit would convert it to and fro.
    fn settle(&self, cells: &mut impl Cells) {
        for (_, limit, rolled) in self.iter() {
            let ends_at_us = cells.get(limit.state_id).map_or(0, |state| state.expires_at_us());
            if ends_at_us > self.now_us && rolled.resets_at_us() < ends_at_us {
                cells.set(limit.state_id, rolled.to_state());
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u8, &PolicyLimit, &Rolled)> {
        let limits = self.limits.iter().zip(&self.rolled);
        (0u8..).zip(limits).filter_map(|(index, (limit, rolled))| Some((index, limit, rolled.as_ref()?)))
    }

    /// Changes the state of every limit, and allows.
    fn change(&mut self, cells: &mut impl Cells, change: impl Fn(&Rule, Rolled) -> Rolled) -> Decision {
        for (limit, slot) in self.limits.iter().zip(&mut self.rolled) {
            if let Some(rolled) = slot {
                *rolled = change(&limit.rule, *rolled);
                let state = rolled.to_state();
                if state.is_none() {
                    // As never used: also a stored time that was ahead of the clock is forgotten.
                    *rolled = limit.rule.roll(None, self.now_us);
                }
                cells.set(limit.state_id, state);
            }
        }
        self.allow(Reason::Ok)
    }

    fn take_up_to(&mut self, cells: &mut impl Cells, cost: u64) -> Decision {
        let (_, remaining) = self.tightest();
        let granted = remaining.min(cost);
        if granted == 0 {
            self.settle(cells);
            // At least one limit does not let a cost of 1 pass.
            return self.refusal(|_| 1).unwrap_or_else(|| refuse(Reason::Denied));
        }
        let mut decision = self.change(cells, |rule, rolled| rule.charge(rolled, granted));
        if granted < cost {
            (decision.reason, decision.granted) = (Reason::Partial, granted);
        }
        decision
    }

    /// The limit with the least remaining, and how much that is.
    fn tightest(&self) -> (u8, u64) {
        let remaining = self.iter().map(|(index, limit, rolled)| (index, limit.rule.remaining(rolled)));
        remaining.min_by_key(|&(index, remaining)| (remaining, index)).unwrap_or((0, 0))
    }

    /// Microseconds until every limit is as if never used.
    fn reset_after_us(&self) -> u64 {
        let latest_us = self.iter().map(|(_, _, rolled)| rolled.resets_at_us()).max();
        latest_us.unwrap_or(0).saturating_sub(self.now_us)
    }

    fn allow(&self, reason: Reason) -> Decision {
        let (limit_index, remaining) = self.tightest();
        let reset_after_us = self.reset_after_us();
        let details = Details { remaining, reset_after_us, retry_after_us: None, limit_index };
        Decision { allow: true, degraded: false, reason, granted: 0, details: Some(details) }
    }

    /// Why `cost` of each limit does not pass; `None` where it does. Names the limit that holds it back the
    /// longest.
    fn refusal(&self, cost: impl Fn(&PolicyLimit) -> u64) -> Option<Decision> {
        let never = self.iter().find(|(_, limit, _)| cost(limit) > limit.rule.ceiling());
        let (reason, limit_index, retry_after_us) = match never {
            Some((index, ..)) => (Reason::CostOverLimit, index, None),
            None => {
                let denying =
                    self.iter().filter(|(_, limit, rolled)| !limit.rule.admits(rolled, cost(limit)));
                let instants = denying
                    .map(|(index, limit, rolled)| (limit.rule.admits_at_us(rolled, cost(limit)), index));
                let (at_us, index) =
                    instants.min_by_key(|&(at_us, index)| (core::cmp::Reverse(at_us), index))?;
                (Reason::Denied, index, Some(at_us.saturating_sub(self.now_us)))
            }
        };
        let (_, remaining) = self.tightest();
        let details =
            Details { remaining, reset_after_us: self.reset_after_us(), retry_after_us, limit_index };
        Some(Decision { details: Some(details), ..refuse(reason) })
    }
}
