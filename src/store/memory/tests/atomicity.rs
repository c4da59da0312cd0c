//! Limits of a policy, linked checks, and the order within a batch.

use tokio::time::Instant;

use super::*;

#[test]
fn limits_of_a_policy_are_charged_together_or_not_at_all() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1m + sliding-window:3/1h", "token-bucket:10/1m"]);
    let decisions = subject.decide(&[check(0, 1, b"a"); 5]);
    assert_eq!(reasons(&decisions)[..3], [Reason::Ok; 3]);
    assert_eq!(reasons(&decisions)[3..], [Reason::Denied; 2]);
    assert_eq!(subject.keys(), 2);
    assert_eq!(subject.remaining(1, b"a"), 10, "another policy has states of its own");
    // Had the first limit been charged for the denied ones, some of it would be left.
    subject.ask(item(Operation::Refund, 0, 3, b"a"));
    assert_eq!(subject.keys(), 0);
}

#[test]
fn linked_checks_pass_together_or_not_at_all() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1m", "token-bucket:3/1m"]);
    let group = linked([check(0, 2, b"a"), check(1, 2, b"a")]);
    assert_eq!(reasons(&subject.decide(&group)), [Reason::Ok; 2]);
    assert_eq!(reasons(&subject.decide(&group)), [Reason::Linked, Reason::Denied]);
    assert_eq!((subject.remaining(0, b"a"), subject.remaining(1, b"a")), (8, 1));
}

#[test]
fn a_denied_group_adds_no_state() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1m", "token-bucket:3/1m"]);
    let group = linked([check(0, 2, b"a"), check(1, 4, b"a")]);
    assert_eq!(reasons(&subject.decide(&group)), [Reason::Linked, Reason::CostOverLimit]);
    assert_eq!((subject.keys(), subject.bytes()), (0, 0));
}

#[test]
fn linked_checks_of_one_policy_count_on_top_of_each_other() {
    let subject = Subject::new(ROOMY, &["token-bucket:3/1m"]);
    let group = linked([check(0, 2, b"a"), check(0, 2, b"a")]);
    assert_eq!(allowed(&subject.decide(&group)), 0);
    assert_eq!(subject.keys(), 0);
}

#[test]
fn a_group_with_an_invalid_check_charges_nothing() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1m"]);
    let no_cost = linked([check(0, 1, b"a"), check(0, 0, b"a")]);
    assert_eq!(reasons(&subject.decide(&no_cost)), [Reason::Linked, Reason::BadCost]);
    let no_policy = linked([check(0, 1, b"a"), check(9, 1, b"a")]);
    assert_eq!(reasons(&subject.decide(&no_policy)), [Reason::Linked, Reason::UnknownPolicy]);
    assert_eq!(subject.keys(), 0);
}

#[test]
fn what_is_wrong_with_one_check_is_answered_for_it_alone() {
    let subject = Subject::new(ROOMY, &["token-bucket:10/1m"]);
    let long = [b'k'; 1_025];
    let items = [
        check(0, 1, b"a"),
        check(9, 1, b"a"),
        check(0, 1, b""),
        check(0, 1, &long),
        item(Operation::Refund, 0, 0, b"a"),
        item(Operation::Unknown(6), 0, 1, b"a"),
        check(0, 1, b"a"),
    ];
    let expected = [
        Reason::Ok,
        Reason::UnknownPolicy,
        Reason::BadKey,
        Reason::BadKey,
        Reason::BadCost,
        Reason::BadOperation,
        Reason::Ok,
    ];
    assert_eq!(reasons(&subject.decide(&items)), expected);
    assert_eq!(subject.remaining(0, b"a"), 8);
}

#[test]
fn a_batch_is_its_checks_one_after_another() {
    let texts = ["token-bucket:7/1m", "sliding-window:5/1h"];
    let (together, alone) = (Subject::new(ROOMY, &texts), Subject::new(ROOMY, &texts));
    let keys: Vec<_> = (0..500).map(|index| format!("user:{}", index % 60)).collect();
    let operations =
        [Operation::Check, Operation::Check, Operation::Check, Operation::Peek, Operation::Force];
    let items: Vec<_> = (0..)
        .zip(&keys)
        .map(|(index, key)| item(operations[index % 5], index % 2, 1 + index as u64 % 3, key.as_bytes()))
        .collect();
    let one_by_one: Vec<_> = items.iter().map(|item| alone.ask(*item)).collect();
    assert_eq!(together.decide(&items), one_by_one);
}

#[test]
fn decisions_are_appended() {
    let subject = Subject::new(ROOMY, &["token-bucket:1/1m"]);
    let mut out = vec![undecided(Reason::Deadline, false)];
    subject.store.decide(&subject.batch(&[check(0, 1, b"a"), check(0, 1, b"a")]), &mut out);
    assert_eq!(reasons(&out), [Reason::Deadline, Reason::Ok, Reason::Denied]);
}

#[test]
fn what_is_too_late_charges_nothing() {
    let policies = [("token-bucket:1/1m", OnUnavailable::Deny), ("token-bucket:1/1m", OnUnavailable::Allow)];
    let subject = Subject::with_verdicts(ROOMY, &policies);
    let batch = subject.batch(&[check(0, 1, b"a"), check(1, 1, b"b"), check(9, 1, b"c")]);
    let mut out = Vec::new();
    subject.store.decide(&Batch { deadline: Some(Instant::now()), ..batch }, &mut out);
    let expected = [
        undecided(Reason::Deadline, false),
        undecided(Reason::Deadline, true),
        refuse(Reason::UnknownPolicy),
    ];
    assert_eq!(out, expected);
    assert_eq!(subject.keys(), 0);
    let in_time = Batch {
        deadline: Some(Instant::now() + std::time::Duration::from_secs(3_600)),
        ..subject.batch(&[check(0, 1, b"a")])
    };
    out.clear();
    subject.store.decide(&in_time, &mut out);
    assert_eq!(reasons(&out), [Reason::Ok]);
}
