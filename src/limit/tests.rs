//! Worked examples of the arithmetic, and the bounds that its numbers keep. The properties stand in
//! `tests/integration/properties`.

use proptest::prelude::*;
use tollgate_protocol::{
    check::Operation,
    limit::Limit,
    limits::PERIOD_US_MAX,
    reply::{Details, Reason},
    varint::VALUE_MAX,
};

use super::{
    AMOUNT_MAX, Cells, Decision, PolicyLimit, Request, Rule, State, StateId, decide,
    decide::{refuse, validate},
    sliding_window::Window,
    state::STATE_BYTES,
    token_bucket::Bucket,
};

/// A real time: its microseconds have 16 digits.
const NOW_US: u64 = 1_785_000_000_123_456;

const SECOND_US: u64 = 1_000_000;

#[derive(Default)]
struct Map(std::collections::HashMap<StateId, State>);

impl Cells for Map {
    fn get(&mut self, id: StateId) -> Option<State> {
        self.0.get(&id).copied()
    }

    fn set(&mut self, id: StateId, state: Option<State>) {
        match state {
            Some(state) => self.0.insert(id, state),
            None => self.0.remove(&id),
        };
    }
}

fn rule(text: &str) -> Rule {
    Rule::new(&text.parse().expect("a limit")).expect("a limit that can be enforced")
}

fn policy(texts: &[&str]) -> Vec<PolicyLimit> {
    let limit = |(id, text): (u64, &&str)| PolicyLimit { rule: rule(text), state_id: StateId(id) };
    (0..).zip(texts).map(limit).collect()
}

fn ask(cells: &mut Map, limits: &[PolicyLimit], operation: Operation, cost: u64, now_us: u64) -> Decision {
    let mut out = [refuse(Reason::Unavailable)];
    decide(&[Request { operation, cost, limits }], cells, now_us, &mut out);
    out[0]
}

fn allowed(reason: Reason, remaining: u64, reset_after_us: u64) -> Decision {
    let details = Details { remaining, reset_after_us, retry_after_us: None, limit_index: 0 };
    Decision { allow: true, details: Some(details), ..refuse(reason) }
}

fn denied(reason: Reason, remaining: u64, reset_after_us: u64, retry_after_us: Option<u64>) -> Decision {
    let details = Details { remaining, reset_after_us, retry_after_us, limit_index: 0 };
    Decision { details: Some(details), ..refuse(reason) }
}

#[test]
fn bucket_by_hand() {
    let (limits, mut cells) = (policy(&["token-bucket:10/1s,burst=5"]), Map::default());
    let mut at = |operation, cost, now_us| ask(&mut cells, &limits, operation, cost, now_us);
    assert_eq!(at(Operation::Check, 3, NOW_US), allowed(Reason::Ok, 2, 300_000));
    assert_eq!(at(Operation::Check, 3, NOW_US), denied(Reason::Denied, 2, 300_000, Some(100_000)));
    assert_eq!(at(Operation::Peek, 2, NOW_US + 1), allowed(Reason::Ok, 2, 299_999));
    assert_eq!(at(Operation::Check, 6, NOW_US), denied(Reason::CostOverLimit, 2, 300_000, None));
    let partial = Decision { granted: 2, ..allowed(Reason::Partial, 0, 500_000) };
    assert_eq!(at(Operation::TakeUpTo, 4, NOW_US), partial);
    assert_eq!(at(Operation::TakeUpTo, 4, NOW_US), denied(Reason::Denied, 0, 500_000, Some(100_000)));
    assert_eq!(at(Operation::Force, 5, NOW_US), allowed(Reason::Ok, 0, 1_000_000));
    assert_eq!(at(Operation::Check, 1, NOW_US), denied(Reason::Denied, 0, 1_000_000, Some(600_000)));
    assert_eq!(at(Operation::Refund, 7, NOW_US), allowed(Reason::Ok, 2, 300_000));
    assert_eq!(at(Operation::Refund, 7, NOW_US), allowed(Reason::Ok, 5, 0));
    assert_eq!(at(Operation::Force, 9, NOW_US), allowed(Reason::Ok, 0, 900_000));
    assert_eq!(at(Operation::Reset, 1, NOW_US), allowed(Reason::Ok, 5, 0));
    assert!(cells.0.is_empty(), "an unused limit leaves no state");
}

