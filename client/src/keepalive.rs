//! When to send a PING, and when to take a silent server for dead.

use std::time::{Duration, Instant};

/// Shortest silence after which a server that owes an answer is taken for dead.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// The times of one connection. Reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    ping_every: Option<Duration>,
    silence_max: Duration,
    last_sent: Instant,
    /// When the server was last heard, or began to owe an answer, whichever is later.
    quiet_since: Instant,
}

impl Keepalive {
    /// The server closes what is idle for `idle_ms` (0: never). It answers a batch by its deadline, so that one
    /// which says nothing for twice the longest deadline is dead.
    pub(crate) fn new(now: Instant, idle_ms: u64, deadline: Duration) -> Self {
        Self {
            ping_every: (idle_ms > 0).then(|| Duration::from_millis(idle_ms.div_ceil(3))),
            silence_max: (deadline * 2).max(SILENCE_MIN),
            last_sent: now,
            quiet_since: now,
        }
    }

    /// Notes that frames are sent, and whether the server owed an answer before.
    pub(crate) fn sent(&mut self, now: Instant, owed_before: bool) {
        self.last_sent = now;
        if !owed_before {
            self.quiet_since = now;
        }
    }

    /// Notes that bytes came.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    /// When a PING is due; `None` where none is needed.
    pub(crate) fn ping_at(&self) -> Option<Instant> {
        self.last_sent.checked_add(self.ping_every?)
    }

    /// When a server that owes an answer is taken for dead.
    pub(crate) fn dead_at(&self) -> Instant {
        self.quiet_since + self.silence_max
    }

    /// The silence after which a server that owes an answer is taken for dead.
    pub(crate) fn silence_max(&self) -> Duration {
        self.silence_max
    }
}
