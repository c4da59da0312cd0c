//! The bounds of the store, and what is answered where there is no room.

use super::*;
use crate::store::memory::bounds::counted_bytes;

const HOURLY: &str = "token-bucket:10/1h";
const BOTH: &str = "token-bucket:10/1h + sliding-window:10/1h";

fn keys_max(keys_max: u64) -> MemoryConfig {
    MemoryConfig { keys_max, ..ROOMY }
}

fn users(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("user:{index}")).collect()
}

fn checks(policy: usize, keys: &[String]) -> Vec<Item<'_>> {
    keys.iter().map(|key| check(policy, 1, key.as_bytes())).collect()
}

#[test]
fn no_more_keys_than_allowed() {
    let subject = Subject::new(keys_max(100), &[HOURLY]);
    let users = users(1_000);
    let decisions = subject.decide(&checks(0, &users));
    let full = decisions.iter().filter(|decision| **decision == undecided(Reason::StoreFull, false)).count();
    assert_eq!((allowed(&decisions), full, subject.keys()), (100, 900, 100));
    // Those that have a state go on, and the others are still new.
    assert_eq!(reasons(&subject.decide(&checks(0, &users))), reasons(&decisions));
}

#[test]
fn no_more_bytes_than_allowed() {
    let keys: Vec<_> = [1, 8, 9, 100, 1_024].iter().map(|&length| "k".repeat(length)).collect();
    let bytes = keys.iter().map(|key| counted_bytes(key.len())).sum();
    for key in &keys {
        assert!((48..=63).contains(&(counted_bytes(key.len()) - key.len() as u64)));
    }
    let exact = Subject::new(MemoryConfig { bytes_max: bytes, ..ROOMY }, &[HOURLY]);
    assert_eq!(allowed(&exact.decide(&checks(0, &keys))), 5);
    assert_eq!(exact.bytes(), bytes);
    assert_eq!(exact.ask(check(0, 1, b"l")).reason, Reason::StoreFull);

    let short = Subject::new(MemoryConfig { bytes_max: bytes - 1, ..ROOMY }, &[HOURLY]);
    assert_eq!(allowed(&short.decide(&checks(0, &keys))), 4);
    assert_eq!(short.keys(), 4, "a state without room for its bytes takes none of the keys");
    assert!(short.bytes() < bytes);
}

#[test]
fn a_limited_key_is_never_evicted() {
    let subject = Subject::new(keys_max(50), &[HOURLY]);
    assert!(subject.ask(check(0, 10, b"limited")).allow);
    for user in users(2_000) {
        subject.ask(check(0, 1, user.as_bytes()));
        let limited = subject.ask(check(0, 1, b"limited"));
        assert_eq!((limited.reason, limited.degraded), (Reason::Denied, false));
    }
    subject.advance(360 * SECOND_US);
    assert_eq!(subject.ask(check(0, 1, b"limited")).reason, Reason::Ok);
}

#[test]
fn a_new_key_is_answered_by_its_policy() {
    let policies = [(HOURLY, OnUnavailable::Deny), ("token-bucket:9/1h", OnUnavailable::Allow)];
    let subject = Subject::with_verdicts(keys_max(1), &policies);
    assert!(subject.ask(check(0, 1, b"known")).allow);
    for operation in [Operation::Check, Operation::Force, Operation::TakeUpTo] {
        assert_eq!(subject.ask(item(operation, 0, 1, b"new")), undecided(Reason::StoreFull, false));
        assert_eq!(subject.ask(item(operation, 1, 1, b"new")), undecided(Reason::StoreFull, true));
    }
}

#[test]
fn what_needs_no_room_is_decided() {
    let subject = Subject::new(keys_max(0), &[HOURLY]);
    for operation in [Operation::Peek, Operation::Refund, Operation::Reset] {
        assert_eq!(subject.ask(item(operation, 0, 1, b"new")).reason, Reason::Ok);
    }
    assert_eq!(subject.ask(check(0, 0, b"new")).reason, Reason::Ok);
    assert_eq!(subject.ask(check(0, 11, b"new")).reason, Reason::CostOverLimit);
}

