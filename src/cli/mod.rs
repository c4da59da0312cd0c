//! The command line: one file a subcommand. Standard output is for data, standard error for people.

use std::{
    io::{self, Write},
    net::SocketAddr,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use tollgate_client::{ConnectError, DefineError, UnknownPolicyError};

use crate::{bench::BenchError, config::ConfigError, limit::UnsupportedLimit, store::redis::RedisStoreError};

mod answer;
mod bench;
mod check;
mod completions;
mod keys;
mod log;
mod output;
mod policies;
mod question;
mod refund;
mod reload;
mod reset;
mod ring;
mod serve;
mod settings;

/// A rate-limit server, and the commands to ask it, to look into its placement and policies, and to test it under
/// load.
///
/// Start a server with `tollgate serve`; ask it with
/// `tollgate check --limit token-bucket:100/1m,burst=20 user:1`.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Check(check::CheckArgs),
    Reset(reset::ResetArgs),
    Refund(refund::RefundArgs),
    Policies(policies::PoliciesArgs),
    Ring(ring::RingArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
}

/// What a command came to, as an exit status; the worse it is, the later it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It did what was asked; of checks: every key is allowed.
    Done,
    /// At least one key is denied.
    Denied,
    /// At least one question was not answered, or one change not made.
    Failed,
}

impl Outcome {
    fn exit_status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Denied => 3,
        }
    }
}

/// Why a command ended early. Wrong usage has the exit status 2, all else 1.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] RedisStoreError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicyError),
    #[error(transparent)]
    Define(#[from] DefineError),
    #[error("the keys cannot be read from the standard input: {0}")]
    Input(#[source] io::Error),
    #[error("the runtime cannot be started: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Limit(#[from] UnsupportedLimit),
    #[error("signals cannot be heard: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot listen on {address}: {source}; stop what listens there, or choose another with {flag}")]
    Bind { flag: &'static str, address: SocketAddr, source: io::Error },
    #[error("the server's socket failed: {0}")]
    Server(#[source] io::Error),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("interrupted twice: nothing is reported")]
    Interrupted,
    #[error("{file}: {source}; give a file that can be written")]
    Report { file: String, source: io::Error },
    #[error("the standard output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    fn tell(&self) {
        match self {
            Self::Config(ConfigError::Invalid(problems)) => {
                problems.iter().for_each(|problem| output::tell(format_args!("error: {problem}")));
            }
            other => output::tell(format_args!("error: {other}")),
        }
    }

    fn exit_status(&self) -> u8 {
        match self {
            // As the parser of arguments has it.
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// Wrong usage that the parser of arguments cannot tell.
fn usage(message: impl std::fmt::Display) -> CliError {
    CliError::Usage(message.to_string())
}

/// Waits for a short piece of work.
fn block_on<F: Future>(work: F) -> Result<F::Output, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(CliError::Runtime)?.block_on(work))
}

/// Runs the command that the arguments of this process ask for.
pub fn run() -> ExitCode {
    // Fails only where a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut out = output::stdout();
    let result = Cli::parse().command.run(&mut out);
    let result = result.and_then(|outcome| Ok(out.flush().map(|()| outcome)?));
    match result {
        Ok(outcome) => ExitCode::from(outcome.exit_status()),
        Err(error) => {
            error.tell();
            ExitCode::from(error.exit_status())
        }
    }
}

impl Command {
    fn run(self, out: &mut impl Write) -> Result<Outcome, CliError> {
        match self {
            Self::Serve(args) => serve::run(args, out),
            Self::Check(args) => check::run(args, out),
            Self::Reset(args) => reset::run(args, out),
            Self::Refund(args) => refund::run(args, out),
            Self::Policies(args) => policies::run(&args, out),
            Self::Ring(args) => ring::run(args, out),
            Self::Bench(args) => bench::run(args, out),
            Self::Completions(args) => completions::run(&args, out),
        }
    }
}

#[cfg(test)]
mod tests;
