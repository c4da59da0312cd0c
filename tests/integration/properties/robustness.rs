//! Property 12: no input panics. (7 is the agreement with the model, 8 stands beside the arithmetic.)

use fastrand::Rng;
use proptest::{collection::vec, prelude::*};
use tollgate::limit::{Rule, State};
use tollgate_protocol::{limit::Limit, policy::Limits, varint::VALUE_MAX};

use super::{ALL, any_limit, config, properties};
use crate::{
    subject::{Ask, Subject},
    trace,
};

properties![property_12_no_operation_panics];

/// Any time that a store's clock can show until the year 2112, in any order.
fn property_12_no_operation_panics<S: Subject>(make: fn(&[Limits]) -> S) {
    let cost = prop_oneof![0..10u64, Just(VALUE_MAX), 0..=VALUE_MAX];
    let asks = vec((0..1u64 << 52, proptest::sample::select(ALL), cost), 1..30);
    proptest!(config(500), |(limits in vec(any_limit(), 4), asks in asks)| {
        let policies: Vec<_> = limits.into_iter().map(Limits::from).collect();
        let mut subject = make(&policies);
        for (index, (now_us, operation, cost)) in asks.into_iter().enumerate() {
            // The states of one policy are read as those of the next.
            subject.configure(&policies[index / 8 % policies.len()..][..1]);
            subject.ask(now_us, Ask::new(operation, cost));
        }
    });
}

#[test]
fn property_12_no_stored_bytes_panic() {
    let number = prop_oneof![
        (0..1u64 << 54).prop_map(|number| number as f64),
        (0..100u64).prop_map(|number| number as f64),
        any::<f64>(),
    ];
    let state = (0..4u8, 0..12u8, [number.clone(), number.clone(), number.clone(), number]);
    proptest!(config(5_000), |(state in state, limit in any_limit(), now_us in 0..1u64 << 52, cost in 0..=VALUE_MAX)| {
        let (kind, exponent, numbers) = state;
        let mut bytes = vec![kind, exponent];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let bytes: [u8; 34] = bytes.try_into().expect("34 bytes");
        if let Some(state) = State::from_bytes(&bytes) {
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Some(state));
            let rule = Rule::new(&limit).expect("a supported limit");
            let rolled = rule.roll(Some(&state), now_us);
            let charged = rule.charge(rolled, cost);
            prop_assert!(!rule.admits(&charged, VALUE_MAX));
            if !rule.admits(&charged, 1) {
                prop_assert!(rule.admits_at_us(&charged, 1) > 0);
            }
            rule.refund(charged, cost);
            state.expires_at_us();
        }
    });
}

#[test]
fn property_12_no_limit_panics() {
    let mut rng = Rng::with_seed(12);
    for _ in 0..100_000 {
        let limit = trace::any_limit(&mut rng);
        let extreme = match limit {
            Limit::TokenBucket { period_us, .. } => {
                Limit::TokenBucket { rate: VALUE_MAX, period_us, capacity: VALUE_MAX }
            }
            Limit::SlidingWindow { window_us, .. } => Limit::SlidingWindow { limit: VALUE_MAX, window_us },
            other => other,
        };
        if let Err(refused) = Rule::new(&extreme) {
            assert!(refused.to_string().contains(&extreme.to_string()), "{refused}");
        }
    }
}
