//! What checks came to.

use tollgate_client::{CheckError, Decision, Reason};

/// How many checks came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Passed.
    pub(super) allowed: u64,
    /// Did not pass; the next is a part of it.
    pub(super) denied: u64,
    /// Denied by the server from memory.
    pub(super) denied_cached: u64,
    /// Answered by the policy's verdict, as the store could not answer.
    pub(super) degraded: u64,
    /// Not decided.
    pub(super) errors: u64,
}

impl Tally {
    /// Checks that were decided.
    pub(super) fn decided(&self) -> u64 {
        self.allowed + self.denied
    }

    /// Checks that were not.
    pub(super) fn failed(&self) -> u64 {
        self.degraded + self.errors
    }

    /// Counts what one check came to.
    #[inline]
    pub(super) fn count(&mut self, answer: &Result<Decision, CheckError>) {
        match answer {
            Ok(decision) => self.count_decision(decision.reason, decision.degraded),
            Err(_) => self.errors += 1,
        }
    }

    #[inline]
    fn count_decision(&mut self, reason: Reason, degraded: bool) {
        match reason {
            _ if degraded => self.degraded += 1,
            Reason::Ok | Reason::Leased => self.allowed += 1,
            // A policy that is not enforced denies, though it passes.
            Reason::Denied | Reason::CostOverLimit | Reason::Shadow => self.denied += 1,
            Reason::DeniedCached => {
                self.denied += 1;
                self.denied_cached += 1;
            }
            _ => self.errors += 1,
        }
    }

    /// Adds what other checks came to.
    pub(super) fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.denied_cached += other.denied_cached;
        self.degraded += other.degraded;
        self.errors += other.errors;
    }
}

/// Whether a check passed, and was charged.
#[inline]
pub(super) fn is_admitted(answer: &Result<Decision, CheckError>) -> bool {
    let is_charged = |decision: &Decision| !decision.degraded && decision.reason != Reason::Shadow;
    answer.as_ref().is_ok_and(|decision| decision.allowed && is_charged(decision))
}

/// Why a check was not decided, in words; `None` where it was, or by the policy's verdict.
pub(super) fn error_text(answer: &Result<Decision, CheckError>) -> Option<String> {
    let mut tally = Tally::default();
    tally.count(answer);
    match answer {
        Err(error) => Some(error.to_string()),
        Ok(decision) if tally.errors > 0 => Some(format!("the server answers {}", decision.reason.as_str())),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_counted_once() {
        let mut tally = Tally::default();
        for &reason in Reason::ALL {
            tally.count_decision(reason, false);
            tally.count_decision(reason, true);
        }
        tally.count(&Err(CheckError::ZeroCost));
        let each = Reason::ALL.len() as u64;
        assert_eq!((tally.allowed, tally.denied, tally.denied_cached), (2, 4, 1));
        assert_eq!((tally.degraded, tally.errors), (each, each - 6 + 1));
        assert_eq!(tally.decided() + tally.failed(), 2 * each + 1);
        let mut twice = tally;
        twice.add(&tally);
        assert_eq!(twice.decided() + twice.failed(), 2 * (2 * each + 1));
    }

    #[test]
    fn errors_are_told_in_words() {
        let error = CheckError::ZeroCost;
        assert_eq!(error_text(&Err(error.clone())), Some(error.to_string()));
        assert!(!is_admitted(&Err(error)));
    }
}
