//! What the subjects share: how something is measured, and what is asked.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BenchmarkGroup, BenchmarkId, Throughput, measurement::WallTime};
use tollgate::bench::workload::Key;
use tollgate_protocol::check::{CheckEncoder, Item, Operation};

/// Checks in a batch.
pub(crate) const BATCHES: [usize; 4] = [1, 16, 256, 1_024];

/// The alias of the policy that batches ask.
pub(crate) const ALIAS: u64 = 1;

/// Measures the routine that `setup` makes, which does `items` of something. The name ends with that number, by
/// which `instructions.py` divides.
pub(crate) fn measure<R: FnMut() -> O, O>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: impl Into<String>,
    items: usize,
    setup: impl Fn() -> R,
) {
    group.throughput(Throughput::Elements(items as u64));
    let mut routine = None;
    group.bench_function(BenchmarkId::new(name, items), |bencher| {
        let routine = routine.get_or_insert_with(|| {
            let mut routine = setup();
            // The first run makes room that later ones use again.
            routine();
            routine
        });
        bencher.iter(|| tollgate_counted(&mut *routine));
    });
}

/// Runs a routine. `instructions.py` counts what happens within the functions of this name; without the black box
/// they could jump to the routine instead of calling it, and would be left before anything happened.
#[inline(never)]
fn tollgate_counted<O>(routine: impl FnOnce() -> O) -> O {
    black_box(routine())
}

/// A payload of CHECK as clients write it: each key is checked under [`ALIAS`] at a cost of 1, details are wanted.
pub(crate) fn check_payload(encoder: &mut CheckEncoder, keys: &[Key]) -> Bytes {
    let mut payload = BytesMut::new();
    put_check(encoder, keys, &mut payload);
    payload.freeze()
}

/// Appends what [`check_payload`] makes.
pub(crate) fn put_check(encoder: &mut CheckEncoder, keys: &[Key], out: &mut BytesMut) {
    for key in keys {
        let item =
            Item { operation: Operation::Check, alias: ALIAS, cost: 1, key: key.as_ref(), linked: false };
        encoder.push(&item);
    }
    encoder.finish(out, true, None);
}
