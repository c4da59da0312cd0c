//! Policies of the server: limits made ready, with their names and their answers to a failure.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use serde::Deserialize;
use tokio::sync::watch;
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

/// For which keys a policy is enforced: of those for which it is not, what it denies passes, and the answer says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    percent: u8,
    secret: RingSecret,
}

impl Enforcement {
    /// For all keys.
    pub const FULL: Self = Self { percent: 100, secret: RingSecret::from_bytes([0; 16]) };

    /// For `percent` of the keys, 0..=100: the same on all servers with the same secret, and those of a lower number
    /// among those of a higher.
    pub fn new(percent: u8, secret: RingSecret) -> Self {
        Self { percent, secret }
    }

    /// Whether it is enforced for all keys.
    fn is_full(&self) -> bool {
        self.percent >= 100
    }

    /// Whether it is enforced for a key; `id` tells policies apart.
    fn covers(&self, id: StateId, key: &[u8]) -> bool {
        match self.percent {
            0 => return false,
            100.. => return true,
            _ => {}
        }
        let mut hasher = self.secret.build_hasher();
        hasher.write(&id.0.to_le_bytes());
        hasher.write(key);
        // The hash as a share of all, in percent.
        (u128::from(hasher.finish()) * 100) >> 64 < u128::from(self.percent)
    }
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
    enforcement: Enforcement,
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
        let enforcement = Enforcement::FULL;
        Ok(Self { limits, ready, ceiling, limits_hash, on_unavailable, enforcement, decisions })
    }

    /// The same, enforced for some keys.
    pub fn with_enforcement(self, enforcement: Enforcement) -> Self {
        Self { enforcement, ..self }
    }

    /// Whether it is enforced for a key.
    fn enforces(&self, key: &[u8]) -> bool {
        self.ready.first().is_none_or(|limit| self.enforcement.covers(limit.state_id, key))
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

    /// Whether it decides as another of the same name.
    fn is_as(&self, other: &Self) -> bool {
        (&self.limits, self.on_unavailable, self.enforcement)
            == (&other.limits, other.on_unavailable, other.enforcement)
    }

    /// The answer where the store did not decide, for `reason`.
    pub fn undecided(&self, reason: Reason) -> Decision {
        let allow = self.on_unavailable == OnUnavailable::Allow;
        Decision { allow, degraded: true, ..refuse(reason) }
    }
}

/// The named policies of a server. Entry `i` has the alias `2*i` for as long as the server runs: an alias never
/// comes to stand for another name.
#[derive(Clone, Debug, Default)]
pub struct PolicyTable {
    entries: Vec<Entry>,
    /// Whether any policy is not enforced for some keys.
    has_unenforced: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    /// Counts the changes of the policy.
    version: u64,
    /// `None` once it was removed.
    policy: Option<Arc<Policy>>,
}

/// What is different between two tables, by names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyChanges {
    /// Policies that are new.
    pub added: Vec<String>,
    /// Policies with other limits, another verdict where the store cannot answer, or enforced for other keys.
    pub changed: Vec<String>,
    /// Policies that are gone.
    pub removed: Vec<String>,
}

impl PolicyChanges {
    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl PolicyTable {
    /// A table of policies and their names.
    pub fn new(policies: impl IntoIterator<Item = (String, Policy)>) -> Self {
        let mut table = Self::default();
        table.replace(policies);
        table
    }

    /// Puts other policies in the place of those that are there. A name keeps its alias, also while its policy is
    /// gone, and a policy that is the same its version.
    pub fn replace(&mut self, policies: impl IntoIterator<Item = (String, Policy)>) -> PolicyChanges {
        let mut policies: BTreeMap<_, _> = policies.into_iter().collect();
        let mut changes = PolicyChanges::default();
        for entry in &mut self.entries {
            let (name, next) = (&entry.name, policies.remove(&entry.name));
            match (&entry.policy, &next) {
                (None, None) => continue,
                (Some(policy), Some(next)) if policy.is_as(next) => continue,
                (None, Some(_)) => changes.added.push(name.clone()),
                (Some(_), Some(_)) => changes.changed.push(name.clone()),
                (Some(_), None) => changes.removed.push(name.clone()),
            }
            entry.version += 1;
            entry.policy = next.map(Arc::new);
        }
        changes.added.extend(policies.keys().cloned());
        let new = |(name, policy)| Entry { name, version: 1, policy: Some(Arc::new(policy)) };
        self.entries.extend(policies.into_iter().map(new));
        let mut present = self.entries.iter().filter_map(|entry| entry.policy.as_ref());
        self.has_unenforced = present.any(|policy| !policy.enforcement.is_full());
        changes
    }

    /// Whether all policies are enforced for all keys.
    pub fn is_enforced(&self) -> bool {
        !self.has_unenforced
    }

    /// The table as HELLO_OK announces it.
    pub fn announce(&self) -> Vec<NamedPolicy> {
        self.announce_where(|_, _| true)
    }

    /// What is announced to a client that knows `old`: the policies that are new or changed. There is no word for one
    /// that is gone; its checks are answered `unknown_policy`.
    pub fn announce_since(&self, old: &Self) -> Vec<NamedPolicy> {
        self.announce_where(|index, entry| {
            old.entries.get(index).is_none_or(|known| known.version < entry.version)
        })
    }

    fn announce_where(&self, is_told: impl Fn(usize, &Entry) -> bool) -> Vec<NamedPolicy> {
        let told = self.entries.iter().enumerate().filter(|(index, entry)| is_told(*index, entry));
        let announce = |(index, entry): (usize, &Entry)| {
            let limits = entry.policy.as_ref()?.limits.clone();
            Some(NamedPolicy {
                name: entry.name.clone(),
                alias: 2 * index as u64,
                version: entry.version,
                limits,
            })
        };
        told.filter_map(announce).collect()
    }
}

/// The named policies of a running server. All who hold a clone see a change.
#[derive(Clone, Debug)]
pub struct PolicySwitch(Arc<watch::Sender<Arc<PolicyTable>>>);

impl PolicySwitch {
    /// A switch that is at `table`.
    pub fn new(table: PolicyTable) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(table))))
    }

    /// The policies as they are now.
    pub fn table(&self) -> Arc<PolicyTable> {
        Arc::clone(&self.0.borrow())
    }

    /// Follows the changes from now on.
    pub fn subscribe(&self) -> watch::Receiver<Arc<PolicyTable>> {
        self.0.subscribe()
    }

    /// Replaces all policies at once: see [`PolicyTable::replace`]. What is in flight is decided as before.
    pub fn replace(&self, policies: impl IntoIterator<Item = (String, Policy)>) -> PolicyChanges {
        let mut table = PolicyTable::clone(&self.table());
        let changes = table.replace(policies);
        if !changes.is_empty() {
            self.0.send_replace(Arc::new(table));
        }
        changes
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

    /// The policies of the server.
    pub fn named(&self) -> &Arc<PolicyTable> {
        &self.named
    }

    /// Takes over the policies of the server as they are now.
    pub fn set_named(&mut self, named: Arc<PolicyTable>) {
        self.named = named;
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

    /// Whether the policy of an alias is enforced for a key. An inline one always is.
    pub fn enforces(&self, alias: u32, key: &[u8]) -> bool {
        self.get(alias).is_none_or(|policy| policy.enforces(key))
    }

    /// The policy of an alias.
    pub fn get(&self, alias: u32) -> Option<&Policy> {
        let index = (alias / 2) as usize;
        if alias.is_multiple_of(2) {
            self.named.entries.get(index)?.policy.as_deref()
        } else {
            self.inline.get(index)?.as_deref()
        }
    }
}
