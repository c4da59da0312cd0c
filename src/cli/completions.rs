//! `tollgate completions`

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CliError, Outcome};

/// Print a script that completes this command in a shell
#[derive(Args)]
#[command(after_long_help = "Example:\n  tollgate completions bash > /etc/bash_completion.d/tollgate")]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    // `generate` panics where it cannot write: a `Vec` always takes it.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tollgate", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Done)
}
