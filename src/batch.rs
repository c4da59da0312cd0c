//! The checks of one frame with the policies that they name: what a store decides.

use std::{ops::Range, sync::Arc};

use tokio::time::Instant;
use tollgate_protocol::{
    check::{CheckBatch, CheckItem},
    limits::KEY_BYTES_MAX,
    reply::Reason,
};

use crate::{
    limit::{
        Decision, Request,
        decide::{refuse, validate},
    },
    policy::{Policy, SessionPolicies},
};

/// A batch on its way to a store.
#[derive(Debug)]
pub struct Batch {
    /// The checks.
    pub check: CheckBatch,
    /// The policies of their connection when they arrived.
    pub policies: Arc<SessionPolicies>,
    /// What is not executed by then is answered `deadline`.
    pub deadline: Option<Instant>,
}

impl Batch {
    /// The items.
    pub fn items(&self) -> &[CheckItem] {
        &self.check.items
    }

    /// The key of an item.
    pub fn key(&self, item: &CheckItem) -> &[u8] {
        self.check.key(item)
    }

    /// The policy of an item, if its alias names one.
    pub fn policy(&self, item: &CheckItem) -> Option<&Policy> {
        self.policies.get(item.alias)
    }

    /// An item as a request.
    ///
    /// # Errors
    /// What is wrong with this item alone.
    pub fn request(&self, item: &CheckItem) -> Result<Request<'_>, Reason> {
        let policy = self.policy(item).ok_or(Reason::UnknownPolicy)?;
        if !(1..=KEY_BYTES_MAX).contains(&self.key(item).len()) {
            return Err(Reason::BadKey);
        }
        validate(item.operation, item.cost)?;
        Ok(Request { operation: item.operation, cost: item.cost, limits: policy.ready() })
    }

    /// The answer to an item that no store decided, for `reason`; an unknown policy denies.
    pub fn undecided(&self, index: usize, reason: Reason) -> Decision {
        let policy = self.items().get(index).and_then(|item| self.policy(item));
        policy.map_or_else(|| refuse(Reason::UnknownPolicy), |policy| policy.undecided(reason))
    }

    /// The groups of linked items, in order; an item without a link is a group of its own.
    pub fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let items = self.items();
        let mut start = 0;
        std::iter::from_fn(move || {
            let length = 1 + items[start..].iter().position(|item| !item.linked)?;
            start += length;
            Some(start - length..start)
        })
    }
}
