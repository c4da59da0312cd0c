//! Answers as they are printed.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::Serialize;
use tollgate_client::{Decision, Reason};

use super::{
    Outcome,
    output::{Align, shown, write_json_line, write_table},
};

/// What was asked, and so what an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Whether it may pass: any verdict is an answer.
    Verdict,
    /// To change the state. A degraded answer is a verdict for checks: nothing was changed.
    Change,
}

impl Asked {
    /// What an answer comes to.
    pub(super) fn outcome(self, answer: &Answer<'_>) -> Outcome {
        match self {
            Self::Change if answer.allowed && !answer.degraded => Outcome::Done,
            Self::Change => Outcome::Failed,
            Self::Verdict if is_refused(answer.reason) => Outcome::Failed,
            Self::Verdict if answer.allowed => Outcome::Done,
            Self::Verdict => Outcome::Denied,
        }
    }

    fn word(self, answer: &Answer<'_>) -> &'static str {
        match (self, self.outcome(answer)) {
            (Self::Change, Outcome::Done) => "done",
            (Self::Change, _) => "not done",
            (Self::Verdict, _) if answer.allowed => "allow",
            (Self::Verdict, _) => "deny",
        }
    }
}

/// Whether the server did not take the question, so that nothing was decided about the key.
fn is_refused(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::UnknownPolicy | Reason::BadKey | Reason::BadCost | Reason::BadOperation | Reason::Forbidden
    )
}

/// What a key was answered. What the server could not know is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer<'a> {
    key: &'a str,
    allowed: bool,
    #[serde(serialize_with = "reason_text")]
    reason: Reason,
    /// The most that the tightest limit ever lets pass at once.
    limit: Option<u64>,
    /// What would pass now.
    remaining: Option<u64>,
    /// Rounded up; `None` where there is nothing to wait for: it is allowed, or can never pass.
    retry_after_ms: Option<u64>,
    /// Rounded up.
    reset_after_ms: Option<u64>,
    degraded: bool,
}

fn reason_text<S: serde::Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.as_str())
}

impl<'a> Answer<'a> {
    /// A decision about `key`.
    pub(super) fn new(key: &'a str, decision: &Decision) -> Self {
        Self {
            key,
            allowed: decision.allowed,
            reason: decision.reason,
            limit: decision.limit.map(|limit| limit.ceiling()),
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after.map(ceil_ms),
            reset_after_ms: decision.reset_after.map(ceil_ms),
            degraded: decision.degraded,
        }
    }

    fn note(&self) -> String {
        let mut parts = Vec::new();
        if !matches!(self.reason, Reason::Ok | Reason::Denied) {
            parts.push(self.reason.as_str().replace('_', " "));
        }
        if let (Some(remaining), Some(limit)) = (self.remaining, self.limit) {
            parts.push(format!("{remaining} of {limit} left"));
        }
        if let Some(ms) = self.retry_after_ms {
            parts.push(format!("retry in {}", shown_time(ms)));
        }
        if self.reason == Reason::CostOverLimit {
            parts.push("can never pass".to_owned());
        }
        if let Some(ms) = self.reset_after_ms.filter(|&ms| ms > 0) {
            parts.push(format!("reset in {}", shown_time(ms)));
        }
        if self.degraded {
            parts.push("not decided by the store".to_owned());
        }
        parts.join(", ")
    }
}

