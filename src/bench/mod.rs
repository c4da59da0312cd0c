//! The load test: load on servers, speed and correctness measured in the same run.
//!
//! ```text
//! plan ─► driver ─► worker (a thread: pace ─► workload ─► client ─► recorder) ─► collector ─► summary ─► report
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`plan`] | what is to be done, and when |
//! | [`workload`] | which keys are asked, in which order |
//! | `driver`, `sweep` | one run of load, and the search for the highest rate |
//! | `worker`, `pace` | a thread that makes load, and when its calls are due |
//! | `tally`, `recorder`, `collector` | what checks came to: a call, a thread, all threads |
//! | [`envelope`], [`promise`] | what a limit promises, and whether it was kept |
//! | `summary`, [`report`], [`table`], [`html`] | what is told: to machines, to people |
//! | [`progress`] | what a person sees meanwhile |
//! | [`embedded`] | a server in this process to put the load on |

mod collector;
mod driver;
pub mod embedded;
pub mod envelope;
pub mod html;
mod pace;
pub mod plan;
pub mod progress;
pub mod promise;
mod recorder;
pub mod report;
mod summary;
mod sweep;
pub mod table;
mod tally;
mod worker;
pub mod workload;

pub use driver::measure;
pub use sweep::sweep;
pub use worker::BenchError;
