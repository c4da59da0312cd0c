//! Policies that are not enforced for some or all keys: what they deny passes, and the answer says so.
//!
//! Stores know nothing of it: they decide and charge as they always do. A check that is linked with others would hold
//! those back, so it is taken out of its run before a store sees the batch, and decided alone.

use tollgate_protocol::{
    check::CheckBatch,
    reply::{Details, Reason},
};

use crate::{limit::Decision, policy::SessionPolicies};

/// The checks of a batch whose policies are not enforced. Empty for nearly all batches.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Of each item of the batch: its place in the frame. Empty where that is the same.
    places: Vec<u32>,
    /// Indices of the items in the batch, ascending.
    items: Vec<u32>,
}

impl Shadow {
    /// Finds the checks that are not enforced, and takes them out of their runs of linked items.
    pub(crate) fn cast(check: &mut CheckBatch, policies: &SessionPolicies) -> Self {
        if policies.named().is_enforced() {
            return Self::default();
        }
        let mut shadow = Self::default();
        if check.items.iter().any(|item| item.linked) {
            shadow.places = take_apart(check, policies);
        }
        let indices = (0u32..).zip(&check.items);
        let unenforced = indices.filter(|(_, item)| !policies.enforces(item.alias, check.key(item)));
        shadow.items = unenforced.map(|(index, _)| index).collect();
        shadow
    }

    /// Lets pass what was denied under policies that are not enforced.
    pub(crate) fn waive(&self, decisions: &mut [Decision]) {
        for &index in &self.items {
            waive(&mut decisions[index as usize]);
        }
    }

    /// Puts the decisions of the batch in the order of the frame.
    pub(crate) fn restore(&self, decisions: &mut [Decision]) {
        if self.places.is_empty() {
            return;
        }
        let decided = decisions.to_vec();
        for (decision, &place) in decided.into_iter().zip(&self.places) {
            decisions[place as usize] = decision;
        }
    }
}

/// Orders each run of linked items so that those that are enforced come first and stay linked, and the others follow,
/// each by itself. All items of a run have the same key, and items of different policies do not see one another.
/// Returns the place in the frame of each item.
fn take_apart(check: &mut CheckBatch, policies: &SessionPolicies) -> Vec<u32> {
    let is_enforced: Vec<_> =
        check.items.iter().map(|item| policies.enforces(item.alias, check.key(item))).collect();
    let mut places: Vec<u32> = (0..).take(is_enforced.len()).collect();
    let mut linked = Vec::with_capacity(places.len());
    while linked.len() < places.len() {
        let start = linked.len();
        let others = check.items[start..].iter().take_while(|item| item.linked).count();
        let run = &mut places[start..];
        let length = (others + 1).min(run.len());
        // Stable: items of one policy stay in their order.
        run[..length].sort_by_key(|&place| !is_enforced[place as usize]);
        let enforced = is_enforced[start..start + length].iter().filter(|is_enforced| **is_enforced).count();
        linked.extend((1..=length).map(|count| count < enforced));
    }
    let item = |(&place, linked): (&u32, bool)| {
        let mut item = check.items[place as usize];
        item.linked = linked;
        item
    };
    check.items = places.iter().zip(linked).map(item).collect();
    places
}

/// What the caller did wrong stays refused.
fn waive(decision: &mut Decision) {
    match decision.reason {
        Reason::Denied | Reason::DeniedCached | Reason::CostOverLimit | Reason::Partial => {
            let details = decision.details.map(|details| Details { retry_after_us: None, ..details });
            *decision = Decision { allow: true, reason: Reason::Shadow, granted: 0, details, ..*decision };
        }
        // The verdict of the policy for a store that did not decide.
        _ if decision.degraded => decision.allow = true,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