#[test]
fn window_by_hand() {
    let (limits, mut cells) = (policy(&["sliding-window:10/1s"]), Map::default());
    let start_us = NOW_US / SECOND_US * SECOND_US;
    let mut at = |operation, cost, after_us| ask(&mut cells, &limits, operation, cost, start_us + after_us);
    assert_eq!(at(Operation::Check, 4, 250_000), allowed(Reason::Ok, 6, 1_750_000));
    assert_eq!(at(Operation::Check, 7, 250_000), denied(Reason::Denied, 6, 1_750_000, Some(1_000_000)));
    // A quarter of the next window has passed: three quarters of 4 count.
    assert_eq!(at(Operation::Check, 7, 1_250_000), allowed(Reason::Ok, 0, 1_750_000));
    assert_eq!(at(Operation::Check, 1, 1_250_000), denied(Reason::Denied, 0, 1_750_000, Some(250_000)));
    assert_eq!(at(Operation::Check, 11, 1_250_000), denied(Reason::CostOverLimit, 0, 1_750_000, None));
    // The present window gives back first, then the one before.
    assert_eq!(at(Operation::Refund, 9, 1_250_000), allowed(Reason::Ok, 8, 750_000));
    assert_eq!(at(Operation::Refund, 9, 1_250_000).details.map(|details| details.remaining), Some(10));
    assert!(cells.0.is_empty(), "an unused limit leaves no state");
}

#[test]
fn policy_names_the_limit_that_holds_back() {
    let limits = policy(&["token-bucket:5/1s", "token-bucket:3/1h,burst=7"]);
    let mut cells = Map::default();
    assert!(ask(&mut cells, &limits, Operation::Check, 5, NOW_US).allow);
    let details = |decision: Decision| decision.details.expect("details");
    let first = details(ask(&mut cells, &limits, Operation::Check, 1, NOW_US));
    assert_eq!((first.limit_index, first.retry_after_us), (0, Some(200_000)));
    let second = details(ask(&mut cells, &limits, Operation::Check, 3, NOW_US + SECOND_US));
    assert_eq!((second.limit_index, second.remaining), (1, 2));
    let never = details(ask(&mut cells, &limits, Operation::Check, 6, NOW_US));
    assert_eq!((never.limit_index, never.retry_after_us), (0, None));
}

#[test]
fn operations_that_charge_nothing_are_refused() {
    for operation in [Operation::Refund, Operation::Force, Operation::TakeUpTo] {
        assert_eq!(validate(operation, 0), Err(Reason::BadCost), "{operation:?}");
        assert_eq!(validate(operation, 1), Ok(()));
    }
    for operation in [Operation::Check, Operation::Peek, Operation::Reset] {
        assert_eq!(validate(operation, 0), Ok(()), "{operation:?}");
    }
    assert_eq!(validate(Operation::Unknown(7), 1), Err(Reason::BadOperation));
}

#[test]
fn cost_zero_is_a_peek() {
    let (limits, mut cells) = (policy(&["token-bucket:1/1s"]), Map::default());
    assert_eq!(ask(&mut cells, &limits, Operation::Check, 0, NOW_US), allowed(Reason::Ok, 1, 0));
    assert!(cells.0.is_empty());
}

#[test]
fn states_have_the_bytes_that_scripts_know() {
    let (limits, mut cells) = (policy(&["token-bucket:10/1s", "sliding-window:10/1s"]), Map::default());
    ask(&mut cells, &limits, Operation::Check, 3, NOW_US);
    let number = |number: u64| (number as f64).to_le_bytes();
    let bytes = |kind, numbers: [u64; 4]| {
        let numbers = numbers.map(number).concat();
        <[u8; STATE_BYTES]>::try_from([&[kind, 0], &numbers[..]].concat()).expect("34 bytes")
    };
    assert_eq!(cells.0[&StateId(0)].to_bytes(), bytes(1, [100_000, 1, NOW_US, 300_000]));
    assert_eq!(cells.0[&StateId(1)].to_bytes(), bytes(2, [SECOND_US, NOW_US / SECOND_US, 3, 0]));
    for state in cells.0.values() {
        assert_eq!(State::from_bytes(&state.to_bytes()), Some(*state));
    }
}

