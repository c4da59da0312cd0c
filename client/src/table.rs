//! What stands for each policy on one connection.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tollgate_protocol::{
    define::{Define, Defined},
    limit::Limit,
    limits::LIMITS_MAX,
    policy::{Limits, NamedPolicy},
};

use crate::{
    error::CheckError,
    policy::{PolicyId, PolicyRef, Registry},
};

/// A connection's aliases: named ones from the server, inline ones as they are first used.
#[derive(Debug)]
pub(crate) struct Table {
    server: Arc<str>,
    registry: Arc<Registry>,
    named: HashMap<String, NamedPolicy>,
    /// By id of the policy.
    entries: Vec<Entry>,
    /// DEFINE frames that have no answer yet, in the order of their ids.
    defining: VecDeque<(u32, PolicyId)>,
}

/// The limits of a policy by their index, as far as they are known.
pub(crate) type KnownLimits = [Option<Limit>; LIMITS_MAX];

#[derive(Clone, Debug)]
enum Entry {
    Unseen,
    Usable { alias: u64, limits: KnownLimits },
    Refused(CheckError),
}

impl Entry {
    fn usable(alias: u64, limits: &Limits) -> Self {
        let mut known = KnownLimits::default();
        for (slot, limit) in known.iter_mut().zip(limits.as_slice()) {
            *slot = Some(*limit);
        }
        Self::Usable { alias, limits: known }
    }
}

impl Table {
    pub(crate) fn new(server: Arc<str>, registry: Arc<Registry>, policies: Vec<NamedPolicy>) -> Self {
        let named = policies.into_iter().map(|policy| (policy.name.clone(), policy)).collect();
        Self { server, registry, named, entries: Vec::new(), defining: VecDeque::new() }
    }

    /// What stands for a policy; `None` where [`Table::learn`] was not called for it or failed.
    pub(crate) fn alias(&self, id: PolicyId) -> Option<u64> {
        match self.entries.get(id.index()) {
            Some(Entry::Usable { alias, .. }) => Some(*alias),
            _ => None,
        }
    }

    /// The limits of a policy, as far as they are known.
    pub(crate) fn limits(&self, id: PolicyId) -> &KnownLimits {
        match self.entries.get(id.index()) {
            Some(Entry::Usable { limits, .. }) => limits,
            _ => &[None; LIMITS_MAX],
        }
    }

    /// Makes a policy usable. What it returns is to be sent before the first check that uses it.
    pub(crate) fn learn(&mut self, id: PolicyId) -> Result<Option<Define>, CheckError> {
        if let Some(Entry::Refused(error)) = self.entries.get(id.index()) {
            return Err(error.clone());
        }
        let policy = self.registry.get(id);
        let (entry, define) = match policy.as_ref().and_then(|policy| self.entry_of(policy)) {
            Some(found) => found,
            None => return Err(self.unknown(id)),
        };
        self.set(id, entry);
        Ok(define)
    }

    fn entry_of(&self, policy: &PolicyRef) -> Option<(Entry, Option<Define>)> {
        if let (Some(alias), Some(limits)) = (policy.inline_alias(), policy.limits()) {
            let define = Define { alias, limits: limits.clone() };
            return Some((Entry::usable(alias, limits), Some(define)));
        }
        let named = self.named.get(policy.name()?)?;
        Some((Entry::usable(named.alias, &named.limits), None))
    }

    /// Remembers the DEFINE frame of a policy.
    pub(crate) fn sent(&mut self, frame_id: u32, id: PolicyId) {
        self.defining.push_back((frame_id, id));
    }

    /// Notes the answer to a DEFINE; `false` where none of this id was sent.
    pub(crate) fn defined(&mut self, frame_id: u32, answer: Defined) -> bool {
        let Ok(index) = self.defining.binary_search_by_key(&frame_id, |(sent, _)| *sent) else {
            return false;
        };
        if let Some((_, id)) = self.defining.remove(index)
            && let Some(reason) = answer.refused
        {
            let (policy, server) = (self.label(id), Arc::clone(&self.server));
            self.set(id, Entry::Refused(CheckError::PolicyRefused { policy, server, reason: reason.into() }));
        }
        true
    }

    /// Takes over a named policy as it is now.
    pub(crate) fn update(&mut self, policy: NamedPolicy) {
        if let Some(id) = self.registry.id_of_name(&policy.name) {
            self.set(id, Entry::usable(policy.alias, &policy.limits));
        }
        self.named.insert(policy.name.clone(), policy);
    }

    /// The error of a check whose policy the server does not know: it was refused, or is gone.
    pub(crate) fn unknown(&self, id: PolicyId) -> CheckError {
        match self.entries.get(id.index()) {
            Some(Entry::Refused(error)) => error.clone(),
            _ => CheckError::UnknownPolicy { policy: self.label(id), server: Arc::clone(&self.server) },
        }
    }

    fn label(&self, id: PolicyId) -> Arc<str> {
        self.registry.get(id).map_or_else(|| "?".into(), |policy| policy.label())
    }

    fn set(&mut self, id: PolicyId, entry: Entry) {
        if self.entries.len() <= id.index() {
            self.entries.resize(id.index() + 1, Entry::Unseen);
        }
        self.entries[id.index()] = entry;
    }
}
