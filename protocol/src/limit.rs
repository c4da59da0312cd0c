//! One limit: its algorithm and numbers, on the wire and as text.
//!
//! As text a limit is `algorithm:amount/period[,option=value]`:
//!
//! ```
//! use tollgate_protocol::limit::Limit;
//!
//! let limit: Limit = "token-bucket:100/1m,burst=20".parse()?;
//! assert_eq!(limit, Limit::TokenBucket { rate: 100, period_us: 60_000_000, capacity: 20 });
//! assert_eq!(limit.to_string(), "token-bucket:100/1m,burst=20");
//! # Ok::<(), tollgate_protocol::limit::ParseLimitError>(())
//! ```

use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};

use bytes::BufMut;

use crate::{
    error::{DecodeError, finish},
    limits::PERIOD_US_MAX,
    varint,
};

const TOKEN_BUCKET: u8 = 1;
const SLIDING_WINDOW: u8 = 2;

/// One limit. All numbers are whole and at least 1; amounts are at most [`varint::VALUE_MAX`], periods at most
/// [`PERIOD_US_MAX`]. Whether a server can enforce a limit exactly is decided by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// A bucket that holds `capacity` tokens and gains `rate` tokens each `period_us`, evenly.
    TokenBucket {
        /// Tokens gained each period.
        rate: u64,
        /// The period, in microseconds.
        period_us: u64,
        /// Tokens that the bucket holds.
        capacity: u64,
    },
    /// A sliding window counter: `limit` each `window_us`, the window before weighted by its remaining share.
    SlidingWindow {
        /// Cost that may pass in a window.
        limit: u64,
        /// The window, in microseconds.
        window_us: u64,
    },
    /// A limit that this version does not know, in the policies of a newer server. It has no text form, and
    /// DEFINE does not take it.
    Unknown {
        /// Its algorithm on the wire.
        algorithm: u8,
    },
}

impl Limit {
    /// The most that may pass at once from a fresh state: a bucket's capacity, a window's limit. Nothing is
    /// known of an unknown limit but that no cost is above [`varint::VALUE_MAX`].
    pub fn ceiling(&self) -> u64 {
        match *self {
            Self::TokenBucket { capacity, .. } => capacity,
            Self::SlidingWindow { limit, .. } => limit,
            Self::Unknown { .. } => varint::VALUE_MAX,
        }
    }

    /// Appends the wire form: algorithm, length, numbers.
    pub fn encode(&self, out: &mut impl BufMut) {
        let (algorithm, numbers): (u8, &[u64]) = match self {
            Self::TokenBucket { rate, period_us, capacity } => {
                (TOKEN_BUCKET, &[*rate, *period_us, *capacity])
            }
            Self::SlidingWindow { limit, window_us } => (SLIDING_WINDOW, &[*limit, *window_us]),
            Self::Unknown { algorithm } => (*algorithm, &[]),
        };
        out.put_u8(algorithm);
        varint::put(out, numbers.iter().map(|&number| varint::len(number) as u64).sum());
        for &number in numbers {
            varint::put(out, number);
        }
    }

    /// Takes a limit in wire form. The numbers of an unknown one are skipped.
    ///
    /// # Errors
    /// The rule that the bytes break.
    pub fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let algorithm = varint::take_u8(input)?;
        let mut body = varint::get_rest(input)?;
        let limit = match algorithm {
            TOKEN_BUCKET => Self::TokenBucket {
                rate: number(&mut body, "rate", varint::VALUE_MAX)?,
                period_us: number(&mut body, "period", PERIOD_US_MAX)?,
                capacity: number(&mut body, "capacity", varint::VALUE_MAX)?,
            },
            SLIDING_WINDOW => Self::SlidingWindow {
                limit: number(&mut body, "limit", varint::VALUE_MAX)?,
                window_us: number(&mut body, "window", PERIOD_US_MAX)?,
            },
            algorithm => return Ok(Self::Unknown { algorithm }),
        };
        finish(body)?;
        Ok(limit)
    }
}

