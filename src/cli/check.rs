//! `tollgate check`

use std::io::Write;

use clap::Args;
use tollgate_client::Request;
use tollgate_protocol::varint;

use super::{
    CliError, Outcome,
    answer::Asked,
    question::{self, QuestionArgs},
};

/// Ask whether keys may pass, and charge those that may
///
/// Keys are decided each by itself. A denied key is charged nothing.
#[derive(Args)]
#[command(after_long_help = "\
Output of --json, one object a key: key, allowed, reason, limit (the most that the tightest limit lets pass at
once), remaining, retry_after_ms (null where there is nothing to wait for: it is allowed, or can never pass),
reset_after_ms, degraded (not decided by the store: the policy's answer to a failure). What is not known is
null. Milliseconds are rounded up.

Exit status:
  0  every key is allowed
  1  at least one key has no answer: no server, no such policy, too late
  2  wrong usage
  3  at least one key is denied, and all have an answer

Examples:
  tollgate check --limit token-bucket:100/1m,burst=20 user:1
  tollgate check --policy api --cost 5 --json user:1 user:2
  tollgate check --policy api --peek user:1
  tollgate check --limit token-bucket:10/1s --limit sliding-window:1000/1h user:1
  cut -d' ' -f1 access.log | tollgate check --policy per-ip -")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    question: QuestionArgs,

    /// What to charge each key; 0 charges nothing
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..=varint::VALUE_MAX)
    )]
    cost: u64,

    /// Charge nothing: only ask whether the cost would pass
    #[arg(long)]
    peek: bool,
}

pub(super) fn run(args: CheckArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let CheckArgs { question, cost, peek } = args;
    question::run(question, out, Asked::Verdict, |policy, key| {
        let request = if peek { Request::peek(policy, key) } else { Request::check(policy, key) };
        request.cost(cost)
    })
}
