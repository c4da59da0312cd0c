//! `tollgate refund`

use std::io::Write;

use clap::Args;
use tollgate_client::Request;
use tollgate_protocol::varint;

use super::{
    CliError, Outcome,
    answer::Asked,
    question::{self, QuestionArgs},
};

/// Give back what was charged to keys under a policy, never above a full limit
#[derive(Args)]
#[command(after_long_help = "\
Output of --json is as that of `tollgate check`; `allowed` says whether it was done, unless `degraded`.

Exit status:
  0  done for every key
  1  not done, or not known to be done, for at least one key
  2  wrong usage

Example:
  tollgate refund --policy api --cost 5 user:1")]
pub(super) struct RefundArgs {
    #[command(flatten)]
    question: QuestionArgs,

    /// What to give back to each key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=varint::VALUE_MAX))]
    cost: u64,
}

pub(super) fn run(args: RefundArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let RefundArgs { question, cost } = args;
    question::run(question, out, Asked::Change, |policy, key| Request::refund(policy, key).cost(cost))
}
