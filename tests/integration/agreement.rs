//! The model and whatever decides agree on every answer of a random trace.

use crate::{
    model::Model,
    subject::{Direct, Subject},
    trace::{Shape, Trace, any_limit},
};

/// Checks to compare: `least`, or what the environment says.
pub(crate) fn checks(least: usize) -> usize {
    let wanted = std::env::var("TOLLGATE_TEST_CHECKS").ok();
    wanted.map_or(least, |wanted| wanted.parse().expect("TOLLGATE_TEST_CHECKS is a whole number"))
}

/// Runs one trace of `steps` steps; returns how many checks were compared.
pub(crate) fn assert_agrees(seed: u64, shape: Shape, steps: usize, subject: &mut impl Subject) -> usize {
    let mut model = Model::default();
    let mut trace = Trace::new(seed, shape);
    let mut compared = 0;
    for step in 0..steps {
        let next = trace.next();
        if let Some(policies) = &next.configure {
            model.configure(policies);
            subject.configure(policies);
        }
        let expected = model.decide(next.now_us, &next.asks);
        let decided = subject.decide(next.now_us, &next.asks);
        assert_eq!(decided.len(), next.asks.len(), "one answer for each check");
        for (index, ask) in next.asks.iter().enumerate() {
            assert_eq!(
                decided[index],
                expected[index],
                "seed {seed}, step {step} at {}, check {index}: {ask:?} after {:#?}",
                next.now_us,
                &next.asks[..index],
            );
        }
        trace.answered(&expected);
        compared += expected.len();
    }
    compared
}

#[test]
fn arithmetic_and_model_agree_over_a_million_checks() {
    let (mut seed, mut compared) = (0, 0);
    while compared < checks(1_000_000) {
        let shape = Shape { policies: 1 + seed as usize % 3, keys: 2, groups: 3 };
        compared += assert_agrees(seed, shape, 400, &mut Direct::default());
        seed += 1;
    }
}

#[test]
fn arithmetic_and_model_support_the_same_limits() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..100_000 {
        let limit = any_limit(&mut rng);
        assert_eq!(tollgate::limit::Rule::new(&limit).is_ok(), Model::supports(&limit), "{limit}");
    }
}
