use proptest::prelude::*;
use tollgate_protocol::limit::Limit;

use super::*;
use crate::{
    bench::workload::Distribution,
    limit::{Rule, State},
};

/// A check that passed.
#[derive(Clone, Copy, Debug)]
struct Passed {
    sent_us: u64,
    answered_us: u64,
    cost: u64,
}

fn monitor(span_us: u64, passed: &[Passed]) -> Monitor {
    let watch = Watch::new(&Workload::new(1, Distribution::Hot, 1, 0));
    let mut monitor = Monitor::new(watch, span_us);
    for &Passed { sent_us, answered_us, cost } in passed {
        monitor.admitted(0, sent_us, answered_us, cost);
    }
    monitor
}

fn envelope(limit: &str) -> Envelope {
    Envelope::of(&limit.parse().unwrap()).unwrap()
}

/// What a limiter that keeps `limit` lets pass: each check comes `gap_us` after the one before, and is under way
/// for `before_us` until it is decided and `after_us` from then on.
fn keep(limit: &Limit, checks: &[(u64, u64, u64, u64)]) -> Vec<Passed> {
    let rule = Rule::new(limit).unwrap();
    let (mut state, mut now_us) = (None::<State>, 10_000);
    let mut passed = Vec::new();
    for &(gap_us, before_us, after_us, cost) in checks {
        now_us += gap_us;
        let rolled = rule.roll(state.as_ref(), now_us);
        if rule.admits(&rolled, cost) {
            state = rule.charge(rolled, cost).to_state();
            passed.push(Passed { sent_us: now_us - before_us, answered_us: now_us + after_us, cost });
        }
    }
    passed
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let bucket = (1..50u64, 1..2_000u64, 1..50u64)
        .prop_map(|(rate, period_us, capacity)| Limit::TokenBucket { rate, period_us, capacity });
    let window =
        (1..50u64, 1..2_000u64).prop_map(|(limit, window_us)| Limit::SlidingWindow { limit, window_us });
    prop_oneof![bucket, window]
}

fn any_checks() -> impl Strategy<Value = Vec<(u64, u64, u64, u64)>> {
    prop::collection::vec((0..300u64, 0..5_000u64, 0..5_000u64, 1..20u64), 1..200)
}

/// The greatest share of the promise over all intervals between ticks, of what certainly passed in them.
fn brute_force(envelope: &Envelope, tick_us: u64, passed: &[Passed]) -> f64 {
    let last = passed.iter().map(|passed| passed.answered_us.div_ceil(tick_us)).max().unwrap_or(0);
    let ratio = |from: u64, to: u64| {
        let within = passed
            .iter()
            .filter(|passed| passed.sent_us >= from * tick_us && passed.answered_us <= to * tick_us);
        let admitted: u64 = within.map(|passed| passed.cost).sum();
        admitted as f64 / envelope.promised((to - from) * tick_us) as f64
    };
    (0..=last)
        .flat_map(|from| (from..=last).map(move |to| (from, to)))
        .map(|(from, to)| ratio(from, to))
        .fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn a_limiter_that_keeps_its_promise_is_never_accused(
        limit in any_limit(), checks in any_checks(), span_us in 1..100_000_000u64,
    ) {
        let passed = keep(&limit, &checks);
        let worst = monitor(span_us, &passed).worst(&[Envelope::of(&limit).unwrap()]);
        prop_assert!(worst.is_none_or(|worst| !worst.is_breach() && worst.ratio() <= 1.0), "{worst:?}");
    }

    #[test]
    fn what_is_found_certainly_passed(
        checks in prop::collection::vec((0..60u64, 0..60u64, 1..20u64), 1..40), limit in any_limit(),
    ) {
        let passed: Vec<_> = checks.iter()
            .map(|&(sent_us, time_us, cost)| Passed { sent_us, answered_us: sent_us + time_us, cost })
            .collect();
        let envelope = Envelope::of(&limit).unwrap();
        let most = brute_force(&envelope, 1, &passed);
        let found = monitor(1, &passed).worst(&[envelope]).map_or(0.0, |worst| worst.ratio());
        prop_assert!(found <= most + 1e-9, "{found} of {most}");
        prop_assert!((found > 1.0) <= (most > 1.0));
    }

    #[test]
    fn all_breaches_are_found_where_checks_take_no_time(
        checks in prop::collection::vec((0..100u64, 1..20u64), 1..40), limit in any_limit(),
    ) {
        let passed: Vec<_> = checks.iter()
            .map(|&(at_us, cost)| Passed { sent_us: at_us, answered_us: at_us, cost })
            .collect();
        let envelope = Envelope::of(&limit).unwrap();
        let most = brute_force(&envelope, 1, &passed);
        let found = monitor(1, &passed).worst(&[envelope]).map_or(0.0, |worst| worst.ratio());
        prop_assert_eq!(found > 1.0, most > 1.0, "{} of {}", found, most);
    }
}