fn number(input: &mut &[u8], name: &'static str, max: u64) -> Result<u64, DecodeError> {
    let value = varint::get(input)?;
    if (1..=max).contains(&value) { Ok(value) } else { Err(DecodeError::LimitOutOfRange(name)) }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TokenBucket { rate, period_us, capacity } => {
                write!(f, "token-bucket:{rate}/{}", Period(period_us))?;
                if capacity == rate { Ok(()) } else { write!(f, ",burst={capacity}") }
            }
            Self::SlidingWindow { limit, window_us } => {
                write!(f, "sliding-window:{limit}/{}", Period(window_us))
            }
            Self::Unknown { algorithm } => write!(f, "unknown algorithm {algorithm}"),
        }
    }
}

/// Units of a period, the longest first.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A time in the longest unit that divides it.
struct Period(u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit_us) =
            UNITS.into_iter().find(|(_, unit_us)| self.0.is_multiple_of(*unit_us)).unwrap_or(UNITS[5]);
        write!(f, "{}{name}", self.0 / unit_us)
    }
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a limit: {problem}; write e.g. token-bucket:100/1m,burst=20 or sliding-window:100/1m"
)]
pub struct ParseLimitError {
    text: String,
    problem: ParseProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ParseProblem {
    #[error("the `:` after the algorithm is missing")]
    NoAlgorithm,
    #[error("`{0}` is not an algorithm known here (token-bucket, sliding-window)")]
    UnknownAlgorithm(String),
    #[error("the `/` between amount and period is missing")]
    NoPeriod,
    #[error("the {name} `{text}` is not a whole number from 1 to {max}")]
    Number { name: &'static str, text: String, max: u64 },
    #[error("the period `{0}` has no unit of us, ms, s, m, h, d")]
    Unit(String),
    #[error("the period `{0}` is not from 1us to 366d")]
    Period(String),
    #[error("`{0}` is not an option of this algorithm")]
    Option(String),
    #[error("`{0}` stands twice")]
    Twice(String),
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        parse(text.trim()).map_err(|problem| ParseLimitError { text: text.into(), problem })
    }
}

fn parse(text: &str) -> Result<Limit, ParseProblem> {
    let (algorithm, rest) = text.split_once(':').ok_or(ParseProblem::NoAlgorithm)?;
    let mut parts = rest.split(',');
    // `split` yields at least one part.
    let (amount, period) = parts.next().unwrap_or("").split_once('/').ok_or(ParseProblem::NoPeriod)?;
    let options: Vec<&str> = parts.collect();
    match algorithm {
        "token-bucket" => {
            let rate = parse_number("amount", amount, varint::VALUE_MAX)?;
            let period_us = parse_period(period)?;
            let capacity = parse_options(&options, "burst")?.unwrap_or(rate);
            Ok(Limit::TokenBucket { rate, period_us, capacity })
        }
        "sliding-window" => {
            if let Some(option) = options.first() {
                return Err(ParseProblem::Option((*option).into()));
            }
            let limit = parse_number("amount", amount, varint::VALUE_MAX)?;
            Ok(Limit::SlidingWindow { limit, window_us: parse_period(period)? })
        }
        unknown => Err(ParseProblem::UnknownAlgorithm(unknown.into())),
    }
}

/// The value of the one option that an algorithm has.
fn parse_options(options: &[&str], known: &'static str) -> Result<Option<u64>, ParseProblem> {
    let mut found = None;
    for option in options {
        match option.split_once('=') {
            Some((name, value)) if name == known => {
                if found.replace(parse_number(known, value, varint::VALUE_MAX)?).is_some() {
                    return Err(ParseProblem::Twice(name.into()));
                }
            }
            _ => return Err(ParseProblem::Option((*option).into())),
        }
    }
    Ok(found)
}

fn parse_number(name: &'static str, text: &str, max: u64) -> Result<u64, ParseProblem> {
    digits(text).filter(|value| (1..=max).contains(value)).ok_or_else(|| ParseProblem::Number {
        name,
        text: text.into(),
        max,
    })
}

fn parse_period(text: &str) -> Result<u64, ParseProblem> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| ParseProblem::Unit(text.into()))?;
    let (count, unit) = text.split_at(unit_at);
    let (_, unit_us) =
        UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(|| ParseProblem::Unit(text.into()))?;
    // A period without a number is one unit: `10/s`.
    let count = if count.is_empty() { Some(1) } else { digits(count) };
    count
        .and_then(|count| count.checked_mul(unit_us))
        .filter(|period_us| (1..=PERIOD_US_MAX).contains(period_us))
        .ok_or_else(|| ParseProblem::Period(text.into()))
}

/// A whole number of digits only: no sign, no space.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
