//! When a connection has waited for too long. Time is a parameter.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_protocol::limits::{FRAME_TIMEOUT_MS, HELLO_TIMEOUT_MS, WRITE_TIMEOUT_MS};

pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_millis(HELLO_TIMEOUT_MS);
pub(crate) const FRAME_TIMEOUT: Duration = Duration::from_millis(FRAME_TIMEOUT_MS);
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_millis(WRITE_TIMEOUT_MS);

/// A connection on which nothing happened for this long gives its buffers back.
const QUIET: Duration = Duration::from_secs(1);

/// What a connection has waited for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Hello,
    Frame,
    Write,
    /// Nothing happened for a while: buffers can go.
    Quiet,
    Idle,
}

/// The deadlines of one connection.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// `None`: never.
    idle: Option<Duration>,
    hello_by: Option<Instant>,
    frame_by: Option<Instant>,
    write_by: Option<Instant>,
    quiet_by: Option<Instant>,
    idle_by: Option<Instant>,
}

impl Timeouts {
    /// The deadlines of a connection that is accepted at `now` and, `idle` being some, closed when idle.
    pub(crate) fn new(idle: Option<Duration>, now: Instant) -> Self {
        let hello_by = Some(now + HELLO_TIMEOUT);
        let mut timeouts =
            Self { idle, hello_by, frame_by: None, write_by: None, quiet_by: None, idle_by: None };
        timeouts.active(now);
        timeouts
    }

    /// HELLO is not awaited any more.
    pub(crate) fn greeted(&mut self) {
        self.hello_by = None;
    }

    /// Bytes came, or a store answered.
    pub(crate) fn active(&mut self, now: Instant) {
        self.quiet_by = Some(now + QUIET);
        self.idle_by = self.idle.map(|idle| now + idle);
    }

    /// The rest of a frame is awaited, or none is. A frame keeps the deadline that it began with; `another`
    /// says that it is not the one that was awaited before.
    pub(crate) fn awaits_rest(&mut self, awaits: bool, another: bool, now: Instant) {
        let kept = self.frame_by.filter(|_| !another);
        self.frame_by = awaits.then(|| kept.unwrap_or(now + FRAME_TIMEOUT));
    }

    /// Output waits to be written, or none does.
    pub(crate) fn awaits_write(&mut self, awaits: bool, now: Instant) {
        self.write_by = awaits.then(|| self.write_by.unwrap_or(now + WRITE_TIMEOUT));
    }

    /// The client took some of its output.
    pub(crate) fn wrote(&mut self, now: Instant) {
        self.write_by = None;
        self.quiet_by = Some(now + QUIET);
    }

    /// The next deadline, if there is one.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines().into_iter().filter_map(|(by, _)| by).min()
    }

    /// What is due at `now`, the worst first; each is told once.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        let is_due = |&(by, _): &(Option<Instant>, Due)| by.is_some_and(|by| by <= now);
        let (_, due) = self.deadlines().into_iter().find(is_due)?;
        match due {
            Due::Write => self.write_by = None,
            Due::Hello => self.hello_by = None,
            Due::Frame => self.frame_by = None,
            Due::Quiet => self.quiet_by = None,
            Due::Idle => self.idle_by = None,
        }
        Some(due)
    }

    fn deadlines(&self) -> [(Option<Instant>, Due); 5] {
        [
            (self.write_by, Due::Write),
            (self.hello_by, Due::Hello),
            (self.frame_by, Due::Frame),
            (self.quiet_by, Due::Quiet),
            (self.idle_by, Due::Idle),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn open(now: Instant) -> Timeouts {
        let mut timeouts = Timeouts::new(Some(60 * SECOND), now);
        timeouts.greeted();
        timeouts
    }

    #[test]
    fn what_is_due_is_told_once_in_the_order_of_its_weight() {
        let now = Instant::now();
        let mut timeouts = Timeouts::new(Some(SECOND), now);
        timeouts.awaits_rest(true, true, now);
        timeouts.awaits_write(true, now);
        assert_eq!(timeouts.next(), Some(now + SECOND));
        let due: Vec<_> = std::iter::from_fn(|| timeouts.due(now + 60 * SECOND)).collect();
        assert_eq!(due, [Due::Write, Due::Hello, Due::Frame, Due::Quiet, Due::Idle]);
        assert_eq!(timeouts.next(), None);
    }

    #[test]
    fn a_frame_keeps_the_deadline_that_it_began_with() {
        let now = Instant::now();
        let mut timeouts = open(now);
        timeouts.awaits_rest(true, true, now);
        timeouts.awaits_rest(true, false, now + 4 * SECOND);
        timeouts.active(now + 4 * SECOND);
        assert_eq!(timeouts.due(now + FRAME_TIMEOUT - SECOND / 10), None);
        assert_eq!(timeouts.due(now + FRAME_TIMEOUT), Some(Due::Frame));

        timeouts.awaits_rest(true, true, now + 4 * SECOND);
        timeouts.awaits_rest(true, true, now + 8 * SECOND);
        assert_eq!(timeouts.frame_by, Some(now + 8 * SECOND + FRAME_TIMEOUT), "another frame has its own");
    }

    #[test]
    fn a_client_that_takes_some_output_has_time_for_the_rest() {
        let now = Instant::now();
        let mut timeouts = open(now);
        timeouts.awaits_write(true, now);
        timeouts.awaits_write(true, now + 4 * SECOND);
        assert_eq!(timeouts.write_by, Some(now + WRITE_TIMEOUT));
        timeouts.wrote(now + 4 * SECOND);
        timeouts.awaits_write(true, now + 4 * SECOND);
        assert_eq!(timeouts.write_by, Some(now + 4 * SECOND + WRITE_TIMEOUT));
    }
}
