//! Key to partition, by the ring.

use criterion::Criterion;
use tollgate::{
    bench::workload::{Distribution, Key, Workload},
    placement::Placement,
};
use tollgate_protocol::ring::RingSecret;

use crate::common::measure;

const KEYS: usize = 1_024;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("placement");
    for partitions in [16, 64, 1_024] {
        measure(&mut group, format!("{partitions}_partitions"), KEYS, || {
            let placement = Placement::new(RingSecret::default(), partitions, "tollgate");
            let workload = Workload::new(100_000, Distribution::Uniform, 1, 1);
            let keys: Vec<_> = workload.stream(0).take(KEYS).map(Key::new).collect();
            move || keys.iter().map(|key| placement.partition_of(key.as_ref())).sum::<usize>()
        });
    }
    group.finish();
}
