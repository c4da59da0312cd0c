//! What the server decided about a request.

use std::time::Duration;

use tollgate_protocol::{
    check::Operation,
    limit::Limit,
    limits::LIMITS_MAX,
    reply::{Reason, ReplyItem},
};

use crate::{table::KnownLimits, waiting::Ask};

/// The answer to a request. A denial is a decision, never an error.
///
/// `remaining`, `reset_after`, `retry_after`, `limit_index` and `limit` speak of the tightest limit of the
/// policy. They are `None` where the server could not know them, for instance while its store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether to let it pass.
    pub allowed: bool,
    /// Why. A reason that this version does not know is [`Reason::Other`]: act on `allowed`.
    pub reason: Reason,
    /// Whether this is the policy's answer to a failure, not that of the authoritative store.
    pub degraded: bool,
    /// The cost that may pass: all of it where it is allowed, a part where the reason is
    /// [`Reason::Partial`], otherwise 0. Always 0 for a refund and a reset.
    pub granted: u64,
    /// The cost that would pass now.
    pub remaining: Option<u64>,
    /// Time until the limits are as if never used, rounded up to 1,024 microseconds.
    pub reset_after: Option<Duration>,
    /// Time until the same request would pass; `None` where it passed, or can never pass
    /// ([`Reason::CostOverLimit`]).
    pub retry_after: Option<Duration>,
    /// Index in the policy of the limit that denied, else of the one with the least remaining; 0..=3.
    pub limit_index: Option<u8>,
    /// That limit.
    pub limit: Option<Limit>,
}

impl Decision {
    /// The decision in the reply to a request; `limits` are those of its policy.
    #[inline]
    pub(crate) fn from_reply(item: &ReplyItem, ask: &Ask, limits: &KnownLimits) -> Self {
        let details = item.details.as_ref();
        Self {
            allowed: item.allow,
            reason: item.reason,
            degraded: item.degraded,
            granted: granted(item, ask),
            remaining: details.map(|details| details.remaining),
            reset_after: details.map(|details| Duration::from_micros(details.reset_after_us)),
            retry_after: details.and_then(|details| details.retry_after_us).map(Duration::from_micros),
            limit_index: details.map(|details| details.limit_index),
            // An index is below 4.
            limit: details.and_then(|details| limits[usize::from(details.limit_index) % LIMITS_MAX]),
        }
    }
}

/// What may pass. The wire leaves it to the client: only a part of a cost is sent.
fn granted(item: &ReplyItem, ask: &Ask) -> u64 {
    match ask.operation {
        Operation::Refund | Operation::Reset => 0,
        _ if item.reason == Reason::Partial => item.granted,
        _ if item.allow => ask.cost,
        _ => 0,
    }
}
