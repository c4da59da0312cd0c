//! Whatever decides checks: the model, the arithmetic alone, a store. One suite runs against each.

use std::{collections::HashMap, sync::Arc};

use tollgate::{
    limit::{
        Cells, Decision, Request, State, StateId, decide,
        decide::{refuse, validate},
    },
    metrics::Metrics,
    policy::{OnUnavailable, Policy},
};
use tollgate_protocol::{check::Operation, policy::Limits, reply::Reason, ring::RingSecret};

/// A check of one key under one of the policies that a subject was configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) cost: u64,
    /// Index of the policy; one that does not exist is an unknown policy.
    pub(crate) policy: usize,
    pub(crate) key: u32,
    /// All or nothing with the next one.
    pub(crate) linked: bool,
}

impl Ask {
    pub(crate) fn new(operation: Operation, cost: u64) -> Self {
        Self { operation, cost, policy: 0, key: 0, linked: false }
    }

    pub(crate) fn check(cost: u64) -> Self {
        Self::new(Operation::Check, cost)
    }

    pub(crate) fn peek(cost: u64) -> Self {
        Self::new(Operation::Peek, cost)
    }
}

/// Decides batches at times that it is told.
pub(crate) trait Subject {
    /// Sets the policies. State belongs to a policy's index and survives a change of its limits.
    fn configure(&mut self, policies: &[Limits]);

    /// Answers a batch, one decision for each of `asks`.
    fn decide(&mut self, now_us: u64, asks: &[Ask]) -> Vec<Decision>;

    /// Answers a single check.
    fn ask(&mut self, now_us: u64, ask: Ask) -> Decision {
        let decisions = self.decide(now_us, &[ask]);
        assert_eq!(decisions.len(), 1, "one answer for one check");
        decisions[0]
    }
}

/// Slices of linked asks, in order.
pub(crate) fn groups(asks: &[Ask]) -> impl Iterator<Item = &[Ask]> {
    asks.split_inclusive(|ask| !ask.linked)
}

/// What is wrong with the asks of a group, each answered alone; `None` where nothing is. Linked ones must charge
/// something.
pub(crate) fn refuse_invalid(group: &[Ask], policies: usize) -> Option<Vec<Decision>> {
    let problem = |ask: &Ask| match ask.cost {
        _ if ask.policy >= policies => Err(Reason::UnknownPolicy),
        0 if group.len() > 1 => Err(Reason::BadCost),
        cost => validate(ask.operation, cost),
    };
    group
        .iter()
        .any(|ask| problem(ask).is_err())
        .then(|| group.iter().map(|ask| refuse(problem(ask).err().unwrap_or(Reason::Linked))).collect())
}

/// The policies of a test, as a server would hold them.
pub(crate) fn named_policies(policies: &[Limits], metrics: &Metrics) -> Vec<(String, Policy)> {
    let policy = |(index, limits): (usize, &Limits)| {
        let name = format!("policy-{index:03}");
        let secret = RingSecret::default();
        let policy = Policy::named(&name, limits.clone(), OnUnavailable::Deny, &secret, metrics);
        (name, policy.expect("tests configure limits that can be enforced"))
    };
    policies.iter().enumerate().map(policy).collect()
}

/// The arithmetic alone, with states in a map.
#[derive(Default)]
pub(crate) struct Direct {
    policies: Vec<Arc<Policy>>,
    metrics: Metrics,
    pub(crate) keys: HashMap<u32, States>,
}

/// The states of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct States {
    pub(crate) states: Vec<(StateId, State)>,
    /// Calls of [`Cells::set`].
    pub(crate) writes: u64,
}

impl Cells for States {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.states.iter().find(|(other, _)| *other == id).map(|&(_, state)| state)
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        self.writes += 1;
        self.states.retain(|(other, _)| *other != id);
        self.states.extend(state.map(|state| (id, state)));
    }
}

impl Direct {
    pub(crate) fn new(policies: &[Limits]) -> Self {
        let mut direct = Self::default();
        direct.configure(policies);
        direct
    }

    /// Forgets every state that is the same as none at `now_us`.
    pub(crate) fn expire(&mut self, now_us: u64) {
        for states in self.keys.values_mut() {
            states.states.retain(|(_, state)| state.expires_at_us() > now_us);
        }
    }
}

impl Subject for Direct {
    fn configure(&mut self, policies: &[Limits]) {
        let named = named_policies(policies, &self.metrics);
        self.policies = named.into_iter().map(|(_, policy)| Arc::new(policy)).collect();
    }

    fn decide(&mut self, now_us: u64, asks: &[Ask]) -> Vec<Decision> {
        let mut out = Vec::with_capacity(asks.len());
        for group in groups(asks) {
            if let Some(refused) = refuse_invalid(group, self.policies.len()) {
                out.extend(refused);
                continue;
            }
            let request = |ask: &Ask| Request {
                operation: ask.operation,
                cost: ask.cost,
                limits: self.policies[ask.policy].ready(),
            };
            let requests: Vec<_> = group.iter().map(request).collect();
            let first = out.len();
            out.resize(first + group.len(), refuse(Reason::Unavailable));
            decide(&requests, self.keys.entry(group[0].key).or_default(), now_us, &mut out[first..]);
        }
        out
    }
}
