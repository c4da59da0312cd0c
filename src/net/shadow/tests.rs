use std::sync::Arc;

use tollgate_protocol::{
    check::{CheckEncoder, Item, Operation},
    ring::RingSecret,
};

use super::*;
use crate::{
    limit::decide::refuse,
    metrics::Metrics,
    net::testing::limits,
    policy::{Enforcement, OnUnavailable, Policy, PolicyTable},
};

/// Policies `a`, enforced, and `b`, enforced for a share of the keys.
fn policies(percent: u8) -> SessionPolicies {
    let (secret, metrics) = (RingSecret::default(), Metrics::new());
    let policy = |(name, percent): (&str, u8)| {
        let policy = Policy::named(name, limits("token-bucket:1/1h"), OnUnavailable::Deny, &secret, &metrics);
        (name.to_owned(), policy.unwrap().with_enforcement(Enforcement::new(percent, secret)))
    };
    SessionPolicies::new(Arc::new(PolicyTable::new([("a", 100), ("b", percent)].map(policy))))
}

/// A batch of checks of one key: the policy of each, and whether it is linked with the next.
fn batch(items: &[(u64, bool)]) -> CheckBatch {
    let mut encoder = CheckEncoder::default();
    for (cost, &(policy, linked)) in (1..).zip(items) {
        encoder.push(&Item { operation: Operation::Check, alias: 2 * policy, cost, key: b"k", linked });
    }
    let mut payload = bytes::BytesMut::new();
    encoder.finish(&mut payload, true, None);
    CheckBatch::decode(payload.freeze(), items.len()).unwrap()
}

const A: u64 = 0;
const B: u64 = 1;

#[test]
fn a_check_that_is_not_enforced_leaves_its_run_and_the_others_stay_linked() {
    let mut check = batch(&[(B, false), (A, true), (B, true), (A, true), (B, false), (A, false)]);
    let shadow = Shadow::cast(&mut check, &policies(0));
    let items: Vec<_> = check.items.iter().map(|item| (item.cost, item.linked)).collect();
    assert_eq!(items, [(1, false), (2, true), (4, false), (3, false), (5, false), (6, false)]);
    let denied =
        |item: &tollgate_protocol::check::CheckItem| Decision { granted: item.cost, ..refuse(Reason::Ok) };
    let mut decisions: Vec<_> = check.items.iter().map(denied).collect();
    shadow.restore(&mut decisions);
    assert_eq!(decisions.iter().map(|decision| decision.granted).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_is_denied_passes_and_what_is_wrong_does_not() {
    let mut check = batch(&[(B, false); 4]);
    let shadow = Shadow::cast(&mut check, &policies(0));
    let details = Details { retry_after_us: Some(5), ..Details::default() };
    let mut decisions = [
        Decision { details: Some(details), ..refuse(Reason::Denied) },
        Decision { degraded: true, ..refuse(Reason::Ambiguous) },
        Decision { allow: true, granted: 3, ..refuse(Reason::Partial) },
        refuse(Reason::BadCost),
    ];
    shadow.waive(&mut decisions);
    let told = decisions.map(|decision| (decision.allow, decision.reason, decision.degraded));
    let expected = [
        (true, Reason::Shadow, false),
        (true, Reason::Ambiguous, true),
        (true, Reason::Shadow, false),
        (false, Reason::BadCost, false),
    ];
    assert_eq!(told, expected);
    assert_eq!(decisions[0].details, Some(Details { retry_after_us: None, ..details }));
}

#[test]
fn a_batch_under_policies_that_are_enforced_is_left_alone() {
    let (before, mut check) = (batch(&[(A, true), (B, false)]), batch(&[(A, true), (B, false)]));
    let shadow = Shadow::cast(&mut check, &policies(100));
    assert_eq!(check, before);
    let mut decisions = [refuse(Reason::Denied); 2];
    shadow.waive(&mut decisions);
    assert_eq!(decisions, [refuse(Reason::Denied); 2]);
}

#[test]
fn a_share_of_the_keys_is_enforced_and_stays_so_when_it_grows() {
    let keys: Vec<_> = (0..20_000).map(|index| format!("user:{index}")).collect();
    let enforced = |percent| {
        let policies = policies(percent);
        keys.iter().map(|key| policies.enforces(2, key.as_bytes())).collect::<Vec<_>>()
    };
    let shares = [10, 50, 90].map(enforced);
    for (percent, share) in [10, 50, 90].iter().zip(&shares) {
        let count = share.iter().filter(|is_enforced| **is_enforced).count();
        // Five standard deviations of a fair draw are below 2 %.
        assert!(count.abs_diff(200 * percent) < 400, "{count} of {percent} %");
    }
    for pair in shares.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(few, more)| !few || *more));
    }
}
