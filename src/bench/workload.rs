//! What is asked: which keys, in which order, at which cost. The same seed asks the same.

use std::{fmt, str::FromStr, sync::Arc};

use rand::{Rng, RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution as _, Zipf};

/// Most keys: they are numbered by 32 bits.
pub const KEYS_MAX: u64 = 1 << 32;

/// Zipf numbers that are drawn beforehand: drawing one takes longer than a check.
const ZIPF_DRAWS: usize = 1 << 20;

const KEY_PREFIX: &[u8; 4] = b"key:";
const KEY_BYTES: usize = KEY_PREFIX.len() + 8;

/// How often each key is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All equally often.
    Uniform,
    /// The n-th key in proportion to 1/n^s, with s above 0.
    Zipf {
        /// s.
        exponent: f64,
    },
    /// Only the first key.
    Hot,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Self::Hot => f.write_str("hot"),
        }
    }
}

/// Why a text is not a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write uniform, hot, or zipf:S with S above 0 and at most 100, e.g. zipf:1.1")]
pub struct ParseDistributionError;

impl FromStr for Distribution {
    type Err = ParseDistributionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "hot" => Ok(Self::Hot),
            _ => text
                .strip_prefix("zipf:")
                .and_then(|exponent| exponent.parse().ok())
                .filter(|exponent| *exponent > 0.0 && *exponent <= 100.0)
                .map(|exponent| Self::Zipf { exponent })
                .ok_or(ParseDistributionError),
        }
    }
}

/// A key: a text of 12 bytes that tells its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// The key of a number.
    pub fn new(index: u32) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = [0; KEY_BYTES];
        let (prefix, digits) = key.split_at_mut(KEY_PREFIX.len());
        prefix.copy_from_slice(KEY_PREFIX);
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(index.to_be_bytes()) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        Self(key)
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| fmt::Write::write_char(f, char::from(byte)))
    }
}

/// What is asked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Number of the last key.
    last: u32,
    distribution: Distribution,
    cost: u64,
    seed: u64,
    /// Numbers drawn beforehand; empty where they are drawn as they are used.
    draws: Arc<[u32]>,
}

impl Workload {
    /// A workload on `keys` keys, within 1 and [`KEYS_MAX`]; more or less are taken for these.
    pub fn new(keys: u64, distribution: Distribution, cost: u64, seed: u64) -> Self {
        let keys = keys.clamp(1, KEYS_MAX);
        let draws = match distribution {
            Distribution::Zipf { exponent } => draw_zipf(keys, exponent, seed),
            _ => Arc::default(),
        };
        Self { last: (keys - 1) as u32, distribution, cost, seed, draws }
    }

    /// How many keys may be asked.
    pub fn keys(&self) -> u64 {
        match self.distribution {
            Distribution::Hot => 1,
            _ => u64::from(self.last) + 1,
        }
    }

    /// How often each is asked.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Cost of each check.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// An endless sequence of numbers of keys, another for each `stream`.
    pub fn stream(&self, stream: u64) -> Stream {
        // Mixed first: the streams of neighbouring seeds must not be the same in another order.
        let mixed = Xoshiro256PlusPlus::seed_from_u64(self.seed).next_u64();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mixed ^ stream);
        let source = match self.distribution {
            Distribution::Hot => Source::First,
            Distribution::Uniform => Source::Uniform { last: self.last, random },
            Distribution::Zipf { .. } => Source::Drawn {
                next: random.random_range(0..self.draws.len()),
                draws: Arc::clone(&self.draws),
            },
        };
        Stream(source)
    }
}

fn draw_zipf(keys: u64, exponent: f64, seed: u64) -> Arc<[u32]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    // Refused are only fewer than one key and exponents below 0.
    let Ok(zipf) = Zipf::new(keys as f64, exponent) else { return Arc::new([0]) };
    (0..ZIPF_DRAWS).map(|_| (zipf.sample(&mut random) as u64).clamp(1, keys) as u32 - 1).collect()
}

/// An endless sequence of numbers of keys.
#[derive(Clone, Debug)]
pub struct Stream(Source);

#[derive(Clone, Debug)]
enum Source {
    First,
    Uniform { last: u32, random: Xoshiro256PlusPlus },
    Drawn { next: usize, draws: Arc<[u32]> },
}

impl Iterator for Stream {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        Some(match &mut self.0 {
            Source::First => 0,
            // The high half of a product is the quickest way into a range; its bias is below 2^-32.
            Source::Uniform { last, random } => {
                ((u128::from(random.next_u64()) * (u128::from(*last) + 1)) >> 64) as u32
            }
            Source::Drawn { next, draws } => {
                let index = draws[*next];
                *next = if *next + 1 == draws.len() { 0 } else { *next + 1 };
                index
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, keys: u64) -> Vec<u32> {
        let mut counts = vec![0; keys as usize];
        for index in Workload::new(keys, distribution, 1, 7).stream(3).take(100_000) {
            counts[index as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_asks_all_keys_equally_often() {
        assert!(counts(Distribution::Uniform, 100).iter().all(|count| (800..1_200).contains(count)));
        assert_eq!(counts(Distribution::Uniform, 1), [100_000]);
    }

    #[test]
    fn zipf_asks_the_nth_key_a_nth_as_often() {
        let counts = counts(Distribution::Zipf { exponent: 1.0 }, 1_000);
        // The first has 1/7.49 of all: the sum of 1/n to 1,000.
        assert!((12_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!((counts[0] / 13..counts[0] / 8).contains(&counts[9]), "{} {}", counts[0], counts[9]);
    }

    #[test]
    fn hot_asks_one_key() {
        assert_eq!(counts(Distribution::Hot, 100)[0], 100_000);
        assert_eq!(Workload::new(100, Distribution::Hot, 1, 7).keys(), 1);
    }

    #[test]
    fn the_seed_and_the_stream_decide_the_order() {
        let first = |seed, stream| {
            let workload = Workload::new(KEYS_MAX, Distribution::Uniform, 1, seed);
            workload.stream(stream).take(8).collect::<Vec<_>>()
        };
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(9, 2));
        assert_ne!(first(1, 2), first(2, 1), "no stream of another seed is the same");
    }

    #[test]
    fn keys_tell_their_number() {
        assert_eq!(Key::new(0x12_ab_0f).as_ref(), b"key:0012ab0f");
        assert_eq!(Key::new(u32::MAX).to_string(), "key:ffffffff");
    }

    #[test]
    fn distributions_are_read_as_they_are_written() {
        for text in ["uniform", "hot", "zipf:1.1", "zipf:2"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for text in ["", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:NaN", "zipf:inf", "warm"] {
            assert_eq!(text.parse::<Distribution>(), Err(ParseDistributionError), "{text}");
        }
    }
}
