//! The search for the knee: the highest rate at which calls are answered in time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    driver::measure,
    plan::Plan,
    progress::Progress,
    report::{Measured, Sweep, SweepStep},
    worker::BenchError,
};

/// The first rate, as a share of what the servers do when each call follows an answer.
const FIRST_SHARE: f64 = 0.5;

/// The search ends when the highest rate that held and the lowest that did not are within this factor.
const PRECISION: f64 = 1.05;

/// Rates that are tried at most.
const STEPS_MAX: usize = 16;

/// The lowest rate that is tried, as the same share.
const LOWEST_SHARE: f64 = 0.01;

/// Share of the due checks that may not have been sent in the end at a rate that holds. They have no time that
/// could be told.
const NOT_SENT_MAX: f64 = 0.01;

/// The rates between which the knee is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bracket {
    /// No lower rate is tried.
    lowest: f64,
    /// The highest that held.
    held: Option<f64>,
    /// The lowest that did not.
    failed: Option<f64>,
}

impl Bracket {
    fn new(lowest: f64) -> Self {
        Self { lowest, held: None, failed: None }
    }

    fn note(&mut self, rate: f64, held: bool) {
        if held {
            self.held = Some(self.held.map_or(rate, |other| other.max(rate)));
        } else {
            self.failed = Some(self.failed.map_or(rate, |other| other.min(rate)));
        }
    }

    /// The rate to try next; `None` where the knee is known well enough.
    fn next(&self) -> Option<f64> {
        match (self.held, self.failed) {
            (Some(held), Some(failed)) if failed <= held * PRECISION => None,
            // The middle by ratio: rates differ by orders of magnitude.
            (Some(held), Some(failed)) => Some((held * failed).sqrt()),
            (Some(held), None) => Some(held * 2.0),
            (None, Some(failed)) => Some(failed / 4.0).filter(|rate| *rate >= self.lowest),
            (None, None) => None,
        }
    }
}

/// Raises the rate until 99 % of the calls no longer take at most `p99_max`, and closes in on where that begins. The
/// first run has no rate: what it does says where to begin. What was measured is that of the highest rate that
/// held, else of the run without a rate; a promise broken in any run is told.
///
/// # Errors
/// As [`measure`].
pub async fn sweep(
    plan: &Plan,
    p99_max: Duration,
    progress: &Progress,
    interrupted: &CancellationToken,
) -> Result<(Measured, Sweep), BenchError> {
    let p99_max_us = p99_max.as_micros() as u64;
    progress.name("no rate ".into());
    let mut best = measure(&Plan { rate_per_s: None, ..plan.clone() }, progress, interrupted).await?;
    let mut bracket = Bracket::new(best.checks_per_s * LOWEST_SHARE);
    let mut next = Some(best.checks_per_s * FIRST_SHARE).filter(|rate| *rate > 0.0);
    let mut steps = Vec::new();
    while let Some(rate) = next
        && steps.len() < STEPS_MAX
        && !interrupted.is_cancelled()
    {
        progress.name(format!("{rate:.0}/s "));
        let mut measured =
            measure(&Plan { rate_per_s: Some(rate), ..plan.clone() }, progress, interrupted).await?;
        let step = step(rate, &measured, p99_max_us);
        // One that was ended early says nothing of its rate.
        if !interrupted.is_cancelled() {
            steps.push(step);
            bracket.note(rate, step.held);
        }
        if bracket.held == Some(rate) {
            std::mem::swap(&mut best, &mut measured);
        }
        keep_worst(&mut best, measured);
        next = bracket.next();
    }
    Ok((best, Sweep { p99_max_us, knee_per_s: bracket.held, steps }))
}

fn step(rate_per_s: f64, measured: &Measured, p99_max_us: u64) -> SweepStep {
    let Measured { checks_per_s, p50_us, p99_us, errors, degraded, not_sent, elapsed_s, .. } = *measured;
    let is_sent = not_sent as f64 <= rate_per_s * elapsed_s * NOT_SENT_MAX;
    let held = is_sent && errors == 0 && degraded == 0 && p99_us <= p99_max_us;
    SweepStep { rate_per_s, checks_per_s, p50_us, p99_us, held }
}

/// Takes over the worst interval of `other` where it is worse.
fn keep_worst(measured: &mut Measured, other: Measured) {
    if other.worst_admitted_over_promised > measured.worst_admitted_over_promised {
        measured.worst_admitted_over_promised = other.worst_admitted_over_promised;
        measured.worst = other.worst;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that are tried where those up to `knee` hold, and what is found.
    fn search(first: f64, knee: f64) -> (Vec<f64>, Option<f64>) {
        let (mut bracket, mut tried, mut next) = (Bracket::new(0.5), Vec::new(), Some(first));
        while let Some(rate) = next
            && tried.len() < STEPS_MAX
        {
            tried.push(rate);
            bracket.note(rate, rate <= knee);
            next = bracket.next();
        }
        (tried, bracket.held)
    }

    #[test]
    fn the_knee_is_found_from_below_and_from_above() {
        for first in [10.0, 1_000.0, 900_000.0] {
            let (tried, found) = search(first, 1_000.0);
            let found = found.expect("a rate that holds");
            assert!((1_000.0 / PRECISION..=1_000.0).contains(&found), "{found}: {tried:?}");
        }
    }

    #[test]
    fn a_search_for_nothing_ends() {
        let (tried, found) = search(1_000.0, 0.0);
        assert!(
            found.is_none() && tried.len() < STEPS_MAX && tried.iter().all(|rate| *rate >= 0.5),
            "{tried:?}"
        );
        assert_eq!(search(1_000.0, f64::INFINITY).0.len(), STEPS_MAX);
    }

    #[test]
    fn a_rate_holds_where_all_is_sent_answered_and_in_time() {
        let good = Measured { checks_per_s: 1_000.0, elapsed_s: 1.0, p99_us: 2_000, ..Measured::default() };
        let held = |measured: &Measured| step(1_000.0, measured, 2_000).held;
        assert!(held(&good));
        assert!(!held(&Measured { p99_us: 2_001, ..good.clone() }));
        assert!(!held(&Measured { errors: 1, ..good.clone() }));
        assert!(!held(&Measured { degraded: 1, ..good.clone() }));
        assert!(!held(&Measured { not_sent: 11, ..good }));
    }
}
