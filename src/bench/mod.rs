//! The load test: load on servers, speed and correctness measured in the same run.
//!
//! | module | subject |
//! |---|---|
//! | [`workload`] | which keys are asked |
//! | [`envelope`] | what a limit promises |
//! | [`promise`] | whether it was kept |
//! | [`report`] | what was found |

pub mod envelope;
pub mod promise;
pub mod report;
pub mod workload;
