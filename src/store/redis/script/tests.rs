use std::sync::Arc;

use redis::Value;
use tollgate_protocol::{
    check::{CheckBatch, CheckEncoder, Item, Operation},
    limit::Limit,
    ring::RingSecret,
};

use super::{Answer, Call, call::FIELDS_MAX, plan::Step};
use crate::{
    batch::Batch,
    metrics::Metrics,
    policy::{OnUnavailable, Policy, PolicyTable, SessionPolicies},
};

/// Policy `i` has the alias `2*i+1`.
fn batch(policies: &[&str], items: &[Item<'_>]) -> Arc<Batch> {
    let mut session = SessionPolicies::new(Arc::new(PolicyTable::default()));
    for (index, text) in policies.iter().enumerate() {
        let limits = text.parse::<Limit>().unwrap().into();
        let secret = RingSecret::default();
        let policy = Policy::inline(limits, OnUnavailable::Deny, &secret, &Metrics::new()).unwrap();
        session.define(2 * index as u64 + 1, Some(policy));
    }
    let mut encoder = CheckEncoder::default();
    items.iter().for_each(|item| encoder.push(item));
    let mut payload = bytes::BytesMut::new();
    encoder.finish(&mut payload, true, None);
    let check = CheckBatch::decode(payload.freeze(), items.len()).unwrap();
    Arc::new(Batch { check, policies: Arc::new(session), deadline: None })
}

fn item(operation: Operation, alias: u64, cost: u64, key: &[u8]) -> Item<'_> {
    Item { operation, alias, cost, key, linked: false }
}

fn call_of(batch: &Batch) -> Call {
    let mut call = Call::new(0, 1);
    for group in batch.groups() {
        assert!(call.add(0, batch, group));
    }
    call
}

/// Its lone checks, then its other steps.
fn steps(call: &Call) -> Vec<Step> {
    let (lone, others) = call.plan().merged_steps();
    [lone, others].concat()
}

#[test]
fn equal_checks_of_a_key_are_one_step() {
    let items = [item(Operation::Check, 1, 1, b"hot"); 5];
    let call = call_of(&batch(&["token-bucket:3/1s"], &items));
    assert_eq!(call.fields_count(), 1);
    assert_eq!(steps(&call).iter().map(|step| (step.keys, step.times)).collect::<Vec<_>>(), [(1, 5)]);
}

#[test]
fn a_step_between_keeps_the_order_of_a_key() {
    let check = item(Operation::Check, 1, 1, b"hot");
    let items = [check, item(Operation::Refund, 1, 2, b"hot"), check, check];
    let call = call_of(&batch(&["token-bucket:3/1s"], &items));
    let found: Vec<_> = steps(&call).iter().map(|step| (step.operation, step.times)).collect();
    assert_eq!(found, [(0, 1), (2, 1), (0, 2)]);
}

#[test]
fn different_keys_of_one_kind_are_one_step() {
    let keys: Vec<String> = (0..50).map(|index| format!("user:{index}")).collect();
    let items: Vec<_> = keys.iter().map(|key| item(Operation::Check, 1, 1, key.as_bytes())).collect();
    let call = call_of(&batch(&["token-bucket:3/1s"], &items));
    let found: Vec<_> = steps(&call).iter().map(|step| (step.keys, step.times)).collect();
    assert_eq!((call.fields_count(), found), (50, vec![(50, 1)]));
}

#[test]
fn only_unlinked_checks_of_keys_that_nothing_else_touches_are_lone() {
    let check = |alias, key| item(Operation::Check, alias, 1, key);
    let linked = Item { linked: true, ..check(1, b"linked") };
    let items = [
        check(1, b"alone"),
        check(1, b"also reset"),
        check(1, b"again"),
        item(Operation::Reset, 1, 0, b"also reset"),
        item(Operation::Force, 1, 1, b"forced"),
        linked,
        check(3, b"linked"),
        check(1, b"again"),
        check(1, b"at another cost"),
        item(Operation::Check, 1, 2, b"at another cost"),
    ];
    let call = call_of(&batch(&["token-bucket:3/1s", "sliding-window:3/1s"], &items));
    let lone: Vec<_> =
        steps(&call).iter().filter(|step| step.is_lone).map(|step| (step.keys, step.times)).collect();
    assert_eq!(lone, [(1, 1), (1, 2)]);
}

#[test]
fn peeks_read_and_take_no_step() {
    let items = [item(Operation::Peek, 1, 1, b"a"), item(Operation::Check, 1, 0, b"b")];
    let call = call_of(&batch(&["token-bucket:3/1s"], &items));
    assert_eq!((call.fields_count(), steps(&call).len()), (2, 0));
}

#[test]
fn a_call_has_a_bounded_number_of_fields() {
    let keys: Vec<String> = (0..=FIELDS_MAX).map(|index| format!("user:{index}")).collect();
    let items: Vec<_> = keys.iter().map(|key| item(Operation::Check, 1, 1, key.as_bytes())).collect();
    let batch = batch(&["token-bucket:3/1s"], &items);
    let mut call = Call::new(0, 1);
    let taken = batch.groups().take_while(|group| call.add(0, &batch, group.clone())).count();
    assert_eq!(taken, FIELDS_MAX);
}

#[test]
fn a_state_is_read_by_one_version_of_its_rules_only() {
    let check = [item(Operation::Check, 1, 1, b"a")];
    let (mut old, mut new) = (batch(&["token-bucket:3/1s"], &check), batch(&["token-bucket:4/1s"], &check));
    let named = |limits: &str| {
        let limits = limits.parse::<Limit>().unwrap().into();
        let secret = RingSecret::default();
        Policy::named("api", limits, OnUnavailable::Deny, &secret, &Metrics::new()).unwrap()
    };
    for (batch, limits) in [(&mut old, "token-bucket:3/1s"), (&mut new, "token-bucket:4/1s")] {
        let batch = Arc::get_mut(batch).unwrap();
        Arc::get_mut(&mut batch.policies).unwrap().define(1, Some(named(limits)));
    }
    let mut call = Call::new(0, 1);
    assert!(call.add(0, &old, 0..1));
    assert!(!call.add(1, &new, 0..1));
    assert!(call.add(0, &old, 0..1));
}

#[test]
fn answers_that_are_none_are_refused() {
    let array = |parts: Vec<Value>| Value::Array(parts);
    let text = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
    assert_eq!(Answer::read(&Value::Okay), None);
    assert_eq!(Answer::read(&array(vec![Value::Int(1)])), None);
    assert_eq!(Answer::read(&array(vec![Value::Int(-1), text(b"\0")])), None);
    assert_eq!(Answer::read(&array(vec![Value::Int(1), text(b"\x01\0\0")])), None);
    let late = Answer::read(&array(vec![Value::Int(7), text(b"")]));
    assert_eq!(late, Some(Answer { now_us: 7, states: Vec::new() }));
    let empty = Answer::read(&array(vec![Value::Int(7), text(b"\0\0")]));
    assert_eq!(empty, Some(Answer { now_us: 7, states: vec![None, None] }));
}
