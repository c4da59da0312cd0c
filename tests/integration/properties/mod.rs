//! The properties that every limit has, whatever decides: named by the number that the design gives them.

mod answers;
mod batches;
mod envelope;
mod robustness;

use fastrand::Rng;
use proptest::{collection::vec, prelude::*};
use tollgate_protocol::{check::Operation, limit::Limit, limits::LIMITS_MAX, policy::Limits};

use crate::{
    subject::{Ask, Subject},
    trace::{START_US, limit},
};

/// Declares a test for each property against each subject: a function of that name takes what makes one.
macro_rules! properties {
    ($($property:ident),* $(,)?) => {
        mod arithmetic {
            $(#[test] fn $property() { super::$property(crate::subject::Direct::new) })*
        }
        mod memory {
            $(#[test] fn $property() { super::$property(crate::stores::Memory::new) })*
        }
    };
}
use properties;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A policy of one limit, from its text.
fn policy(text: &str) -> Limits {
    Limits::from(text.parse::<Limit>().expect("a limit"))
}

/// Small limits, where edges meet, and limits of every size.
fn any_limit() -> impl Strategy<Value = Limit> {
    let bucket = (1..6u64, 1..20u64, 1..6u64);
    let window = (1..6u64, 1..20u64);
    prop_oneof![
        bucket.prop_map(|(rate, period_us, capacity)| Limit::TokenBucket { rate, period_us, capacity }),
        window.prop_map(|(limit, window_us)| Limit::SlidingWindow { limit, window_us }),
        any::<u64>().prop_map(|seed| limit(&mut Rng::with_seed(seed))),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    vec(any_limit(), 1..=LIMITS_MAX).prop_map(|limits| Limits::new(limits).expect("1..=4 limits"))
}

/// One operation, in parts of what the policy deals with, so that every part of it is reached.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Thousandths of the longest period since the event before.
    wait: u64,
    operation: Operation,
    /// Thousandths of the lowest ceiling.
    cost: u64,
}

fn events(operations: &'static [Operation]) -> impl Strategy<Value = Vec<Event>> {
    let wait = prop_oneof![Just(0), 1..1_000u64, 1_000..3_000u64];
    let cost = prop_oneof![Just(0), 1..1_200u64];
    let operation = proptest::sample::select(operations);
    vec((wait, operation, cost).prop_map(|(wait, operation, cost)| Event { wait, operation, cost }), 1..16)
}

const ALL: &[Operation] = &[
    Operation::Check,
    Operation::Check,
    Operation::Peek,
    Operation::TakeUpTo,
    Operation::Force,
    Operation::Refund,
    Operation::Reset,
];

/// Operations that charge no more than what may pass.
const TAKING: &[Operation] = &[Operation::Check, Operation::TakeUpTo, Operation::Peek];

fn period_us(limit: &Limit) -> u64 {
    match *limit {
        Limit::TokenBucket { period_us, .. } => period_us,
        Limit::SlidingWindow { window_us, .. } => window_us,
        _ => 1,
    }
}

fn ceiling(limits: &Limits) -> u64 {
    limits.as_slice().iter().map(Limit::ceiling).min().unwrap_or(1)
}

/// Events as checks of policy 0 and key 0, each with its time.
fn timed(limits: &Limits, events: &[Event]) -> Vec<(u64, Ask)> {
    let period_us = limits.as_slice().iter().map(period_us).max().unwrap_or(1);
    let (mut now_us, ceiling) = (START_US, ceiling(limits));
    let part = |of: u64, thousandths: u64| (u128::from(of) * u128::from(thousandths) / 1_000) as u64;
    let ask = |event: &Event| {
        now_us += part(period_us, event.wait);
        (now_us, Ask::new(event.operation, 1 + part(ceiling, event.cost)))
    };
    events.iter().map(ask).collect()
}

/// Runs the events; answers the time after them.
fn run(subject: &mut impl Subject, limits: &Limits, events: &[Event]) -> u64 {
    let mut now_us = START_US;
    for (at_us, ask) in timed(limits, events) {
        subject.ask(at_us, ask);
        now_us = at_us;
    }
    now_us
}
