//! Every instant is a parameter here.

mod model;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    limit::Limit,
    policy::Limits,
    reply::{Details, Reason},
    ring::RingSecret,
};

use super::{
    DenyCache,
    set::{LIFE_US_MAX, LIFE_US_MIN, WAYS},
};
use crate::{
    batch::Batch,
    limit::{Decision, decide::refuse},
    metrics::Metrics,
    policy::{OnUnavailable, Policy, PolicyTable, SessionPolicies},
};

/// Named policies, in the order of their names; policy `i` has the alias `2*i`. Limits are joined by ` + `.
pub(super) fn policies(texts: &[&str]) -> Arc<SessionPolicies> {
    let metrics = Metrics::new();
    let policy = |(index, text): (usize, &&str)| {
        let limits = text.split(" + ").map(|limit| limit.parse::<Limit>().unwrap());
        let limits = Limits::new(limits.collect()).unwrap();
        let name = format!("policy-{index}");
        let secret = RingSecret::default();
        let policy = Policy::named(&name, limits, OnUnavailable::Deny, &secret, &metrics);
        (name, policy.unwrap())
    };
    let table = PolicyTable::new(texts.iter().enumerate().map(policy));
    Arc::new(SessionPolicies::new(Arc::new(table)))
}

pub(super) fn batch(policies: &Arc<SessionPolicies>, details: bool, items: &[Item<'_>]) -> Batch {
    let mut encoder = CheckEncoder::default();
    items.iter().for_each(|item| encoder.push(item));
    let mut payload = bytes::BytesMut::new();
    encoder.finish(&mut payload, details, None);
    let check = CheckBatch::decode(payload.freeze(), items.len()).unwrap();
    Batch { check, policies: Arc::clone(policies), deadline: None }
}

fn item(operation: Operation, policy: u64, cost: u64, key: &[u8]) -> Item<'_> {
    Item { operation, alias: 2 * policy, cost, key, linked: false }
}

pub(super) fn check(cost: u64) -> Item<'static> {
    item(Operation::Check, 0, cost, b"user:1")
}

pub(super) fn reset() -> Item<'static> {
    item(Operation::Reset, 0, 0, b"user:1")
}

pub(super) fn denied(retry_after_us: u64) -> Decision {
    let details = Details {
        remaining: 2,
        reset_after_us: 2 * retry_after_us,
        retry_after_us: Some(retry_after_us),
        limit_index: 1,
    };
    Decision { details: Some(details), ..refuse(Reason::Denied) }
}

/// A cache, the policies of a connection, and instants.
pub(super) struct Subject {
    pub(super) cache: DenyCache,
    pub(super) policies: Arc<SessionPolicies>,
    details: bool,
}

impl Subject {
    pub(super) fn new(entries: usize) -> Self {
        let cache = DenyCache::with_secret(entries, [1, 2]);
        Self { cache, policies: policies(&["token-bucket:100/1m", "sliding-window:100/1m"]), details: true }
    }

    pub(super) fn at(&self, us: u64) -> Instant {
        self.cache.started + Duration::from_micros(us)
    }

    pub(super) fn before(&self, item: Item<'_>, us: u64) -> Option<Decision> {
        self.cache.before(&batch(&self.policies, self.details, &[item]), 0..1, self.at(us))
    }

    pub(super) fn decided(&self, item: Item<'_>, decision: Decision, sent_us: u64, answered_us: u64) {
        let batch = batch(&self.policies, self.details, &[item]);
        self.cache.decided(&batch, 0..1, &[decision], self.at(sent_us), self.at(answered_us));
    }

    pub(super) fn is_denied(&self, item: Item<'_>, us: u64) -> bool {
        let decision = self.before(item, us);
        assert!(decision.is_none_or(|decision| !decision.allow && decision.reason == Reason::DeniedCached));
        decision.is_some()
    }
}

#[test]
fn denial_holds_until_its_retry_counted_from_when_the_call_was_sent() {
    let subject = Subject::new(1);
    assert!(!subject.is_denied(check(3), 9_999));
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    assert!(subject.is_denied(check(3), 11_000));
    assert!(subject.is_denied(check(3), 14_999));
    assert!(!subject.is_denied(check(3), 15_000));
}

