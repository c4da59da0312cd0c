//! The deny cache: denials that are still sure to hold are answered without asking Redis.
//!
//! # Why a denial can be remembered
//!
//! A state drains by itself and is otherwise only charged. So what denied a cost of n under some limits denies that
//! cost, and any greater one, until `retry_after` has passed since the script ran. The script ran after its call was
//! sent, so by this server's clock the denial holds at least until `sent + retry_after`, and one that is answered
//! before then is the answer that Redis would have given. Charges by anyone, `force` and `take_up_to` among them,
//! only make it hold longer.
//!
//! Three things end it sooner:
//!
//! - **A reset or a refund through this server** drops it: below.
//! - **A reset or a refund through another server**, a clock of the shard that is set forward, a failover that lost
//!   charges: a denial lives for at most [`set::LIFE_US_MAX`], and so long they may go unseen.
//! - **Another version of the policy.** A denial is found only under the limits that denied. But a state that was
//!   written under other limits is converted by whoever reads it, and drains by the old ones until it is charged
//!   under the new ones. So in the second after a change the store may let a check pass before the denial that it
//!   gave has ended. That too goes unseen for as long as a denial lives.
//!
//! # Why no stale denial comes back
//!
//! A reset or a refund drops what is known of its key when it is queued, and again when it is answered or given up,
//! and each time the instant is kept. A denial is remembered only if its call was *sent after* the last drop; both
//! happen under the lock of one [set](set::Set). So once a reset is answered, whatever is remembered of the key was
//! sent after that answer, and so decided after the reset. Before the answer came a denial may still be told: a check
//! and a reset that are under way together have no order.
//!
//! Within a batch they have one: a check that stands behind a reset must not be answered by what was learnt meanwhile,
//! before the reset ran. So all of a batch is looked up and dropped as of one instant, and finds nothing that was sent
//! later; what was sent before then, of a key that it drops, is gone and does not come back.
//!
//! A refund that was given up as ambiguous may still run until its deadline has passed by the shard's clock. That is
//! as if another server had sent it.
//!
//! # What is not answered from here
//!
//! Peeks, which are asked for the truth of the moment. Costs that no limit can ever hold: they have a reason of
//! their own. Linked checks, `take_up_to`, `force`. A greater cost than the one that was denied, where details are
//! wanted: when *it* may come back is not known.

#[cfg(all(test, tollgate_loom))]
mod loom_tests;
mod set;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
};

use siphasher::sip128::{Hasher128, SipHasher13};
use tokio::time::Instant;
use tollgate_protocol::{
    check::{CheckItem, Operation},
    reply::{Details, Reason},
};

