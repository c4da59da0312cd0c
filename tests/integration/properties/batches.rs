//! Properties 10 and 11: a batch is its checks one after another; what belongs together passes together.

use proptest::{collection::vec, prelude::*};
use tollgate_protocol::{check::Operation, policy::Limits};

use super::{ALL, Event, any_limits, ceiling, config, events, policy, properties, timed};
use crate::{
    subject::{Ask, Subject},
    trace::START_US,
};

properties![
    property_10_batch_is_its_checks_one_after_another,
    property_10_hot_key_gets_its_limit_exactly,
    property_11_several_limits_are_charged_together_or_not_at_all,
    property_11_linked_checks_pass_together_or_not_at_all,
];

fn property_10_batch_is_its_checks_one_after_another<S: Subject>(make: fn(&[Limits]) -> S) {
    let policies = (any_limits(), any_limits());
    let batches = vec((0..3_000u64, vec((0..2usize, 0..3u32, events(ALL)), 1..6)), 1..6);
    proptest!(config(500), |((first, second) in policies, batches in batches)| {
        let policies = [first, second];
        let (mut whole, mut single) = (make(&policies), make(&policies));
        let mut now_us = START_US;
        for (wait_us, groups) in batches {
            now_us += wait_us;
            let asks: Vec<_> = groups.iter().flat_map(|group| asks(&policies, group)).collect();
            let alone: Vec<_> = asks.iter().map(|&ask| single.ask(now_us, ask)).collect();
            prop_assert_eq!(whole.decide(now_us, &asks), alone);
        }
    });
}

/// Operations of one policy on one key, all at one instant.
fn asks(policies: &[Limits], (policy, key, events): &(usize, u32, Vec<Event>)) -> Vec<Ask> {
    let timed = timed(&policies[*policy], events).into_iter();
    timed.map(|(_, ask)| Ask { policy: *policy, key: *key, ..ask }).collect()
}

fn property_10_hot_key_gets_its_limit_exactly<S: Subject>(make: fn(&[Limits]) -> S) {
    for limit in ["token-bucket:100/1h", "sliding-window:100/1h"] {
        let mut subject = make(&[policy(limit)]);
        let decisions = subject.decide(START_US, &[Ask::check(1); 400]);
        assert!(decisions[..100].iter().all(|decision| decision.allow), "{limit}");
        assert!(decisions[100..].iter().all(|decision| !decision.allow), "{limit}");
    }
}

/// A policy of several limits, and the same limits as policies of their own, charged only where all agree.
fn property_11_several_limits_are_charged_together_or_not_at_all<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(300), |(limits in any_limits(), events in events(ALL))| {
        let single: Vec<_> = limits.as_slice().iter().map(|&limit| Limits::from(limit)).collect();
        let (mut together, mut apart) = (make(std::slice::from_ref(&limits)), make(&single));
        let of_each = |ask: Ask| (0..single.len()).map(move |policy| Ask { policy, ..ask });
        for (now_us, ask) in timed(&limits, &events) {
            let decision = together.ask(now_us, ask);
            let peeks: Vec<_> = of_each(Ask::peek(ask.cost)).map(|peek| apart.ask(now_us, peek)).collect();
            let least = peeks.iter().filter_map(|peek| peek.details).map(|details| details.remaining).min();
            match ask.operation {
                Operation::Check | Operation::Peek => {
                    prop_assert_eq!(decision.allow, peeks.iter().all(|peek| peek.allow));
                }
                Operation::TakeUpTo => prop_assert_eq!(decision.allow, least > Some(0)),
                _ => prop_assert!(decision.allow),
            }
            if decision.allow {
                let granted = if decision.granted > 0 { decision.granted } else { ask.cost };
                for ask in of_each(Ask { cost: granted, ..ask }) {
                    prop_assert!(apart.ask(now_us, ask).allow);
                }
            }
            let left = together.ask(now_us, Ask::peek(0)).details.map(|details| details.remaining);
            let left_apart = of_each(Ask::peek(0)).map(|peek| apart.ask(now_us, peek).details);
            prop_assert_eq!(left, left_apart.map(|details| details.map(|details| details.remaining)).min().flatten());
        }
    });
}

/// Linked checks of one key under several policies, against the same checks asked only where all pass.
fn property_11_linked_checks_pass_together_or_not_at_all<S: Subject>(make: fn(&[Limits]) -> S) {
    let group = vec((0..2usize, 0..700u64), 2..5);
    let groups = vec((0..3_000u64, group), 1..8);
    proptest!(config(300), |(first in any_limits(), second in any_limits(), groups in groups)| {
        let policies = [first, second];
        let (mut linked, mut spared) = (make(&policies), make(&policies));
        let mut now_us = START_US;
        for (wait_us, group) in groups {
            now_us += wait_us;
            let ask = |&(policy, part): &(usize, u64)| {
                let cost = 1 + ceiling(&policies[policy]) / 1_000 * part;
                Ask { policy, ..Ask::check(cost) }
            };
            let alone: Vec<_> = group.iter().map(ask).collect();
            let last = alone.len() - 1;
            let together: Vec<_> =
                alone.iter().enumerate().map(|(index, &ask)| Ask { linked: index < last, ..ask }).collect();
            let decisions = linked.decide(now_us, &together);
            let passed = decisions.iter().filter(|decision| decision.allow).count();
            prop_assert!(passed == 0 || passed == alone.len(), "{:?}", decisions);
            if passed > 0 {
                prop_assert_eq!(spared.decide(now_us, &alone), decisions);
            }
            for policy in 0..policies.len() {
                let peek = Ask { policy, ..Ask::peek(1) };
                prop_assert_eq!(linked.ask(now_us, peek), spared.ask(now_us, peek));
            }
        }
    });
}
