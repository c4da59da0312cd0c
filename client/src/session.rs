//! What one connection's task does between two waits: bytes in, bytes out, and when to look again.

use std::{
    io,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use tokio::sync::oneshot;
use tollgate_protocol::{frame::Frame, hello::HelloOk};

use crate::{
    batcher::{Batcher, Event},
    error::Broken,
    keepalive::Keepalive,
    link::{Link, Rest},
    servers::Servers,
};

/// The longest wait where nothing is due.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Why a connection takes no more calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It broke.
    Broken,
    /// It finishes what is in flight. The next one is to be opened within this time.
    GoingAway(Duration),
}

/// A connection without its socket.
#[derive(Debug)]
pub(crate) struct Session {
    /// Bytes that came and are no whole frame yet.
    pub(crate) input: BytesMut,
    /// Bytes to be written.
    pub(crate) out: BytesMut,
    /// Where calls come from.
    pub(crate) link: Arc<Link>,
    batcher: Batcher,
    /// Room to wake callers in.
    callers: Vec<Waker>,
    keepalive: Keepalive,
    servers: Arc<Servers>,
    server: usize,
    /// Tells why the connection takes no more calls; `None` once it was told.
    left: Option<oneshot::Sender<Left>>,
}

impl Session {
    /// A session with a server, and where to hear that it takes no more calls. `input` is what came after
    /// HELLO_OK.
    pub(crate) fn new(
        servers: Arc<Servers>,
        server: usize,
        input: BytesMut,
        hello: HelloOk,
        now: Instant,
    ) -> Result<(Self, oneshot::Receiver<Left>), Broken> {
        let keepalive = Keepalive::new(now, hello.idle_ms, servers.deadline());
        let link = Arc::new(Link::new(&hello));
        let batcher = Batcher::new(Arc::clone(servers.name(server)), Arc::clone(servers.registry()), hello)?;
        let (left, left_receiver) = oneshot::channel();
        let session = Self {
            input,
            out: BytesMut::new(),
            link,
            batcher,
            callers: Vec::new(),
            keepalive,
            servers,
            server,
            left: Some(left),
        };
        Ok((session, left_receiver))
    }

    /// Takes in what came, puts out what may leave, and says when to come again at the latest; `None` where
    /// all is done.
    pub(crate) fn turn(&mut self, now: Instant) -> Result<Option<Instant>, Broken> {
        while let Some(frame) = self.batcher.format().decode(&mut self.input)? {
            self.handle(&frame)?;
            self.hand_over();
        }
        if self.batcher.is_used_up() {
            self.leave(Left::GoingAway(Duration::ZERO), "the ids of the connection are used up");
        }
        self.link.pull(&mut self.batcher.ready);
        self.batcher.expire(now);
        self.hand_over();
        if self.batcher.is_finished() {
            return Ok(None);
        }
        if self.batcher.is_waiting() && now >= self.keepalive.dead_at() {
            return Err(Broken::Silent(self.keepalive.silence_max()));
        }
        if self.out.is_empty() {
            self.fill(now);
        }
        Ok(Some(self.wake_at().unwrap_or(now + WAIT_MAX)))
    }

    /// Hands over what is done.
    fn hand_over(&mut self) {
        self.link.answer(&mut self.batcher.done, &mut self.callers);
    }

    fn fill(&mut self, now: Instant) {
        let owed_before = self.batcher.is_waiting();
        self.batcher.encode(now, &mut self.out);
        self.hand_over();
        if self.out.is_empty() && self.ping_at().is_some_and(|time| time <= now) {
            self.batcher.ping(&mut self.out);
        }
        if !self.out.is_empty() {
            self.keepalive.sent(now, owed_before);
        }
    }

    fn ping_at(&self) -> Option<Instant> {
        if self.out.is_empty() && self.batcher.may_ping() { self.keepalive.ping_at() } else { None }
    }

    fn wake_at(&self) -> Option<Instant> {
        let dead_at = self.batcher.is_waiting().then(|| self.keepalive.dead_at());
        [self.batcher.first_deadline(), self.ping_at(), dead_at].into_iter().flatten().min()
    }

    /// Whether the task may wait until `wake_at`, or until the link calls.
    pub(crate) fn rest(&self, wake_at: Instant) -> bool {
        let can_send = self.out.is_empty() && self.batcher.has_credit();
        let rest = if can_send { Rest::UntilCall } else { Rest::Until(wake_at) };
        self.link.rest(rest, self.batcher.ready.len())
    }

    /// Notes that `bytes` of [`Session::out`] were written.
    pub(crate) fn written(&mut self, bytes: usize) -> Result<(), Broken> {
        if bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero).into());
        }
        self.batcher.written(bytes);
        Ok(())
    }

    /// Notes that `bytes` came into [`Session::input`].
    pub(crate) fn heard(&mut self, bytes: usize, now: Instant) -> Result<(), Broken> {
        if bytes == 0 {
            return Err(Broken::Closed);
        }
        self.keepalive.heard(now);
        Ok(())
    }

    fn handle(&mut self, frame: &Frame) -> Result<(), Broken> {
        match self.batcher.handle(frame)? {
            Event::Handled => {}
            Event::Announced(name) => self.servers.registry().announce(self.server, &name),
            Event::GoAway(within) => self.leave(Left::GoingAway(within), "the server is going away"),
        }
        Ok(())
    }

    /// Takes no more calls. Those that wait go to other connections: they find the route gone.
    fn leave(&mut self, why: Left, reason: &str) {
        let Some(left) = self.left.take() else { return };
        tracing::info!(server = %self.servers.name(self.server), reason, "connection takes no more calls");
        self.servers.down(self.server, reason.into());
        self.link.close(&mut self.batcher.ready);
        self.batcher.leave();
        self.hand_over();
        // The receiver is gone only where the client is.
        let _ = left.send(why);
    }

    /// Answers all that still wait.
    pub(crate) fn end(&mut self, broken: &Broken) {
        let reason = broken.to_string();
        self.leave(Left::Broken, &reason);
        self.batcher.close(&reason.into());
        self.hand_over();
    }
}

/// Also where its task is dropped: no caller may wait for ever.
impl Drop for Session {
    fn drop(&mut self) {
        self.end(&Broken::TaskEnded);
    }
}

// They run without loom, whose locks exist in models only.
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