#[test]
fn bytes_that_are_not_a_state_are_refused() {
    let (limits, mut cells) = (policy(&["token-bucket:10/1s"]), Map::default());
    ask(&mut cells, &limits, Operation::Check, 3, NOW_US);
    let good = cells.0[&StateId(0)].to_bytes();
    let refused = |change: &dyn Fn(&mut [u8; STATE_BYTES])| {
        let mut bytes = good;
        change(&mut bytes);
        State::from_bytes(&bytes).is_none()
    };
    assert!(refused(&|bytes| bytes[0] = 3), "an unknown kind");
    assert!(refused(&|bytes| bytes[1] = 10), "an unknown quantum");
    for place in 0..4 {
        let range = 2 + 8 * place..10 + 8 * place;
        for number in [-1.0, 0.5, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0] {
            let put = |bytes: &mut [u8; STATE_BYTES]| {
                bytes[range.clone()].copy_from_slice(&f64::to_le_bytes(number))
            };
            assert!(refused(&put), "{number} as number {place}");
        }
    }
}

#[test]
fn rates_from_one_a_month_to_ten_million_a_second_are_exact() {
    for text in [
        "token-bucket:1/30d",
        "token-bucket:1000/1m",
        "token-bucket:700000/1s",
        "token-bucket:10000000/1s",
        "token-bucket:1000001/1s,burst=1",
        "sliding-window:1/30d",
        "sliding-window:10000000/1s",
        "sliding-window:1000000000/1d",
    ] {
        let (limits, mut cells) = (policy(&[text]), Map::default());
        let limit: Limit = text.parse().expect("a limit");
        assert!(ask(&mut cells, &limits, Operation::Check, limit.ceiling(), NOW_US).allow, "{text}");
        assert!(!ask(&mut cells, &limits, Operation::Check, 1, NOW_US).allow, "{text}");
    }
}

#[test]
fn limit_that_cannot_be_exact_is_refused_with_what_to_do() {
    for text in ["token-bucket:7/8640001us,burst=9007199254740991", "sliding-window:9007199254740991/366d"] {
        let refused = Rule::new(&text.parse().expect("a limit")).expect_err("too large").to_string();
        assert!(refused.contains(text) && refused.contains("lower the amount"), "{refused}");
    }
}

#[test]
fn change_of_capacity_keeps_what_was_used() {
    let (mut cells, before) = (Map::default(), policy(&["token-bucket:10/1s,burst=20"]));
    assert!(ask(&mut cells, &before, Operation::Check, 15, NOW_US).allow);
    let raised = ask(&mut cells, &policy(&["token-bucket:10/1s,burst=30"]), Operation::Peek, 1, NOW_US);
    assert_eq!(raised, allowed(Reason::Ok, 15, 1_500_000));
    let cut = ask(&mut cells, &policy(&["token-bucket:10/1s,burst=10"]), Operation::Peek, 1, NOW_US);
    assert_eq!(cut, denied(Reason::Denied, 0, 1_500_000, Some(600_000)));
}

#[test]
fn change_of_rate_or_algorithm_keeps_what_was_used() {
    let texts = ["token-bucket:10/1s", "token-bucket:10/1m", "sliding-window:10/1s", "sliding-window:10/1m"];
    for (before, after) in texts.iter().flat_map(|before| texts.map(|after| (*before, after))) {
        let mut cells = Map::default();
        assert!(ask(&mut cells, &policy(&[before]), Operation::Check, 7, NOW_US).allow);
        let peek = ask(&mut cells, &policy(&[after]), Operation::Peek, 1, NOW_US);
        assert_eq!(peek.details.map(|details| details.remaining), Some(3), "{before} -> {after}");
        // A cut hands nothing back, and is no denial for ever.
        assert!(ask(&mut cells, &policy(&[after]), Operation::Check, 3, NOW_US).allow);
        assert!(!ask(&mut cells, &policy(&[after]), Operation::Check, 1, NOW_US).allow);
        assert!(ask(&mut cells, &policy(&[after]), Operation::Check, 10, NOW_US + 120 * SECOND_US).allow);
    }
}

