//! Micro-benchmarks, one file a subject: `cargo bench -- codec`. `README.md` beside this file says how to read them.

mod client;
mod codec;
mod common;
mod limit;
mod memory_store;
mod placement;
mod round_trip;
mod server;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codec::bench(&mut criterion);
    limit::bench(&mut criterion);
    placement::bench(&mut criterion);
    memory_store::bench(&mut criterion);
    client::bench(&mut criterion);
    server::bench(&mut criterion);
    criterion.final_summary();
}