#[test]
fn a_breach_within_an_instant_is_found_where_more_passed_in_a_longer_time() {
    let limit = envelope("sliding-window:20/2us");
    let passed =
        [(49, 37), (50, 13)].map(|(at_us, cost)| Passed { sent_us: at_us, answered_us: at_us, cost });
    let worst = monitor(1, &passed).worst(&[limit]).unwrap();
    assert!(worst.is_breach(), "{worst:?}");
}

#[test]
fn one_too_many_is_found_among_many_that_may_pass() {
    // One a millisecond may pass, and 100 at once. Calls take 3 ms, and follow one another each millisecond.
    let limit = envelope("token-bucket:1000/1s,burst=100");
    let passed = |extra| {
        let first = Passed { sent_us: 0, answered_us: 3_000, cost: 100 };
        let rest =
            (1..9_000).map(|ms| Passed { sent_us: ms * 1_000, answered_us: ms * 1_000 + 3_000, cost: 1 });
        [first].into_iter().chain(rest).chain([Passed {
            sent_us: 5_000_000,
            answered_us: 5_003_000,
            cost: extra,
        }])
    };
    let worst = |extra| {
        let passed: Vec<_> = passed(extra).collect();
        monitor(10_000_000, &passed).worst(&[limit]).unwrap()
    };
    assert!(!worst(0).is_breach(), "{:?}", worst(0));
    assert!(worst(0).ratio() > 0.9, "{:?}", worst(0));
    // The clocks may drift by 2.5 in 5 s, and 3 more may fall into the times that calls took.
    assert!(worst(10).is_breach(), "{:?}", worst(10));
}

#[test]
fn the_worst_of_all_keys_limits_and_tasks_is_told() {
    let watch = Watch::new(&Workload::new(100_000, Distribution::Uniform, 1, 0));
    let (mut one, mut other) = (Monitor::new(watch, 1_000_000), Monitor::new(watch, 1_000_000));
    let slot = watch.slot(2_048).unwrap();
    one.admitted(0, 10, 20, 3);
    one.admitted(slot, 100, 200, 4);
    other.admitted(slot, 150, 250, 4);
    one.merge(&other);
    let worst =
        one.worst(&[envelope("token-bucket:1/1h,burst=10"), envelope("sliding-window:5/1h")]).unwrap();
    assert_eq!((worst.key, worst.limit), (Key::new(2_048), 1));
    assert_eq!((worst.admitted, worst.promised), (8, 5));
    assert!(worst.is_breach());
}

#[test]
fn nothing_passed_is_no_breach() {
    assert_eq!(monitor(1_000, &[]).worst(&[envelope("token-bucket:1/1s")]), None);
}

#[test]
fn what_is_answered_after_the_span_is_left_out() {
    let late = Passed { sent_us: 900, answered_us: 100_000_000, cost: 9 };
    assert_eq!(monitor(1_000, &[late]).worst(&[envelope("token-bucket:1/1s")]), None);
}

#[test]
fn watched_keys_are_few_and_the_hot_ones_among_them() {
    for keys in [1, 10, 31, 32, 33, 64, 65, 100, 1_000, 100_000, 10_000_000, 1 << 32] {
        let watch = Watch::new(&Workload::new(keys, Distribution::Uniform, 1, 0));
        let step = (keys / 1_000_000).max(1);
        let indices = (0..keys).step_by(step as usize).chain((0..keys).step_by(watch_step(keys)));
        for index in indices {
            let index = index as u32;
            if let Some(slot) = watch.slot(index) {
                assert!(slot < watch.slots(), "{index} of {keys}");
                assert_eq!(watch.key(slot), Key::new(index));
            } else {
                assert!(index >= HOT_KEYS);
            }
        }
        assert!(watch.count() as u64 >= keys.min(48) && watch.count() <= 96, "{} of {keys}", watch.count());
        if keys <= 1_000 {
            assert_eq!((0..keys as u32).filter_map(|index| watch.slot(index)).count(), watch.count());
        }
    }
}

/// The distance of the keys that are spread evenly.
fn watch_step(keys: u64) -> usize {
    keys.div_ceil(SPREAD_KEYS).next_power_of_two() as usize
}
