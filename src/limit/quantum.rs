//! The unit of time in which a limit counts: a power of ten of microseconds.

/// Exponents of the quanta that are tried: 1 us to 10^9 us.
const EXPONENT_MAX: u8 = 9;

/// 10^0 to 10^9. Every check needs one several times, and a look-up is cheaper than to multiply.
const POWERS_OF_TEN: [u64; EXPONENT_MAX as usize + 1] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// A power of ten of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantum {
    exponent: u8,
}

impl Quantum {
    /// The smallest quantum that divides `period_us` and that `fits` accepts.
    pub fn smallest(period_us: u64, mut fits: impl FnMut(Self) -> bool) -> Option<Self> {
        (0..=EXPONENT_MAX)
            .map(|exponent| Self { exponent })
            .find(|quantum| period_us.is_multiple_of(quantum.us()) && fits(*quantum))
    }

    /// The quantum of an exponent; `None` above 9.
    pub fn from_exponent(exponent: u8) -> Option<Self> {
        (exponent <= EXPONENT_MAX).then_some(Self { exponent })
    }

    /// The exponent: the quantum is 10^exponent microseconds.
    pub fn exponent(self) -> u8 {
        self.exponent
    }

    /// The quantum in microseconds.
    pub fn us(self) -> u64 {
        POWERS_OF_TEN[usize::from(self.exponent)]
    }
}
