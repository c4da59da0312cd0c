//! Properties 2 to 6 and 9: what an answer tells is exact, and asking changes nothing.

use proptest::prelude::*;
use tollgate::limit::Decision;
use tollgate_protocol::{
    policy::Limits,
    reply::{Details, Reason},
};

use super::{ALL, Event, any_limits, ceiling, config, events, policy, properties, run, timed};
use crate::{
    subject::{Ask, Direct, Subject},
    trace::START_US,
};

properties![
    property_02_retry_after_is_minimal,
    property_02_retry_after_is_minimal_for_every_instant_of_short_limits,
    property_03_remaining_passes_and_one_more_does_not,
    property_04_reset_after_is_exact,
    property_05_denial_holds_for_every_larger_cost,
    property_06_denials_and_peeks_change_no_later_answer,
];

fn details(decision: Decision) -> Details {
    decision.details.expect("a decision of a limit tells its details")
}

fn used<S: Subject>(make: fn(&[Limits]) -> S, limits: &Limits, events: &[Event]) -> (S, u64) {
    let mut subject = make(std::slice::from_ref(limits));
    let now_us = run(&mut subject, limits, events);
    (subject, now_us)
}

fn property_02_retry_after_is_minimal<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(500), |(limits in any_limits(), events in events(ALL), part in 0..1_000u64)| {
        let (mut subject, now_us) = used(make, &limits, &events);
        let cost = 1 + ceiling(&limits).saturating_sub(1) / 1_000 * part;
        let decision = subject.ask(now_us, Ask::peek(cost));
        if !decision.allow {
            let retry_us = details(decision).retry_after_us.expect("at most the ceiling passes some time");
            let before = [0, retry_us / 3, retry_us / 2, retry_us - 1];
            for after_us in before {
                let again = subject.ask(now_us + after_us, Ask::peek(cost));
                prop_assert!(!again.allow, "{after_us} of {retry_us} us: {again:?}");
                prop_assert_eq!(details(again).retry_after_us, Some(retry_us - after_us));
            }
            prop_assert!(subject.ask(now_us + retry_us, Ask::check(cost)).allow, "after {} us", retry_us);
        }
    });
}

/// Every short limit, every cost, every instant from 0 to 3 periods after every use.
fn property_02_retry_after_is_minimal_for_every_instant_of_short_limits<S: Subject>(
    make: fn(&[Limits]) -> S,
) {
    for text in
        ["token-bucket:2/5us,burst=3", "token-bucket:3/2us", "sliding-window:3/4us", "sliding-window:4/5us"]
    {
        for (first, second, gap_us) in (0..64).map(|n| (n % 4, n / 4 % 4, n / 16 * 2)) {
            let mut subject = make(&[policy(text)]);
            subject.ask(START_US, Ask::new(tollgate_protocol::check::Operation::Force, 1 + first));
            let now_us = START_US + gap_us;
            subject.ask(now_us, Ask::check(second));
            for cost in 1..=ceiling(&policy(text)) {
                let first_us = (now_us..).find(|&at_us| subject.ask(at_us, Ask::peek(cost)).allow);
                let told_us = details(subject.ask(now_us, Ask::peek(cost))).retry_after_us.unwrap_or(0);
                assert_eq!(first_us, Some(now_us + told_us), "{text}, cost {cost}");
            }
        }
    }
}

fn property_03_remaining_passes_and_one_more_does_not<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(500), |(limits in any_limits(), events in events(ALL))| {
        let (mut subject, now_us) = used(make, &limits, &events);
        let remaining = details(subject.ask(now_us, Ask::peek(0))).remaining;
        if remaining > 0 {
            prop_assert!(subject.ask(now_us, Ask::peek(remaining)).allow);
        }
        prop_assert!(!subject.ask(now_us, Ask::peek(remaining + 1)).allow);
        let left = details(subject.ask(now_us, Ask::check(remaining)));
        prop_assert_eq!(left.remaining, 0);
    });
}

fn property_04_reset_after_is_exact<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(500), |(limits in any_limits(), events in events(ALL))| {
        let (mut subject, now_us) = used(make, &limits, &events);
        let reset_us = details(subject.ask(now_us, Ask::peek(0))).reset_after_us;
        let unused = details(subject.ask(now_us + reset_us, Ask::peek(0)));
        prop_assert_eq!((unused.remaining, unused.reset_after_us), (ceiling(&limits), 0));
        if reset_us > 0 {
            let before = subject.ask(now_us + reset_us - 1, Ask::peek(0));
            prop_assert_eq!(details(before).reset_after_us, 1);
        }
        for limit in limits.as_slice().iter().filter(|_| limits.as_slice().len() == 1 && reset_us > 0) {
            let before = subject.ask(now_us + reset_us - 1, Ask::peek(limit.ceiling()));
            prop_assert!(!before.allow, "something is still used: {:?}", before);
        }
    });
}

fn property_05_denial_holds_for_every_larger_cost<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(500), |(limits in any_limits(), events in events(ALL), more in 0..1_000u64)| {
        let (mut subject, now_us) = used(make, &limits, &events);
        let cost = details(subject.ask(now_us, Ask::peek(0))).remaining + 1;
        let denial = subject.ask(now_us, Ask::check(cost));
        prop_assert!(!denial.allow);
        let retry_us = details(denial).retry_after_us.unwrap_or(1_000_000);
        for (after_us, larger) in [(0, cost + more), (retry_us / 2, cost + 1), (retry_us - 1, cost + more)] {
            prop_assert!(!subject.ask(now_us + after_us, Ask::check(larger)).allow);
        }
    });
}

/// One subject is asked everything, another only what passed; both answer the same afterwards.
fn property_06_denials_and_peeks_change_no_later_answer<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(300), |(limits in any_limits(), events in events(ALL))| {
        let (mut asked, mut spared) = (make(std::slice::from_ref(&limits)), make(std::slice::from_ref(&limits)));
        for (now_us, ask) in timed(&limits, &events) {
            asked.ask(now_us, Ask::peek(ask.cost));
            let decision = asked.ask(now_us, ask);
            if decision.allow {
                prop_assert_eq!(spared.ask(now_us, ask), decision);
            } else {
                let peek = Ask::peek(if decision.reason == Reason::Denied { 1 } else { ask.cost });
                prop_assert_eq!(asked.ask(now_us, peek), spared.ask(now_us, peek));
            }
        }
    });
}

#[test]
fn property_06_denials_and_peeks_write_nothing() {
    proptest!(config(300), |(limits in any_limits(), events in events(ALL))| {
        let mut subject = Direct::new(std::slice::from_ref(&limits));
        for (now_us, ask) in timed(&limits, &events) {
            let before = subject.keys.get(&0).cloned().unwrap_or_default();
            subject.ask(now_us, Ask::peek(ask.cost));
            prop_assert_eq!(&before, &subject.keys[&0]);
            if !subject.ask(now_us, ask).allow {
                prop_assert_eq!(&before, &subject.keys[&0]);
            }
        }
    });
}

#[test]
fn property_09_deleting_a_state_when_it_resets_changes_no_answer() {
    proptest!(config(500), |(limits in any_limits(), events in events(ALL))| {
        let mut keeping = Direct::new(std::slice::from_ref(&limits));
        let mut deleting = Direct::new(std::slice::from_ref(&limits));
        for (now_us, ask) in timed(&limits, &events) {
            deleting.expire(now_us);
            prop_assert_eq!(deleting.ask(now_us, ask), keeping.ask(now_us, ask));
        }
    });
}