#[test]
fn what_is_told_is_counted_down_from_when_the_answer_came() {
    let subject = Subject::new(1);
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    let details = subject.before(check(3), 12_500).unwrap().details.unwrap();
    let expected =
        Details { remaining: 2, reset_after_us: 8_501, retry_after_us: Some(3_501), limit_index: 1 };
    assert_eq!(details, expected);
}

#[test]
fn no_denial_lives_for_longer_than_its_cap() {
    let subject = Subject::new(1);
    subject.decided(check(3), denied(1 << 52), 10_000, 11_000);
    assert!(subject.is_denied(check(3), 10_000 + LIFE_US_MAX - 1));
    assert!(!subject.is_denied(check(3), 10_000 + LIFE_US_MAX));
}

#[test]
fn denial_that_is_about_to_end_is_not_kept() {
    let subject = Subject::new(1);
    subject.decided(check(3), denied(1_000 + LIFE_US_MIN - 1), 10_000, 11_000);
    assert!(!subject.is_denied(check(3), 11_000));
    subject.decided(check(3), denied(1_000 + LIFE_US_MIN), 10_000, 11_000);
    assert!(subject.is_denied(check(3), 11_000));
}

#[test]
fn smaller_costs_are_not_denied_and_greater_ones_only_where_no_details_are_wanted() {
    let mut subject = Subject::new(1);
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    assert!(!subject.is_denied(check(2), 12_000));
    assert!(!subject.is_denied(check(4), 12_000), "when a cost of 4 may come back is not known");
    subject.details = false;
    assert!(!subject.is_denied(check(2), 12_000));
    assert!(subject.is_denied(check(100), 12_000));
    assert!(!subject.is_denied(check(101), 12_000), "it can never pass, which has a reason of its own");
}

#[test]
fn smaller_of_two_costs_is_kept_while_it_lives() {
    let subject = Subject::new(1);
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    subject.decided(check(4), denied(9_000), 10_000, 11_000);
    assert!(subject.is_denied(check(3), 14_999));
    subject.decided(check(4), denied(9_000), 15_000, 16_000);
    assert!(subject.is_denied(check(4), 16_000));
    subject.decided(check(2), denied(2_000), 16_000, 17_000);
    assert!(subject.is_denied(check(2), 17_000));
}

#[test]
fn nothing_but_an_unlinked_check_that_costs_something_is_answered() {
    let mut subject = Subject::new(1);
    subject.details = false;
    subject.decided(check(1), denied(5_000), 10_000, 11_000);
    assert!(!subject.is_denied(check(0), 12_000));
    for operation in [Operation::Peek, Operation::Force, Operation::TakeUpTo] {
        assert!(!subject.is_denied(item(operation, 0, 1, b"user:1"), 12_000), "{operation:?}");
    }
    let linked = [Item { linked: true, ..check(1) }, check(1)];
    let batch = batch(&subject.policies, false, &linked);
    assert_eq!(subject.cache.before(&batch, 0..2, subject.at(12_000)), None);
    assert!(subject.is_denied(check(1), 12_000));
}

#[test]
fn batch_whose_deadline_has_passed_is_left_to_who_says_so() {
    let subject = Subject::new(1);
    subject.decided(check(1), denied(5_000), 10_000, 11_000);
    let deadline = Some(subject.at(12_000));
    let batch = Batch { deadline, ..batch(&subject.policies, true, &[check(1)]) };
    assert!(subject.cache.before(&batch, 0..1, subject.at(11_999)).is_some());
    assert_eq!(subject.cache.before(&batch, 0..1, subject.at(12_000)), None);
}

#[test]
fn only_the_same_key_and_limits_are_denied() {
    let mut subject = Subject::new(1);
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    assert!(!subject.is_denied(item(Operation::Check, 0, 3, b"user:2"), 12_000));
    assert!(!subject.is_denied(item(Operation::Check, 1, 3, b"user:1"), 12_000));
    let first = Arc::clone(&subject.policies);
    subject.policies = policies(&["token-bucket:200/1m", "sliding-window:100/1m"]);
    assert!(!subject.is_denied(check(3), 12_000), "the limit was raised");
    subject.policies = first;
    assert!(subject.is_denied(check(3), 12_000));
}

#[test]
fn reset_and_refund_drop_what_is_known_under_every_version() {
    for drop in [reset(), item(Operation::Refund, 0, 1, b"user:1")] {
        let mut subject = Subject::new(1);
        subject.decided(check(3), denied(5_000), 10_000, 11_000);
        let first = Arc::clone(&subject.policies);
        subject.policies = policies(&["token-bucket:200/1m"]);
        assert_eq!(subject.before(drop, 12_000), None);
        subject.policies = first;
        assert!(!subject.is_denied(check(3), 12_001));
    }
}

