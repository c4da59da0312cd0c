//! Every store answers a trace as the model does, to the last microsecond.

use crate::{
    agreement::assert_agrees,
    harness::{CLUSTER, REDIS},
    stores::{Memory, Redis},
    subject::Subject,
    trace,
};

/// Checks to compare with each store: 10^5, or what the environment says.
fn checks() -> usize {
    let wanted = std::env::var("TOLLGATE_TEST_CHECKS").ok();
    wanted.map_or(100_000, |wanted| wanted.parse().expect("TOLLGATE_TEST_CHECKS is a whole number"))
}

/// Traces of different shapes: one hot key, many keys, large batches.
fn conforms<S: Subject>(make: impl Fn() -> S) {
    let shapes = [(1, 1, 40), (4, 8, 20), (6, 300, 200), (2, 2, 3)];
    let (mut seed, mut compared) = (0, 0);
    while compared < checks() {
        let (policies, keys, groups) = shapes[seed as usize % shapes.len()];
        let shape = trace::Shape { policies, keys, groups };
        compared += assert_agrees(seed, shape, 200, &mut make());
        seed += 1;
    }
}

#[test]
fn memory_answers_as_the_model() {
    conforms(|| Memory::new(&[]));
}

#[test]
fn redis_answers_as_the_model() {
    conforms(|| Redis::new(&REDIS.url()));
}

#[test]
fn cluster_answers_as_the_model() {
    conforms(|| Redis::new(&CLUSTER.url()));
}
