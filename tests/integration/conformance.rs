//! Every store answers a trace as the model does, to the last microsecond.

use std::sync::LazyLock;

use crate::{
    agreement::assert_agrees,
    harness::{Cluster, RedisServer, Shape},
    stores::Redis,
    trace,
};

static REDIS: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(Shape { primaries: 3, replicas: 0 }));

/// Checks to compare with each store: 10^5, or what the environment says.
fn checks() -> usize {
    let wanted = std::env::var("TOLLGATE_TEST_CHECKS").ok();
    wanted.map_or(100_000, |wanted| wanted.parse().expect("TOLLGATE_TEST_CHECKS is a whole number"))
}

/// Traces of different shapes: one hot key, many keys, large batches.
fn conforms(url: &str) {
    let shapes = [(1, 1, 40), (4, 8, 20), (6, 300, 200), (2, 2, 3)];
    let (mut seed, mut compared) = (0, 0);
    while compared < checks() {
        let (policies, keys, groups) = shapes[seed as usize % shapes.len()];
        let shape = trace::Shape { policies, keys, groups };
        compared += assert_agrees(seed, shape, 200, &mut Redis::new(url));
        seed += 1;
    }
}

#[test]
fn redis_answers_as_the_model() {
    conforms(&REDIS.url());
}

#[test]
fn cluster_answers_as_the_model() {
    conforms(&CLUSTER.url());
}
