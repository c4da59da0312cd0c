//! What a limit promises: how much may pass in an interval.

use tollgate_protocol::limit::Limit;

use crate::limit::Rule;

/// How much faster the clock of a store may run than that of this process, in millionths: as much as systems
/// adjust their clocks by.
const CLOCK_DRIFT_PPM: u64 = 500;

/// The promise of a limit: in any interval of length T at most `floor(C + R*T/P)`.
///
/// A sliding window of L per W promises that with C = R = L and P = W; that at most 2L-1 pass in a trailing window
/// follows, as it is shorter than W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// C.
    pub at_once: u64,
    /// R.
    pub amount: u64,
    /// P, in microseconds.
    pub period_us: u64,
    /// The unit in which the limit counts time, in microseconds: a begun one counts as a whole.
    pub quantum_us: u64,
}

impl Envelope {
    /// The promise of a limit; `None` for one that is not known here.
    pub fn of(limit: &Limit) -> Option<Self> {
        let (at_once, amount, period_us) = match *limit {
            Limit::TokenBucket { rate, period_us, capacity } => (capacity, rate, period_us),
            Limit::SlidingWindow { limit, window_us } => (limit, limit, window_us),
            _ => return None,
        };
        let (_, exponent, _) = Rule::new(limit).ok()?.constants();
        Some(Self { at_once, amount, period_us, quantum_us: 10u64.pow(exponent.into()) })
    }

    /// The most that may pass in an interval that is `interval_us` long by the clock of this process.
    pub fn promised(&self, interval_us: u64) -> u128 {
        let interval_ppm = u128::from(interval_us) * u128::from(1_000_000 + CLOCK_DRIFT_PPM);
        let longest_ppm = interval_ppm + u128::from(self.quantum_us) * 1_000_000;
        let gained = u128::from(self.amount) * longest_ppm / (u128::from(self.period_us) * 1_000_000);
        u128::from(self.at_once) + gained
    }

    /// [`Envelope::promised`] of no time, before it is rounded down. With [`Envelope::rate_per_us`] for each microsecond
    /// it is what may pass in any time: as much as is whole of that.
    pub fn base(&self) -> f64 {
        self.at_once as f64 + self.amount as f64 * self.quantum_us as f64 / self.period_us as f64
    }

    /// What may pass for each microsecond of an interval.
    pub fn rate_per_us(&self) -> f64 {
        self.amount as f64 / self.period_us as f64 * (1.0 + CLOCK_DRIFT_PPM as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised(limit: &str, interval_us: u64) -> u128 {
        Envelope::of(&limit.parse().unwrap()).unwrap().promised(interval_us)
    }

    #[test]
    fn promises_are_those_of_the_documentation() {
        // A clock that is 500 us a second fast and a begun microsecond add less than a token here.
        assert_eq!(promised("token-bucket:100/1s,burst=20", 0), 20);
        assert_eq!(promised("token-bucket:100/1s,burst=20", 1_000_000), 120);
        assert_eq!(promised("token-bucket:100/1s,burst=20", 99_990_000), 20 + 9_999 + 4);
        assert_eq!(promised("sliding-window:10/1s", 950_000), 19);
        assert_eq!(promised("sliding-window:10/1s", 1_000_000), 20);
    }

    #[test]
    fn huge_limits_promise_for_whole_units_of_time() {
        // It counts in units of 10 ms, in each of which 10,000,000 are gained.
        let limit = "token-bucket:1000000007/1s,burst=10000000000000";
        assert_eq!(promised(limit, 0), 10_000_000_000_000 + 10_000_000);
    }
}
