//! Decisions counted by policy and reason: one addition for each run of items under one policy, not one for
//! each item.

use tollgate_protocol::reply::Reason;

use crate::{limit::Decision, metrics::Metrics, policy::SessionPolicies};

/// Reasons have five bits on the wire.
const REASON_CODES: usize = 32;

/// Counts the decisions of a batch whose items name `aliases`, in order.
pub(crate) fn count(
    metrics: &Metrics,
    policies: &SessionPolicies,
    aliases: impl Iterator<Item = u32>,
    decisions: &[Decision],
) {
    metrics.batch_items.observe(decisions.len() as f64);
    let mut run = Run { alias: 0, counts: [0; REASON_CODES] };
    for (alias, decision) in aliases.zip(decisions) {
        if alias != run.alias {
            run.flush(metrics, policies);
            run.alias = alias;
        }
        run.counts[usize::from(decision.reason.to_wire()) % REASON_CODES] += 1;
    }
    run.flush(metrics, policies);
}

/// Items in a row that name the same policy.
struct Run {
    alias: u32,
    counts: [u32; REASON_CODES],
}

impl Run {
    fn flush(&mut self, metrics: &Metrics, policies: &SessionPolicies) {
        let counts = std::mem::replace(&mut self.counts, [0; REASON_CODES]);
        let policy = policies.get(self.alias);
        for (code, count) in (0u8..).zip(counts).filter(|&(_, count)| count > 0) {
            match policy {
                Some(policy) => policy.decisions.add(Reason::from_wire(code), u64::from(count)),
                None => {
                    metrics.unknown_policy.inc_by(u64::from(count));
                }
            }
        }
    }
}
