//! `tollgate policies`

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde::Serialize;
use tollgate_protocol::limit::Limit;

use super::{
    CliError, Outcome,
    output::{Align, write_json_line, write_table},
};
use crate::{
    config::{Config, Overrides, PolicyConfig},
    policy::OnUnavailable,
};

/// Validate a configuration and print what its policies mean
///
/// For each limit of each policy: the sustained rate, the burst that may pass at once, the most of one key that
/// passes in any interval of length T while the store answers, the verdict while it does not, and for which keys it
/// is enforced. The limits of a policy are charged together or not at all: a key passes where each of them lets it.
#[derive(Args)]
#[command(after_long_help = "\
Exit status:
  0  the configuration can be used
  1  it cannot; every problem found is told
  2  wrong usage

Example:
  tollgate policies tollgate.toml")]
pub(super) struct PoliciesArgs {
    /// Configuration in TOML
    file: PathBuf,

    /// Print a JSON object a policy
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PoliciesArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let config = Config::load(Some(&args.file), Overrides::default())?;
    if args.json {
        write_json(out, &config.policies)?
    } else {
        write_text(out, &config.policies)?
    }
    Ok(Outcome::Done)
}

/// What a limit means, in words.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Meaning {
    /// The limit as it is written.
    limit: String,
    /// What may pass in the long run.
    sustained: String,
    /// The most that may pass at once.
    burst: u64,
    /// The most that may pass in any interval of length T.
    bound: String,
}

impl Meaning {
    fn of(limit: &Limit) -> Self {
        let text = limit.to_string();
        let period = period(&text);
        let (sustained, bound) = match *limit {
            Limit::TokenBucket { rate, capacity, .. } => {
                (rate, format!("floor(({capacity}*{period} + {rate}*T) / {period})"))
            }
            Limit::SlidingWindow { limit: amount, .. } => {
                let window_max = 2 * amount - 1;
                let bound =
                    format!("{amount} + floor({amount}*T / {period}), at most {window_max} in {period}");
                (amount, bound)
            }
            _ => (limit.ceiling(), "not known here".to_owned()),
        };
        let sustained = format!("{sustained} each {period}");
        Self { sustained, burst: limit.ceiling(), bound, limit: text }
    }
}

/// The period as the text of a limit has it: `1m` in `token-bucket:100/1m,burst=20`.
fn period(limit: &str) -> &str {
    let (_, period) = limit.split_once('/').unwrap_or_default();
    period.split_once(',').map_or(period, |(period, _)| period)
}

fn word(on_unavailable: OnUnavailable) -> &'static str {
    match on_unavailable {
        OnUnavailable::Deny => "deny",
        OnUnavailable::Allow => "allow",
    }
}

fn enforced(percent: u8) -> String {
    match percent {
        0 => "for no key".to_owned(),
        100 => "for all keys".to_owned(),
        percent => format!("for {percent} % of the keys"),
    }
}

fn write_text(out: &mut impl Write, policies: &[PolicyConfig]) -> io::Result<()> {
    if policies.is_empty() {
        return writeln!(out, "The configuration is valid. It names no policies.");
    }
    let header =
        ["POLICY", "LIMIT", "SUSTAINED", "BURST", "AT MOST, IN ANY TIME T", "STORE UNAVAILABLE", "ENFORCED"];
    let mut rows = vec![header.map(String::from)];
    for PolicyConfig { name, limits, on_unavailable, enforce_percent } in policies {
        let enforced = enforced(*enforce_percent);
        for limit in limits.as_slice() {
            let Meaning { limit, sustained, burst, bound } = Meaning::of(limit);
            let unavailable = word(*on_unavailable).to_owned();
            rows.push([
                name.clone(),
                limit,
                sustained,
                burst.to_string(),
                bound,
                unavailable,
                enforced.clone(),
            ]);
        }
    }
    let mut align = [Align::Left; 7];
    align[3] = Align::Right;
    write_table(out, align, &rows)
}

#[derive(Serialize)]
struct JsonPolicy<'a> {
    policy: &'a str,
    on_unavailable: &'static str,
    enforce_percent: u8,
    limits: Vec<Meaning>,
}

fn write_json(out: &mut impl Write, policies: &[PolicyConfig]) -> io::Result<()> {
    for PolicyConfig { name, limits, on_unavailable, enforce_percent } in policies {
        let limits = limits.as_slice().iter().map(Meaning::of).collect();
        let on_unavailable = word(*on_unavailable);
        let object = JsonPolicy { policy: name, on_unavailable, enforce_percent: *enforce_percent, limits };
        write_json_line(out, &object)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(limit: &str) -> Meaning {
        Meaning::of(&limit.parse().unwrap())
    }

    #[test]
    fn a_token_bucket_is_told_by_its_rate_its_burst_and_its_bound() {
        let expected = Meaning {
            limit: "token-bucket:100/1m,burst=20".into(),
            sustained: "100 each 1m".into(),
            burst: 20,
            bound: "floor((20*1m + 100*T) / 1m)".into(),
        };
        assert_eq!(meaning("token-bucket:100/60s,burst=20"), expected);
    }

    #[test]
    fn a_sliding_window_is_told_with_the_most_of_a_window() {
        let expected = Meaning {
            limit: "sliding-window:1000/1h".into(),
            sustained: "1000 each 1h".into(),
            burst: 1000,
            bound: "1000 + floor(1000*T / 1h), at most 1999 in 1h".into(),
        };
        assert_eq!(meaning("sliding-window:1000/1h"), expected);
    }
}