#[test]
fn a_policy_without_room_for_all_its_limits_charges_none() {
    let subject = Subject::new(keys_max(3), &[BOTH]);
    assert!(subject.ask(check(0, 1, b"known")).allow);
    assert_eq!(subject.ask(check(0, 1, b"new")), undecided(Reason::StoreFull, false));
    assert_eq!((subject.keys(), subject.bytes()), (2, 2 * counted_bytes(5)));
    assert_eq!(subject.remaining(0, b"new"), 10);
}

#[test]
fn a_policy_without_room_gives_back_what_it_replaced() {
    let subject = Subject::new(keys_max(2), &["token-bucket:10/1h + token-bucket:10/1s", HOURLY]);
    assert!(subject.ask(check(0, 4, b"a")).allow);
    subject.advance(SECOND_US);
    assert_eq!(subject.sweep(), 1, "the state of the second limit");
    assert!(subject.ask(check(1, 1, b"other")).allow, "takes its room");
    let before = subject.ask(item(Operation::Peek, 0, 1, b"a"));
    assert_eq!(subject.ask(check(0, 1, b"a")), undecided(Reason::StoreFull, false));
    assert_eq!(subject.ask(item(Operation::Peek, 0, 1, b"a")), before);
}

#[test]
fn linked_checks_without_room_charge_nothing() {
    let policies = [(HOURLY, OnUnavailable::Deny), (BOTH, OnUnavailable::Allow)];
    let subject = Subject::with_verdicts(keys_max(2), &policies);
    assert!(subject.ask(check(0, 3, b"a")).allow);
    let group = linked([check(0, 1, b"a"), check(1, 1, b"a")]);
    let expected = [undecided(Reason::StoreFull, false), undecided(Reason::StoreFull, true)];
    assert_eq!(subject.decide(&group), expected);
    assert_eq!((subject.remaining(0, b"a"), subject.remaining(1, b"a")), (7, 10));
    assert_eq!((subject.keys(), subject.bytes()), (1, counted_bytes(1)));
}

#[test]
fn expired_states_make_room_at_once() {
    let subject = Subject::new(keys_max(500), &["token-bucket:10/1s", HOURLY]);
    let users = users(1_000);
    assert_eq!(allowed(&subject.decide(&checks(0, &users[..500]))), 500);
    assert_eq!(allowed(&subject.decide(&checks(1, &users[500..]))), 0);
    subject.advance(SECOND_US);
    assert_eq!(allowed(&subject.decide(&checks(1, &users[500..]))), 500);
    assert_eq!(subject.keys(), 500);
}

#[test]
fn one_expired_state_is_found_among_live_ones() {
    let subject = Subject::new(keys_max(500), &["token-bucket:10/1s", HOURLY]);
    let users = users(499);
    subject.decide(&checks(1, &users));
    assert!(subject.ask(check(0, 1, b"short")).allow);
    subject.advance(SECOND_US);
    assert!(subject.ask(check(1, 1, b"new")).allow);
    assert_eq!(subject.ask(check(1, 1, b"newer")).reason, Reason::StoreFull);
    assert_eq!(subject.keys(), 500);
}

/// Whoever looks for room in the stripe of its batch moves rows there.
#[test]
fn known_keys_are_found_again_after_their_rows_moved() {
    let subject = Subject::new(keys_max(30), &["token-bucket:10/1s", HOURLY]);
    let keys = subject.keys_of_one_stripe(45);
    let mut keys = keys.chunks(15);
    let mut next = || keys.next().expect("three times fifteen keys");
    let (short, live, new) = (next(), next(), next());
    let pairs: Vec<_> = short.iter().zip(live).flat_map(|(a, b)| [check(0, 1, a), check(1, 3, b)]).collect();
    assert_eq!(allowed(&subject.decide(&pairs)), 30);
    subject.advance(SECOND_US);
    let pairs: Vec<_> = new.iter().zip(live).flat_map(|(a, b)| [check(1, 1, a), check(1, 4, b)]).collect();
    assert_eq!(allowed(&subject.decide(&pairs)), 30);
    assert!(live.iter().all(|key| subject.remaining(1, key) == 3));
    assert!(new.iter().all(|key| subject.remaining(1, key) == 9));
}
