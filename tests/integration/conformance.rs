//! Every store answers a trace as the model does, to the last microsecond.

use crate::{
    agreement::{assert_agrees, checks},
    harness::{CLUSTER, REDIS},
    stores::{Memory, Redis},
    subject::Subject,
    trace,
};

/// Traces of different shapes: one hot key, many keys, large batches.
fn conforms<S: Subject>(make: impl Fn() -> S) {
    let shapes = [(1, 1, 40), (4, 8, 20), (6, 300, 200), (2, 2, 3)];
    let (mut seed, mut compared) = (0, 0);
    while compared < checks(100_000) {
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
