//! States that were stored under other circumstances, and checks that depend on each other: a key that is only
//! ever denied must not stay in the past.

use tollgate_protocol::{check::Operation, limit::Limit, policy::Limits, reply::Reason};

use crate::{
    subject::{Ask, Direct, Subject},
    trace::START_US,
};

const SECOND_US: u64 = 1_000_000;
const DAY_US: u64 = 86_400 * SECOND_US;

fn policy(text: &str) -> Limits {
    Limits::from(text.parse::<Limit>().expect("a limit"))
}

fn retry_after_us(subject: &mut Direct, now_us: u64, asks: &[Ask]) -> Option<u64> {
    let decisions = subject.decide(now_us, asks);
    assert!(decisions.iter().all(|decision| !decision.allow), "denied: {decisions:?}");
    let details = decisions.iter().map(|decision| decision.details.expect("details"));
    let retries: Vec<_> = details.map(|details| details.retry_after_us).collect();
    assert!(retries.iter().all(|&retry| retry == retries[0]), "all come back together: {decisions:?}");
    retries[0]
}

#[test]
fn clock_set_back_locks_nobody_out() {
    for limit in ["token-bucket:10/1s", "sliding-window:10/1s"] {
        let mut subject = Direct::new(&[policy(limit)]);
        assert!(subject.ask(START_US, Ask::check(10)).allow);
        let back_us = START_US - DAY_US;
        let retry_us = retry_after_us(&mut subject, back_us, &[Ask::check(1)]).expect("passes again");
        assert!(!subject.ask(back_us + retry_us - 1, Ask::check(1)).allow, "{limit}: not before");
        assert!(subject.ask(back_us + retry_us, Ask::check(1)).allow, "{limit}: after {retry_us} us");
    }
}

#[test]
fn raise_takes_effect_on_a_key_that_is_only_denied() {
    for (before, after) in [
        ("token-bucket:10/1d", "token-bucket:10/1s"),
        ("sliding-window:10/1d", "sliding-window:10/1s"),
        ("sliding-window:10/1d", "token-bucket:10/1s"),
        ("token-bucket:10/1d", "sliding-window:10/1s"),
    ] {
        let mut subject = Direct::new(&[policy(before)]);
        assert!(subject.ask(START_US, Ask::check(10)).allow);
        subject.configure(&[policy(after)]);
        let retry_us = retry_after_us(&mut subject, START_US, &[Ask::check(1)]).expect("passes again");
        assert!(subject.ask(START_US + retry_us, Ask::check(1)).allow, "{before} -> {after}: {retry_us} us");
    }
}

#[test]
fn servers_with_different_limits_do_not_lock_a_key_out() {
    let (slow, fast) = (policy("token-bucket:10/10s"), policy("token-bucket:10/1s"));
    let mut subject = Direct::new(std::slice::from_ref(&slow));
    assert!(subject.ask(START_US, Ask::check(10)).allow);
    let passed = (1..=200u64).any(|step| {
        subject.configure(std::slice::from_ref(if step % 2 == 0 { &slow } else { &fast }));
        subject.ask(START_US + step * SECOND_US / 100, Ask::check(1)).allow
    });
    assert!(passed, "a token of the slower limit is there after 1 s");
}

fn linked(costs: &[u64]) -> Vec<Ask> {
    let ask = |(index, &cost)| Ask { linked: index + 1 < costs.len(), ..Ask::check(cost) };
    costs.iter().enumerate().map(ask).collect()
}

#[test]
fn linked_checks_over_the_capacity_together_can_never_pass() {
    let mut subject = Direct::new(&[policy("token-bucket:8/8s")]);
    let decisions = subject.decide(START_US, &linked(&[5, 5]));
    assert_eq!([Reason::Linked, Reason::CostOverLimit], [decisions[0].reason, decisions[1].reason]);
    assert_eq!(retry_after_us(&mut subject, START_US, &linked(&[5, 5])), None);
}

#[test]
fn linked_checks_are_told_when_all_of_them_pass() {
    for limit in ["token-bucket:10/10s", "sliding-window:10/10s"] {
        let mut subject = Direct::new(&[policy(limit)]);
        assert!(subject.ask(START_US, Ask::check(5)).allow);
        let asks = linked(&[3, 3, 3]);
        let retry_us = retry_after_us(&mut subject, START_US, &asks).expect("passes later");
        assert_eq!(retry_after_us(&mut subject, START_US + retry_us - 1, &asks), Some(1), "{limit}");
        let decisions = subject.decide(START_US + retry_us, &asks);
        assert!(decisions.iter().all(|decision| decision.allow), "{limit}: {decisions:?}");
    }
}

#[test]
fn linked_checks_that_were_denied_tell_what_is_left_without_them() {
    let mut subject = Direct::new(&[policy("token-bucket:10/10s")]);
    assert!(subject.ask(START_US, Ask::check(5)).allow);
    for decision in subject.decide(START_US, &linked(&[3, 3])) {
        let details = decision.details.expect("details");
        assert_eq!((details.remaining, details.reset_after_us), (5, 5 * SECOND_US));
    }
}

#[test]
fn refund_of_everything_resets_at_once_though_the_clock_is_behind() {
    for limit in ["token-bucket:10/1s", "sliding-window:10/1s"] {
        let mut subject = Direct::new(&[policy(limit)]);
        assert!(subject.ask(START_US, Ask::check(5)).allow);
        let refund = subject.ask(START_US - 5 * SECOND_US, Ask::new(Operation::Refund, 5));
        assert_eq!(refund.details.expect("details").reset_after_us, 0, "{limit}");
    }
}