use self::set::{Denial, Name, Set, WAYS};
use crate::{
    batch::Batch,
    limit::{Decision, decide::refuse},
    policy::Policy,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Denials that this server remembers.
///
/// The place of a denial is a 128-bit hash of its policy and key, under a secret of the process. Two that have the
/// same are one: nobody who does not know the secret can find such two, and by chance one in 2^64 tries of 2^64 keys
/// is one. Keys in full would have to be allocated.
pub(super) struct DenyCache {
    sets: Box<[Mutex<Set>]>,
    /// Of each set: until when it may know a denial. They stand side by side, so that where little is denied a check
    /// looks at no set.
    until_us: Box<[AtomicU64]>,
    hasher: SipHasher13,
    started: Instant,
}

impl DenyCache {
    /// A cache of at most `entries` denials, rounded up to whole sets. All of its memory, some 80 bytes for each, is
    /// taken now.
    pub(super) fn new(entries: usize) -> Self {
        // Seeded by the system, anew in each process.
        let random = || RandomState::new().hash_one(0);
        Self::with_secret(entries, [random(), random()])
    }

    fn with_secret(entries: usize, [first, second]: [u64; 2]) -> Self {
        let sets = entries.div_ceil(WAYS).max(1);
        Self {
            sets: std::iter::repeat_with(|| Mutex::new(Set::default())).take(sets).collect(),
            until_us: std::iter::repeat_with(|| AtomicU64::new(0)).take(sets).collect(),
            hasher: SipHasher13::new_with_keys(first, second),
            started: Instant::now(),
        }
    }

    /// Called before a group of a batch is queued, for each in the order of the batch and with the same `now`.
    /// Answers the group, where what is remembered does; drops what it may make untrue.
    pub(super) fn before(&self, batch: &Batch, items: Range<usize>, now: Instant) -> Option<Decision> {
        let (item, policy, name) = self.subject(batch, items)?;
        match item.operation {
            Operation::Check if batch.deadline.is_none_or(|deadline| now < deadline) => {
                let (now_us, index) = (self.us(now), self.index(name));
                // Whoever sees an older instant asks Redis.
                if self.until_us[index].load(Ordering::Relaxed) <= now_us {
                    return None;
                }
                let denial = self.sets[index].lock().recall(name, item.cost, now_us)?;
                let is_known = denial.cost == item.cost || !batch.check.details;
                (is_known && item.cost <= policy.ceiling()).then(|| answer(&denial, now_us))
            }
            Operation::Refund | Operation::Reset => {
                self.forget(name, now);
                None
            }
            _ => None,
        }
    }

    /// Called with the decisions of a group, before they are given to whoever asked. `sent`: no later than its call
    /// was sent; `answered`: no earlier than the answer came.
    pub(super) fn decided(
        &self,
        batch: &Batch,
        items: Range<usize>,
        decisions: &[Decision],
        sent: Instant,
        answered: Instant,
    ) {
        let denied = match decisions {
            [Decision { reason: Reason::Denied, details, .. }] => details.as_ref(),
            _ => None,
        };
        if denied.is_none() && batch.items()[items.start].operation == Operation::Check {
            return;
        }
        let Some((item, _, name)) = self.subject(batch, items) else { return };
        match (item.operation, denied) {
            (Operation::Check, Some(details)) => {
                self.remember(name, item.cost, details, (self.us(sent), self.us(answered)));
            }
            (Operation::Refund | Operation::Reset, _) => self.forget(name, answered),
            _ => {}
        }
    }

    /// Called with a group that was given up at `now`, and may have been executed.
    pub(super) fn given_up(&self, batch: &Batch, items: Range<usize>, now: Instant) {
        self.decided(batch, items, &[], now, now);
    }

    fn remember(&self, name: Name, cost: u64, details: &Details, (sent_us, answered_us): (u64, u64)) {
        let Some(retry_after_us) = details.retry_after_us else { return };
        let denial = Denial {
            cost,
            sent_us,
            // Of what is told nothing is too early: it counts from when the answer came, a begun microsecond as whole.
            retry_at_us: answered_us + 1 + retry_after_us,
            reset_at_us: answered_us + 1 + details.reset_after_us,
            remaining: details.remaining,
            limit_index: details.limit_index,
        };
        let (index, until_us) = (self.index(name), sent_us + retry_after_us);
        self.sets[index].lock().remember(name, denial, until_us, answered_us);
        self.until_us[index].fetch_max(until_us.min(sent_us + set::LIFE_US_MAX), Ordering::Relaxed);
    }

    fn forget(&self, name: Name, now: Instant) {
        self.sets[self.index(name)].lock().forget(name, self.us(now));
    }

    /// The only item of a group, its policy, and the name of what is remembered of both; `None` for linked items and
    /// for what charges nothing.
    fn subject<'a>(
        &self,
        batch: &'a Batch,
        items: Range<usize>,
    ) -> Option<(&'a CheckItem, &'a Policy, Name)> {
        let [item] = &batch.items()[items] else { return None };
        let is_of_interest = match item.operation {
            Operation::Check => item.cost > 0,
            Operation::Refund | Operation::Reset => true,
            _ => false,
        };
        let policy = batch.policy(item).filter(|_| is_of_interest)?;
        Some((item, policy, self.name(policy, batch.key(item))))
    }

    fn name(&self, policy: &Policy, key: &[u8]) -> Name {
        let mut hasher = self.hasher;
        // All versions of a policy share the name of their first state; no other policy has it.
        hasher.write_u64(policy.ready().first().map_or(0, |limit| limit.state_id.0));
        hasher.write(key);
        let hash = hasher.finish128();
        Name { hash: [hash.h1, hash.h2], version: policy.limits_hash() }
    }

    /// Index of the set that a name belongs to.
    fn index(&self, name: Name) -> usize {
        // As the high bits of the hash are spread, so are the sets.
        ((u128::from(name.hash[0]) * self.sets.len() as u128) >> 64) as usize
    }

    fn us(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.started).as_micros() as u64
    }
}

/// What is told of a denial at `now_us`.
fn answer(denial: &Denial, now_us: u64) -> Decision {
    let details = Details {
        remaining: denial.remaining,
        reset_after_us: denial.reset_at_us.saturating_sub(now_us),
        retry_after_us: Some(denial.retry_at_us.saturating_sub(now_us)),
        limit_index: denial.limit_index,
    };
    Decision { details: Some(details), ..refuse(Reason::DeniedCached) }
}

impl fmt::Debug for DenyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCache").field("sets", &self.sets.len()).finish_non_exhaustive()
    }
}
