//! The script, and the calls of it: many checks of one partition in one round trip.
//!
//! | file | subject |
//! |---|---|
//! | `call` | a call: the checks that it holds, its command, what is decided by its answer |
//! | `fields` | the fields of the hash that it touches, each once |
//! | `plan` | what it does with them: rules and steps |
//! | `answer` | what the script answers |
//! | `shard_clock.lua`, `argument_clock.lua` | what stands before the script: the time, and the upkeep of the hash |
//! | `lone_checks.lua`, `steps.lua` | the script |

mod answer;
mod call;
mod fields;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub(super) use self::{
    answer::Answer,
    call::{Call, Group},
};

/// The script as Redis knows it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

impl Script {
    fn new(prelude: &str) -> Self {
        let text = [prelude, include_str!("lone_checks.lua"), include_str!("steps.lua")].join("\n");
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

/// The script that reads the shard's clock.
pub(super) static ON_SHARD_CLOCK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("shard_clock.lua")));

/// The script whose time is an argument, for tests.
pub(super) static ON_ARGUMENT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("argument_clock.lua")));
