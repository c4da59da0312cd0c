//! Property 1: what passes in any interval is within the promise, and the promise is used up.

use proptest::prelude::*;
use tollgate::limit::Rule;
use tollgate_protocol::{check::Operation, limit::Limit, policy::Limits, reply::Reason};

use super::{TAKING, any_limit, config, events, policy, properties, timed};
use crate::{
    subject::{Ask, Subject},
    trace::START_US,
};

properties![
    property_01_envelope_holds_over_every_interval,
    property_01_envelope_holds_for_all_short_schedules,
    property_01_envelope_holds_after_idle_times_of_every_length,
    property_01_bucket_gives_all_that_it_promises,
    property_01_window_reaches_twice_the_limit_less_one,
];

/// The most that may pass from one instant to another, both included.
fn promise(limit: &Limit, from_us: u64, to_us: u64) -> u128 {
    let (amount, period_us, at_once) = match *limit {
        Limit::TokenBucket { rate, period_us, capacity } => (rate, period_us, capacity),
        Limit::SlidingWindow { limit, window_us } => (limit, window_us, limit),
        _ => unreachable!("the algorithms known here"),
    };
    // A limit that counts in longer quanta than microseconds promises for whole quanta.
    let (_, exponent, _) = Rule::new(limit).expect("a supported limit").constants();
    let quantum_us = 10u64.pow(exponent.into());
    let interval_us = (to_us / quantum_us - from_us / quantum_us) * quantum_us;
    u128::from(at_once) + u128::from(amount) * u128::from(interval_us) / u128::from(period_us)
}

/// What passed, and when.
#[derive(Default)]
struct Passed(Vec<(u64, u128)>);

impl Passed {
    fn ask(&mut self, subject: &mut impl Subject, now_us: u64, ask: Ask) {
        let decision = subject.ask(now_us, ask);
        if ask.operation != Operation::Peek && decision.allow {
            let cost = if decision.reason == Reason::Partial { decision.granted } else { ask.cost };
            self.0.push((now_us, cost.into()));
        }
    }

    fn assert_within(&self, limit: &Limit) {
        for (first, &(from_us, _)) in self.0.iter().enumerate() {
            let mut sum = 0;
            for &(to_us, cost) in &self.0[first..] {
                sum += cost;
                let most = promise(limit, from_us, to_us);
                assert!(sum <= most, "{limit}: {sum} of {most} from {from_us} to {to_us}: {:?}", self.0);
            }
        }
    }
}

fn property_01_envelope_holds_over_every_interval<S: Subject>(make: fn(&[Limits]) -> S) {
    proptest!(config(500), |(limit in any_limit(), events in events(TAKING))| {
        let limits = Limits::from(limit);
        let (mut subject, mut passed) = (make(std::slice::from_ref(&limits)), Passed::default());
        for (now_us, ask) in timed(&limits, &events) {
            passed.ask(&mut subject, now_us, ask);
        }
        passed.assert_within(&limit);
    });
}

/// Takes all there is at each instant whose bit is set, for every set of bits.
fn property_01_envelope_holds_for_all_short_schedules<S: Subject>(make: fn(&[Limits]) -> S) {
    const INSTANTS: u64 = 8;
    for limit in short_limits() {
        for schedule in 0..1u64 << INSTANTS {
            let (mut subject, mut passed) = (make(&[limit.into()]), Passed::default());
            for instant in (0..INSTANTS).filter(|instant| schedule >> instant & 1 == 1) {
                passed.ask(&mut subject, START_US + instant, Ask::new(Operation::TakeUpTo, 9));
            }
            passed.assert_within(&limit);
        }
    }
}

fn short_limits() -> impl Iterator<Item = Limit> {
    let sizes = (1..=3u64).flat_map(|amount| (1..=4u64).map(move |period_us| (amount, period_us)));
    sizes.flat_map(|(amount, period_us)| {
        let bucket = move |capacity| Limit::TokenBucket { rate: amount, period_us, capacity };
        (1..=2).map(bucket).chain([Limit::SlidingWindow { limit: amount, window_us: period_us }])
    })
}

/// One passes, then nothing for a while, then as much as there is at every instant.
fn property_01_envelope_holds_after_idle_times_of_every_length<S: Subject>(make: fn(&[Limits]) -> S) {
    let short = ["token-bucket:3/12us,burst=5", "sliding-window:5/12us"];
    for (limit, idle_us) in short.iter().flat_map(|limit| (0..=40).map(move |idle_us| (limit, idle_us))) {
        assert_within_after_idle(make(&[policy(limit)]), limit, idle_us, 1);
    }
    let minute_us = 60_000_000;
    let edges = [1, 599_999, 600_000, minute_us - 1, minute_us, 2 * minute_us - 1, 2 * minute_us, 1 << 40];
    for limit in ["token-bucket:100/1m", "sliding-window:100/1m"] {
        let random = (1..40).map(|bits| 1u64 << bits).chain(edges);
        for idle_us in random {
            assert_within_after_idle(make(&[policy(limit)]), limit, idle_us, minute_us / 20);
        }
    }
}

fn assert_within_after_idle(mut subject: impl Subject, limit: &str, idle_us: u64, step_us: u64) {
    let mut passed = Passed::default();
    passed.ask(&mut subject, START_US, Ask::check(1));
    for step in 0..40 {
        let now_us = START_US + idle_us + step * step_us;
        passed.ask(&mut subject, now_us, Ask::new(Operation::TakeUpTo, 1_000));
    }
    passed.assert_within(&limit.parse().expect("a limit"));
}

fn property_01_bucket_gives_all_that_it_promises<S: Subject>(make: fn(&[Limits]) -> S) {
    for text in
        ["token-bucket:3/7us,burst=5", "token-bucket:10000000/1s", "token-bucket:700000/1s,burst=1000"]
    {
        let limit = text.parse().expect("a limit");
        let (mut subject, mut sum) = (make(&[policy(text)]), 0);
        for elapsed_us in 0..200 {
            let take = subject.ask(START_US + elapsed_us, Ask::new(Operation::TakeUpTo, 1 << 40));
            sum += u128::from(take.granted);
            assert_eq!(sum, promise(&limit, START_US, START_US + elapsed_us), "{text} after {elapsed_us} us");
        }
    }
}

/// What the documentation says of the edge between windows is true: no less, no more.
fn property_01_window_reaches_twice_the_limit_less_one<S: Subject>(make: fn(&[Limits]) -> S) {
    let (limit, window_us) = (10, 1_000);
    let mut subject = make(&[Limits::from(Limit::SlidingWindow { limit, window_us })]);
    let edge_us = START_US.next_multiple_of(window_us);
    assert!(subject.ask(edge_us - 1, Ask::check(limit)).allow);
    let last_us = edge_us + window_us - 2;
    assert!(!subject.ask(last_us, Ask::check(limit)).allow, "2L do not pass in one window's length");
    assert!(subject.ask(last_us, Ask::check(limit - 1)).allow, "2L-1 do");
}
