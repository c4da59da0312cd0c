//! Questions to a server: what `check`, `reset` and `refund` have in common.

use std::{io::Write, time::Duration};

use clap::Args;
use tollgate_client::{CheckError, Client, ConnectError, Decision, PolicyRef, Request};
use tollgate_protocol::{
    limit::Limit,
    limits::LIMITS_MAX,
    policy::{Limits, is_name},
};

use super::{
    CliError, Outcome,
    answer::{self, Answer, Asked},
    block_on, keys,
    output::{shown, tell},
    usage,
};
use crate::config::parse_limit;

/// Whom to ask, about which keys, under which policy.
#[derive(Args)]
#[group(skip)]
pub(super) struct QuestionArgs {
    #[command(flatten)]
    policy: PolicyArgs,

    /// Servers to ask, separated by commas; each key belongs to one of them
    #[arg(
        long,
        env = "TOLLGATE_SERVER",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = server_address,
        default_value = "127.0.0.1:7420"
    )]
    server: Vec<String>,

    /// Milliseconds to wait for the answers
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000)
    )]
    deadline_ms: u64,

    /// Print a JSON object a key
    #[arg(long)]
    json: bool,

    /// Keys, as UTF-8; `-` reads them from the standard input, one a line
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct PolicyArgs {
    /// A policy that the server's configuration names
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    policy: Option<String>,

    /// A limit, up to 4 times: a policy of limits that are charged together or not at all
    ///
    /// `token-bucket:100/1m,burst=20` lets 20 pass at once and 100 a minute in the long run; without `burst` the
    /// bucket holds the amount. `sliding-window:100/1m` lets 100 pass a minute. Units are us, ms, s, m, h, d.
    #[arg(long = "limit", value_name = "SPEC", value_parser = parse_limit)]
    limits: Vec<Limit>,
}

pub(super) fn parse_name(text: &str) -> Result<String, &'static str> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/`")
    }
}

/// The limits that `--limit` was given; `None` where it was not.
pub(super) fn limits(given: &[Limit]) -> Result<Option<Limits>, CliError> {
    match given {
        [] => Ok(None),
        limits => Limits::new(limits.to_vec()).map(Some).ok_or_else(|| {
            usage(format_args!("--limit stands {} times, at most {LIMITS_MAX} are allowed", limits.len()))
        }),
    }
}

/// Asks `request` of each key, and writes the answers.
pub(super) fn run(
    args: QuestionArgs,
    out: &mut impl Write,
    asked: Asked,
    request: impl for<'a> Fn(&'a PolicyRef, &'a str) -> Request<'a>,
) -> Result<Outcome, CliError> {
    let limits = limits(&args.policy.limits)?;
    let keys = keys::read(args.keys)?;
    let results = block_on(async {
        let client = connect(args.server, Duration::from_millis(args.deadline_ms)).await?;
        let policy = match (limits, &args.policy.policy) {
            (Some(limits), _) => client.define(limits)?,
            // The parser of arguments lets nothing pass that has neither.
            (None, name) => client.policy(name.as_deref().unwrap_or_default())?,
        };
        let requests: Vec<_> = keys.iter().map(|key| request(&policy, key)).collect();
        Ok::<_, CliError>(client.call_many(&requests).await)
    })??;
    let (answers, failed) = sort(&keys, results);
    if args.json {
        answer::write_json(out, &answers)?
    } else {
        answer::write_text(out, asked, &answers)?
    }
    Ok(if failed {
        Outcome::Failed
    } else {
        answers.iter().map(|answer| asked.outcome(answer)).max().unwrap_or(Outcome::Done)
    })
}

/// A server's address as it is given on the command line.
pub(super) fn server_address(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
    match port {
        Some(port) if port > 0 => Ok(text.to_owned()),
        _ => Err("write host:port, e.g. 127.0.0.1:7420".to_owned()),
    }
}

async fn connect(servers: Vec<String>, deadline: Duration) -> Result<Client, CliError> {
    let connected = Client::builder().servers(servers).deadline(deadline).connect().await;
    connected.map_err(|error| match error {
        ConnectError::Unreachable { .. } => error.into(),
        wrong => usage(wrong),
    })
}

/// The answers, in the order of their keys, and whether there are keys without one: of those it is told why.
fn sort(keys: &[String], results: Vec<Result<Decision, CheckError>>) -> (Vec<Answer<'_>>, bool) {
    let mut answers = Vec::with_capacity(keys.len());
    for (key, result) in keys.iter().zip(results) {
        match result {
            Ok(decision) => answers.push(Answer::new(key, &decision)),
            Err(error) => tell(format_args!("error: {}: {error}", shown(key))),
        }
    }
    let failed = answers.len() < keys.len();
    (answers, failed)
}
