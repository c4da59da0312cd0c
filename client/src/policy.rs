//! Policies as callers hold them, and the register of all that a client has met.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tollgate_protocol::{limits::DEFINITIONS_MAX, policy::Limits};

use crate::error::{DefineError, UnknownPolicyError};

/// A policy to check against: a named one from [`Client::policy`](crate::Client::policy), or an inline one
/// from [`Client::define`](crate::Client::define). Cheap to clone. Keep it: getting it anew for each call
/// costs a look-up.
#[derive(Clone, Debug)]
pub struct PolicyRef(Arc<Policy>);

#[derive(Debug)]
struct Policy {
    id: PolicyId,
    client_id: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Named(Arc<str>),
    Inline { limits: Limits, index: u64 },
}

/// Index of a policy in its client's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyId(u32);

impl PolicyId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl PolicyRef {
    /// The name of a named policy.
    pub fn name(&self) -> Option<&str> {
        match &self.0.kind {
            Kind::Named(name) => Some(name),
            Kind::Inline { .. } => None,
        }
    }

    /// The limits of an inline policy. Those of a named one are the server's, and may change there; see
    /// [`Decision::limit`](crate::Decision::limit).
    pub fn limits(&self) -> Option<&Limits> {
        match &self.0.kind {
            Kind::Named(_) => None,
            Kind::Inline { limits, .. } => Some(limits),
        }
    }

    pub(crate) fn id(&self) -> PolicyId {
        self.0.id
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.0.client_id
    }

    /// What stands for an inline policy on every connection of this client: odd, and its own.
    pub(crate) fn inline_alias(&self) -> Option<u64> {
        match self.0.kind {
            Kind::Named(_) => None,
            Kind::Inline { index, .. } => Some(2 * index + 1),
        }
    }

    /// Name or limits, for errors.
    pub(crate) fn label(&self) -> Arc<str> {
        match &self.0.kind {
            Kind::Named(name) => Arc::clone(name),
            Kind::Inline { limits, .. } => limits.to_string().into(),
        }
    }
}

/// The name, or the limits joined by ` + `.
impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            Kind::Named(name) => f.write_str(name),
            Kind::Inline { limits, .. } => limits.fmt(f),
        }
    }
}

/// All policies of a client. Ids are its own; each connection finds out what stands for them there.
#[derive(Debug)]
pub(crate) struct Registry {
    client_id: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    policies: Vec<PolicyRef>,
    by_name: HashMap<Arc<str>, PolicyRef>,
    by_limits: HashMap<Limits, PolicyRef>,
    /// Names that each server announced last.
    announced: Vec<BTreeSet<String>>,
}

static CLIENTS: AtomicU64 = AtomicU64::new(0);

impl Registry {
    pub(crate) fn new(servers: usize) -> Self {
        let state = State { announced: vec![BTreeSet::new(); servers], ..State::default() };
        Self { client_id: CLIENTS.fetch_add(1, Ordering::Relaxed), state: Mutex::new(state) }
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.client_id
    }

    /// The policy of a name that at least one server has announced.
    pub(crate) fn named(&self, name: &str) -> Result<PolicyRef, UnknownPolicyError> {
        let mut state = self.state.lock();
        if let Some(policy) = state.by_name.get(name) {
            return Ok(policy.clone());
        }
        if !state.announced.iter().any(|names| names.contains(name)) {
            let known: BTreeSet<_> = state.announced.iter().flatten().cloned().collect();
            return Err(UnknownPolicyError { name: name.into(), known: known.into_iter().collect() });
        }
        let name: Arc<str> = name.into();
        let policy = state.add(self.client_id, Kind::Named(Arc::clone(&name)));
        state.by_name.insert(name, policy.clone());
        Ok(policy)
    }

    /// The policy of these limits; the same limits are the same policy.
    pub(crate) fn inline(&self, limits: Limits) -> Result<PolicyRef, DefineError> {
        let mut state = self.state.lock();
        if let Some(policy) = state.by_limits.get(&limits) {
            return Ok(policy.clone());
        }
        let index = state.by_limits.len();
        if index == DEFINITIONS_MAX {
            return Err(DefineError { limits: limits.to_string() });
        }
        let policy = state.add(self.client_id, Kind::Inline { limits: limits.clone(), index: index as u64 });
        state.by_limits.insert(limits, policy.clone());
        Ok(policy)
    }

    /// The policy of an id that this register gave out.
    pub(crate) fn get(&self, id: PolicyId) -> Option<PolicyRef> {
        self.state.lock().policies.get(id.index()).cloned()
    }

    /// The id of a name, where a caller has asked for it.
    pub(crate) fn id_of_name(&self, name: &str) -> Option<PolicyId> {
        self.state.lock().by_name.get(name).map(PolicyRef::id)
    }

    /// Sets the names that a server knows.
    pub(crate) fn announce_all(&self, server: usize, names: impl IntoIterator<Item = String>) {
        self.state.lock().announced[server] = names.into_iter().collect();
    }

    /// Adds a name that a server knows.
    pub(crate) fn announce(&self, server: usize, name: &str) {
        self.state.lock().announced[server].insert(name.into());
    }
}

impl State {
    fn add(&mut self, client_id: u64, kind: Kind) -> PolicyRef {
        let id = PolicyId(self.policies.len() as u32);
        let policy = PolicyRef(Arc::new(Policy { id, client_id, kind }));
        self.policies.push(policy.clone());
        policy
    }
}
