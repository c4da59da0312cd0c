//! Operations on policies of several limits, and linked checks.
//!
//! All limits of a policy are charged together or not at all, and so are linked checks. Denials and peeks
//! change nothing. The Redis script takes the same steps on the same states; here stands also what is told of
//! them: what remains, and when to come back.

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

/// Decides linked requests on one key, in order, all or nothing, and appends a decision for each. A single
/// request is the common case.
pub fn decide(requests: &[Request<'_>], cells: &mut impl Cells, now_us: u64, out: &mut Vec<Decision>) {
    if let [request] = requests {
        let (decision, _) = decide_one(request, cells, now_us);
        out.push(decision);
        return;
    }
    let first = out.len();
    let mut undo = Vec::new();
    for request in requests {
        let before: Vec<_> =
            request.limits.iter().map(|limit| (limit.state_id, cells.get(limit.state_id))).collect();
        let (decision, changed) = decide_one(request, cells, now_us);
        if changed {
            undo.extend(before);
        }
        out.push(decision);
    }
    if out[first..].iter().any(|decision| !decision.allow) {
        for (id, state) in undo.into_iter().rev() {
            cells.set(id, state);
        }
        deny_linked(requests, cells, now_us, &mut out[first..]);
    }
}

/// Tells those that passed alone that they did not pass together: they wait for the slowest of the others.
fn deny_linked(requests: &[Request<'_>], cells: &mut impl Cells, now_us: u64, decisions: &mut [Decision]) {
    let never = decisions.iter().any(|decision| decision.reason == Reason::CostOverLimit);
    let slowest = decisions.iter().filter_map(|decision| decision.details?.retry_after_us).max();
    for (request, decision) in requests.iter().zip(decisions) {
        if decision.allow {
            let peek = Request { operation: Operation::Peek, ..*request };
            let (mut alone, _) = decide_one(&peek, cells, now_us);
            (alone.allow, alone.reason) = (false, Reason::Linked);
            if let Some(details) = &mut alone.details {
                details.retry_after_us = if never { None } else { slowest };
            }
            *decision = alone;
        }
    }
}

/// Decides one request; the second value says whether states were changed.
fn decide_one(request: &Request<'_>, cells: &mut impl Cells, now_us: u64) -> (Decision, bool) {
    let mut view = View::new(request.limits, cells, now_us);
    let cost = request.cost;
    match request.operation {
        Operation::Check if cost > 0 => match view.refusal(cost) {
            None => view.change(cells, |rule, rolled| rule.charge(rolled, cost)),
            Some(refusal) => (refusal, false),
        },
        Operation::Check | Operation::Peek => {
            (view.refusal(cost).unwrap_or_else(|| view.allow(Reason::Ok)), false)
        }
        Operation::TakeUpTo => view.take_up_to(cells, cost),
        Operation::Force => view.change(cells, |rule, rolled| rule.charge(rolled, cost)),
        Operation::Refund => view.change(cells, |rule, rolled| rule.refund(rolled, cost)),
        Operation::Reset => view.change(cells, |rule, _| rule.roll(None, now_us)),
        Operation::Unknown(_) => (refuse(Reason::BadOperation), false),
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

    fn iter(&self) -> impl Iterator<Item = (u8, &Rule, &Rolled)> {
        let limits = self.limits.iter().zip(&self.rolled);
        (0u8..)
            .zip(limits)
            .filter_map(|(index, (limit, rolled))| Some((index, &limit.rule, rolled.as_ref()?)))
    }

    /// Changes the state of every limit, and allows.
    fn change(
        &mut self,
        cells: &mut impl Cells,
        change: impl Fn(&Rule, Rolled) -> Rolled,
    ) -> (Decision, bool) {
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
        (self.allow(Reason::Ok), true)
    }

    fn take_up_to(&mut self, cells: &mut impl Cells, cost: u64) -> (Decision, bool) {
        let (_, remaining) = self.tightest();
        let granted = remaining.min(cost);
        if granted == 0 {
            // At least one limit does not let a cost of 1 pass.
            return (self.refusal(1).unwrap_or_else(|| refuse(Reason::Denied)), false);
        }
        let (mut decision, changed) = self.change(cells, |rule, rolled| rule.charge(rolled, granted));
        if granted < cost {
            (decision.reason, decision.granted) = (Reason::Partial, granted);
        }
        (decision, changed)
    }

    /// The limit with the least remaining, and how much that is.
    fn tightest(&self) -> (u8, u64) {
        let remaining = self.iter().map(|(index, rule, rolled)| (index, rule.remaining(rolled)));
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

    /// Why `cost` does not pass; `None` where it does. Names the limit that holds it back the longest.
    fn refusal(&self, cost: u64) -> Option<Decision> {
        let never = self.iter().find(|(_, rule, _)| cost > rule.ceiling()).map(|(index, ..)| index);
        let (reason, limit_index, retry_after_us) = match never {
            Some(index) => (Reason::CostOverLimit, index, None),
            None => {
                let denying = self.iter().filter(|(_, rule, rolled)| !rule.admits(rolled, cost));
                let instants = denying.map(|(index, rule, rolled)| (rule.admits_at_us(rolled, cost), index));
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
