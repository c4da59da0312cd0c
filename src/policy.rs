//! Policies of the server: limits made ready, with their names and their answers to a failure.

use std::sync::Arc;

use serde::Deserialize;
use tollgate_protocol::{
    define::ALIAS_MAX,
    policy::{Limits, NamedPolicy},
    reply::Reason,
    ring::RingSecret,
};

use crate::{
    limit::{Decision, PolicyLimit, Rule, StateId, UnsupportedLimit, decide::refuse},
    metrics::{DecisionCounters, Metrics},
};

/// The verdict of a policy where the store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnavailable {
    /// Nothing passes that the store did not see.
    #[default]
    Deny,
    /// Everything passes: there is no bound while it lasts.
    Allow,
}

/// A policy, ready to decide.
#[derive(Debug)]
pub struct Policy {
    limits: Limits,
    ready: Vec<PolicyLimit>,
    /// Most that can pass at once: the least of what the limits hold.
    ceiling: u64,
    /// Of the limits as text.
    limits_hash: u64,
    on_unavailable: OnUnavailable,
    /// Decisions under this policy; inline policies share theirs.
    pub decisions: DecisionCounters,
}

impl Policy {
    /// A policy from the configuration. Its state belongs to its name and the place of each limit, so that it
    /// is kept when the numbers change.
    ///
    /// # Errors
    /// The first limit that cannot be enforced exactly.
    pub fn named(
        name: &str,
        limits: Limits,
        on_unavailable: OnUnavailable,
        secret: &RingSecret,
        metrics: &Metrics,
    ) -> Result<Self, UnsupportedLimit> {
        let identity = format!("named\0{name}");
        Self::new(&identity, limits, on_unavailable, secret, metrics.decisions_of(name))
    }

    /// A policy that a client defined. Its state belongs to its limits as text: all who define the same limits
    /// share it.
    ///
    /// # Errors
    /// The first limit that cannot be enforced exactly.
    pub fn inline(
        limits: Limits,
        on_unavailable: OnUnavailable,
        secret: &RingSecret,
        metrics: &Metrics,
    ) -> Result<Self, UnsupportedLimit> {
        let identity = format!("inline\0{limits}");
        Self::new(&identity, limits, on_unavailable, secret, metrics.inline_decisions.clone())
    }

    fn new(
        identity: &str,
        limits: Limits,
        on_unavailable: OnUnavailable,
        secret: &RingSecret,
        decisions: DecisionCounters,
    ) -> Result<Self, UnsupportedLimit> {
        let ready = limits.as_slice().iter().enumerate().map(|(index, limit)| {
            let state_id = StateId(secret.hash(format!("{identity}\0{index}").as_bytes()));
            Ok(PolicyLimit { rule: Rule::new(limit)?, state_id })
        });
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        let ceiling = ready.iter().map(|limit: &PolicyLimit| limit.rule.ceiling()).min().unwrap_or(0);
        let limits_hash = secret.hash(limits.to_string().as_bytes());
        Ok(Self { limits, ready, ceiling, limits_hash, on_unavailable, decisions })
    }

    /// The limits as they were written.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The limits ready to decide.
    pub fn ready(&self) -> &[PolicyLimit] {
        &self.ready
    }

    /// The most that can pass at once.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Tells versions of a policy apart: the same where the limits are.
    pub fn limits_hash(&self) -> u64 {
        self.limits_hash
    }

    /// The answer where the store did not decide, for `reason`.
    pub fn undecided(&self, reason: Reason) -> Decision {
        let allow = self.on_unavailable == OnUnavailable::Allow;
        Decision { allow, degraded: true, ..refuse(reason) }
    }
}

/// The named policies of a server, in the order of their names. Policy `i` has the alias `2*i`.
#[derive(Debug, Default)]
pub struct PolicyTable {
    policies: Vec<(String, Arc<Policy>)>,
}

impl PolicyTable {
    /// A table of policies and their names.
    pub fn new(policies: impl IntoIterator<Item = (String, Policy)>) -> Self {
        let mut policies: Vec<_> =
            policies.into_iter().map(|(name, policy)| (name, Arc::new(policy))).collect();
        policies.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self { policies }
    }

    /// The table as HELLO_OK announces it.
    pub fn announce(&self) -> Vec<NamedPolicy> {
        let announce = |(index, (name, policy)): (usize, &(String, Arc<Policy>))| NamedPolicy {
            name: name.clone(),
            alias: 2 * index as u64,
            version: 1,
            limits: policy.limits.clone(),
        };
        self.policies.iter().enumerate().map(announce).collect()
    }
}

/// The policies that one connection can name: those of the server, and those that it defined.
#[derive(Clone, Debug)]
pub struct SessionPolicies {
    named: Arc<PolicyTable>,
    inline: Vec<Option<Arc<Policy>>>,
}

impl SessionPolicies {
    /// The policies of a new connection.
    pub fn new(named: Arc<PolicyTable>) -> Self {
        Self { named, inline: Vec::new() }
    }

    /// Lets an alias stand for a policy, or for none. An alias that no DEFINE can have is left alone.
    pub fn define(&mut self, alias: u64, policy: Option<Policy>) {
        if alias.is_multiple_of(2) || alias > ALIAS_MAX {
            return;
        }
        let index = (alias / 2) as usize;
        if index >= self.inline.len() {
            self.inline.resize(index + 1, None);
        }
        self.inline[index] = policy.map(Arc::new);
    }

    /// The policy of an alias.
    pub fn get(&self, alias: u32) -> Option<&Policy> {
        let index = (alias / 2) as usize;
        if alias.is_multiple_of(2) {
            self.named.policies.get(index).map(|(_, policy)| &**policy)
        } else {
            self.inline.get(index)?.as_deref()
        }
    }
}