#[test]
fn clock_that_is_slightly_behind_stands_still() {
    for text in ["token-bucket:10/1s", "sliding-window:10/1s"] {
        let (limits, mut cells) = (policy(&[text]), Map::default());
        assert!(ask(&mut cells, &limits, Operation::Check, 10, NOW_US).allow);
        let behind_us = NOW_US - 9 * SECOND_US;
        let denied = ask(&mut cells, &limits, Operation::Check, 1, behind_us);
        assert!(!denied.allow, "{text}: no free refill");
        let retry_us = denied.details.and_then(|details| details.retry_after_us).expect("passes later");
        assert!(ask(&mut cells, &limits, Operation::Check, 1, behind_us + retry_us).allow, "{text}");
    }
}

#[test]
fn clock_that_is_far_behind_keeps_the_debt_and_is_believed() {
    for text in ["token-bucket:10/1s", "sliding-window:10/1s"] {
        let (limits, mut cells) = (policy(&[text]), Map::default());
        assert!(ask(&mut cells, &limits, Operation::Check, 9, NOW_US).allow);
        let behind_us = NOW_US - 86_400 * SECOND_US;
        assert!(!ask(&mut cells, &limits, Operation::Check, 2, behind_us).allow, "{text}: no free refill");
        assert!(ask(&mut cells, &limits, Operation::Check, 1, behind_us).allow, "{text}");
        assert!(ask(&mut cells, &limits, Operation::Check, 10, behind_us + 2 * SECOND_US).allow, "{text}");
    }
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let amount = (0..53u32).prop_flat_map(|bits| 1..=(1u64 << bits));
    let period = (0..45u32).prop_flat_map(|bits| 1..=(1u64 << bits).min(PERIOD_US_MAX));
    let round = (period, 0..10u32).prop_map(|(period_us, digits)| {
        let unit = 10u64.pow(digits);
        if period_us > unit { period_us / unit * unit } else { period_us }
    });
    (amount.clone(), round, amount, any::<bool>()).prop_map(|(amount, period_us, capacity, bucket)| {
        if bucket {
            Limit::TokenBucket { rate: amount, period_us, capacity }
        } else {
            Limit::SlidingWindow { limit: amount, window_us: period_us }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// All that a script computes for an accepted limit, at the worst state that can be stored.
    #[test]
    fn property_08_no_intermediate_reaches_2_53(limit in any_limit(), now_us in NOW_US..AMOUNT_MAX / 2) {
        const EXACT: u128 = 1 << 53;
        let Ok(rule) = Rule::new(&limit) else { return Ok(()) };
        let forced = rule.charge(rule.roll(None, now_us), VALUE_MAX);
        let forced = rule.charge(forced, VALUE_MAX).to_state().expect("a used limit");
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        match forced {
            State::TokenBucket(Bucket { quantum, units_per_token, units_per_quantum, at, debt }) => {
                let [_, _, capacity, debt_max] = rule.constants().2;
                prop_assert!(u128::from(debt) + product(capacity, units_per_token) < EXACT);
                prop_assert!(product(debt_max / units_per_token, units_per_token) < EXACT);
                let drained_at = u128::from(at) + u128::from(debt.div_ceil(units_per_quantum));
                prop_assert!(drained_at * u128::from(quantum.us()) < EXACT);
                // The most that drains from a debt that is not drained yet.
                prop_assert!(u128::from(debt) + u128::from(units_per_quantum) < EXACT);
            }
            State::SlidingWindow(Window { quantum, length, index, current, .. }) => {
                let [_, amount, _, _] = rule.constants().2;
                prop_assert!(product(current, length) + product(amount, length) < EXACT);
                prop_assert!(u128::from(index + 2) * product(length, quantum.us()) < EXACT);
            }
        }
        prop_assert_eq!(State::from_bytes(&forced.to_bytes()), Some(forced));
    }
}