/// Whole milliseconds, rounded up: who comes back then does not come too early.
fn ceil_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A time for people: from a minute on in whole seconds, rounded up.
fn shown_time(ms: u64) -> String {
    if ms < 60_000 {
        return format!("{:?}", Duration::from_millis(ms));
    }
    let seconds = ms.div_ceil(1_000);
    let parts =
        [(seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// Writes an object a line.
pub(super) fn write_json(out: &mut impl Write, answers: &[Answer<'_>]) -> io::Result<()> {
    answers.iter().try_for_each(|answer| write_json_line(out, answer))
}

/// Writes a line a key, aligned.
pub(super) fn write_text(out: &mut impl Write, asked: Asked, answers: &[Answer<'_>]) -> io::Result<()> {
    let row = |answer: &Answer<'_>| [shown(answer.key), asked.word(answer).to_owned(), answer.note()];
    write_table(out, [Align::Left; 3], &answers.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Answer<'_> = Answer {
        key: "user:1",
        allowed: true,
        reason: Reason::Ok,
        limit: Some(20),
        remaining: Some(19),
        retry_after_ms: None,
        reset_after_ms: Some(600),
        degraded: false,
    };

    const DENIED: Answer<'_> = Answer {
        key: "u",
        allowed: false,
        reason: Reason::Denied,
        remaining: Some(0),
        retry_after_ms: Some(1_201),
        reset_after_ms: Some(61_500),
        ..ALLOWED
    };

    fn text(answers: &[Answer<'_>]) -> String {
        let mut out = Vec::new();
        write_text(&mut out, Asked::Verdict, answers).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_object_has_exactly_the_promised_fields() {
        let mut out = Vec::new();
        write_json(&mut out, &[ALLOWED, Answer { reason: Reason::CostOverLimit, ..DENIED }]).unwrap();
        let expected = concat!(
            r#"{"key":"user:1","allowed":true,"reason":"ok","limit":20,"remaining":19,"#,
            r#""retry_after_ms":null,"reset_after_ms":600,"degraded":false}"#,
            "\n",
            r#"{"key":"u","allowed":false,"reason":"cost_over_limit","limit":20,"remaining":0,"#,
            r#""retry_after_ms":1201,"reset_after_ms":61500,"degraded":false}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn text_is_aligned_and_says_what_to_expect() {
        let expected = "user:1  allow  19 of 20 left, reset in 600ms\n\
                        u       deny   0 of 20 left, retry in 1.201s, reset in 1m2s\n";
        assert_eq!(text(&[ALLOWED, DENIED]), expected);
    }

    #[test]
    fn text_tells_what_can_never_pass_and_what_the_store_did_not_decide() {
        let never = Answer { reason: Reason::CostOverLimit, retry_after_ms: None, ..DENIED };
        let expected = "u  deny  cost over limit, 0 of 20 left, can never pass, reset in 1m2s\n";
        assert_eq!(text(&[never]), expected);

        let (limit, remaining, reset_after_ms) = (None, None, None);
        let unavailable = Answer {
            reason: Reason::Unavailable,
            limit,
            remaining,
            reset_after_ms,
            degraded: true,
            ..ALLOWED
        };
        assert_eq!(text(&[unavailable]), "user:1  allow  unavailable, not decided by the store\n");
    }

    #[test]
    fn times_are_short() {
        let shown = [600, 59_999, 60_000, 86_400_000 + 3_600_001].map(shown_time);
        assert_eq!(shown, ["600ms", "59.999s", "1m", "1d1h1s"]);
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!([0, 1, 1_000, 1_001].map(|us| ceil_ms(Duration::from_micros(us))), [0, 1, 1, 2]);
    }

    #[test]
    fn the_exit_status_tells_a_denial_from_a_question_that_was_not_taken() {
        let refused = Answer { reason: Reason::UnknownPolicy, ..DENIED };
        let outcomes = [ALLOWED, DENIED, refused].map(|answer| Asked::Verdict.outcome(&answer));
        assert_eq!(outcomes, [Outcome::Done, Outcome::Denied, Outcome::Failed]);
        assert_eq!(outcomes.map(Outcome::exit_status), [0, 3, 1]);
        assert_eq!(outcomes.iter().max(), Some(&Outcome::Failed));
    }

    #[test]
    fn a_change_that_the_store_did_not_make_is_not_done() {
        let degraded = Answer { reason: Reason::Unavailable, degraded: true, ..ALLOWED };
        assert_eq!(Asked::Change.outcome(&degraded), Outcome::Failed);
        assert_eq!(Asked::Change.outcome(&ALLOWED), Outcome::Done);
        assert_eq!(Asked::Verdict.outcome(&degraded), Outcome::Done);
    }
}
