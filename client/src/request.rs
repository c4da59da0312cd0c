//! What can be asked of a key.

use tollgate_protocol::{check::Operation, limits::KEY_BYTES_MAX, varint};

use crate::{error::CheckError, policy::PolicyRef};

/// One question about one key, for [`Client::call`](crate::Client::call) and
/// [`Client::call_many`](crate::Client::call_many). The cost is 1 unless [`Request::cost`] says other.
///
/// ```
/// # use tollgate_client::{PolicyRef, Request};
/// # fn requests<'a>(per_user: &'a PolicyRef, per_token: &'a PolicyRef) -> [Request<'a>; 2] {
/// // Both pass, or neither is charged.
/// [Request::check(per_user, "user:1").linked(), Request::check(per_token, "user:1").cost(250)]
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) policy: &'a PolicyRef,
    pub(crate) key: &'a [u8],
    pub(crate) operation: Operation,
    pub(crate) cost: u64,
    pub(crate) linked: bool,
}

impl<'a> Request<'a> {
    fn new<K: AsRef<[u8]> + ?Sized>(operation: Operation, policy: &'a PolicyRef, key: &'a K) -> Self {
        Self { policy, key: key.as_ref(), operation, cost: 1, linked: false }
    }

    /// May it pass? Charges the cost where it may.
    pub fn check<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::Check, policy, key)
    }

    /// Would it pass? Never charges.
    pub fn peek<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::Peek, policy, key)
    }

    /// Gives the cost back, never above a full limit.
    pub fn refund<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::Refund, policy, key)
    }

    /// Forgets what was charged. The cost has no meaning.
    pub fn reset<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::Reset, policy, key)
    }

    /// Charges the cost although it is over the limit: for a cost that is known only afterwards.
    pub fn force<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::Force, policy, key)
    }

    /// Charges as much of the cost as may pass; [`Decision::granted`](crate::Decision::granted) says how much
    /// that was.
    pub fn take_up_to<K: AsRef<[u8]> + ?Sized>(policy: &'a PolicyRef, key: &'a K) -> Self {
        Self::new(Operation::TakeUpTo, policy, key)
    }

    /// Sets the cost, at most 2^53 - 1. A check of cost 0 is a peek; other operations but peek need at least 1.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// All or nothing with the next request of [`Client::call_many`](crate::Client::call_many). Both must be
    /// checks of the same key and charge something; up to 16 in a row can be linked.
    pub fn linked(mut self) -> Self {
        self.linked = true;
        self
    }

    /// Whether it may be sent again although it may have been executed.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.operation == Operation::Peek
    }

    /// What can be told to be wrong without asking the server. `next` is the request after it.
    pub(crate) fn verify(&self, next: Option<&Self>, client_id: u64) -> Result<(), CheckError> {
        if self.policy.client_id() != client_id {
            return Err(CheckError::ForeignPolicy { policy: self.policy.label() });
        }
        if !(1..=KEY_BYTES_MAX).contains(&self.key.len()) {
            return Err(CheckError::BadKey { key_bytes: self.key.len() });
        }
        if self.cost > varint::VALUE_MAX {
            return Err(CheckError::BadCost { cost: self.cost });
        }
        if self.cost == 0 && self.needs_cost() {
            return Err(CheckError::ZeroCost);
        }
        if self.linked { self.verify_link(next) } else { Ok(()) }
    }

    fn needs_cost(&self) -> bool {
        matches!(self.operation, Operation::Refund | Operation::Force | Operation::TakeUpTo)
    }

    fn verify_link(&self, next: Option<&Self>) -> Result<(), CheckError> {
        let is_check = |request: &Self| request.operation == Operation::Check;
        let next = next.filter(|next| is_check(self) && is_check(next) && self.key == next.key);
        match next {
            None => Err(CheckError::BadLink),
            Some(next) if self.cost == 0 || next.cost == 0 => Err(CheckError::ZeroCost),
            Some(_) => Ok(()),
        }
    }
}