#[test]
fn reset_of_another_key_drops_nothing() {
    let subject = Subject::new(WAYS);
    subject.decided(check(3), denied(5_000), 10_000, 11_000);
    assert_eq!(subject.before(item(Operation::Reset, 0, 0, b"user:2"), 12_000), None);
    assert_eq!(subject.before(item(Operation::Reset, 1, 0, b"user:1"), 12_000), None);
    assert!(subject.is_denied(check(3), 12_001));
}

#[test]
fn denial_that_was_sent_before_a_drop_is_not_remembered_after_it() {
    let queued = |subject: &Subject| assert_eq!(subject.before(reset(), 20_000), None);
    let answered = |subject: &Subject| subject.decided(reset(), refuse(Reason::Ok), 0, 20_000);
    let given_up = |subject: &Subject| {
        let batch = batch(&subject.policies, true, &[reset()]);
        subject.cache.given_up(&batch, 0..1, subject.at(20_000));
    };
    for drop in [&queued as &dyn Fn(&Subject), &answered, &given_up] {
        let subject = Subject::new(1);
        drop(&subject);
        subject.decided(check(3), denied(50_000), 20_000, 21_000);
        assert!(!subject.is_denied(check(3), 22_000), "as old as the drop");
        subject.decided(check(3), denied(50_000), 20_001, 21_000);
        assert!(subject.is_denied(check(3), 22_000), "sent after the drop");
    }
}

#[test]
fn check_after_a_reset_of_its_batch_is_not_answered_by_what_others_learn_meanwhile() {
    let subject = Subject::new(1);
    let batch = batch(&subject.policies, true, &[reset(), check(3)]);
    assert_eq!(subject.cache.before(&batch, 0..1, subject.at(12_000)), None);
    subject.decided(check(3), denied(50_000), 12_001, 12_002);
    assert_eq!(subject.cache.before(&batch, 1..2, subject.at(12_000)), None);
    assert!(subject.is_denied(check(3), 12_002), "to a later batch it is known");
}

#[test]
fn entries_are_bounded_and_the_first_to_end_goes() {
    let subject = Subject::new(WAYS);
    let keys: Vec<_> = (0..=WAYS).map(|key| format!("user:{key}").into_bytes()).collect();
    let known = |us| {
        let denied = |key: &Vec<u8>| subject.is_denied(item(Operation::Check, 0, 1, key), us);
        keys.iter().map(denied).collect::<Vec<_>>()
    };
    for (index, key) in keys.iter().enumerate() {
        let retry_us = if index == 3 { 10_000 } else { 90_000 };
        subject.decided(item(Operation::Check, 0, 1, key), denied(retry_us), 1_000, 2_000);
    }
    let expected: Vec<_> = (0..=WAYS).map(|index| index != 3).collect();
    assert_eq!(known(3_000), expected);
}

#[test]
fn keys_are_spread_over_all_sets() {
    let subject = Subject::new(64 * WAYS);
    let keys: Vec<_> = (0..64 * WAYS / 2).map(|key| format!("user:{key}").into_bytes()).collect();
    for key in &keys {
        subject.decided(item(Operation::Check, 0, 1, key), denied(90_000), 1_000, 2_000);
    }
    let known = keys.iter().filter(|key| subject.is_denied(item(Operation::Check, 0, 1, key), 3_000));
    let share = known.count() as f64 / keys.len() as f64;
    assert!(share > 0.95, "{share} of half as many keys as there are places");
}

#[test]
fn look_up_allocates_nothing() {
    let subject = Subject::new(1_024);
    subject.decided(check(3), denied(50_000), 10_000, 11_000);
    let batch = batch(&subject.policies, true, &[check(3), check(2)]);
    let now = subject.at(12_000);
    let info = allocation_counter::measure(|| {
        assert!(subject.cache.before(&batch, 0..1, now).is_some());
        assert!(subject.cache.before(&batch, 1..2, now).is_none());
        let (sent, answered) = (subject.at(12_001), subject.at(12_002));
        subject.cache.decided(&batch, 0..1, &[denied(50_000)], sent, answered);
    });
    assert_eq!(info.count_total, 0);
}
