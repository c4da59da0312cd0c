//! `tollgate reset`

use std::io::Write;

use clap::Args;
use tollgate_client::Request;

use super::{
    CliError, Outcome,
    answer::Asked,
    question::{self, QuestionArgs},
};

/// Forget what was charged to keys under a policy
#[derive(Args)]
#[command(after_long_help = "\
Output of --json is as that of `tollgate check`; `allowed` says whether it was done, unless `degraded`.

Exit status:
  0  done for every key
  1  not done, or not known to be done, for at least one key
  2  wrong usage

Example:
  tollgate reset --policy api user:1")]
pub(super) struct ResetArgs {
    #[command(flatten)]
    question: QuestionArgs,
}

pub(super) fn run(args: ResetArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    question::run(args.question, out, Asked::Change, |policy, key| Request::reset(policy, key))
}
