//! The load test: load on servers, speed and correctness measured in the same run.
//!
//! | module | subject |
//! |---|---|
//! | [`report`] | what was found |

pub mod report;
