//! One socket: when to read, what to decide, when to write, when to give up.
//!
//! One task owns the socket and both of its buffers. It reads only while it has room to answer, decides a
//! whole read at once, up to a bound, and writes everything that is ready in one call. Reading and writing go on side by side,
//! so that a client which writes before it reads cannot block itself.

use std::{
    cell::RefCell,
    future::ready,
    io,
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::BytesMut;
use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::watch,
    task::yield_now,
    time::{Instant, Sleep, sleep_until},
};
use tollgate_protocol::{check::CheckItem, control::GoAwayReason};

use super::{
    drain::Stage,
    input::Input,
    linger::linger,
    session::{Request, Session, Step, Stub},
    terms::Terms,
    timeouts::{Due, HELLO_TIMEOUT, Timeouts, WRITE_TIMEOUT},
    violation::Violation,
};
use crate::{
    limit::Decision,
    policy::PolicyTable,
    store::{Store, redis::RedisStore},
};

/// No frame is taken while this much output waits for the client to read it.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Most checks of a turn, and most frames: then the other connections of the thread have theirs.
const TURN_ITEMS_MAX: usize = 4_096;
const TURN_FRAMES_MAX: usize = 256;

/// Why a connection ended without a last word.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the client took none of its output for {} s", WRITE_TIMEOUT.as_secs())]
    WriteTimeout,
    #[error("cut off by the shutdown")]
    Cut,
}

/// Serves one client until it goes, breaks a rule, is idle for too long, or the server shuts down.
///
/// # Errors
/// Why the connection was lost.
pub(crate) async fn serve(
    terms: Arc<Terms>,
    store: Arc<Store>,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    mut stage: watch::Receiver<Stage>,
) -> Result<(), Lost> {
    let mut connection = Connection::new(terms, &store, reader, writer);
    connection.run(&mut stage).await?;
    tokio::select! {
        () = linger(&mut connection.reader, &mut connection.writer) => Ok(()),
        _ = stage.wait_for(|&stage| stage == Stage::Cut) => Err(Lost::Cut),
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Memory of one batch, for the next one of any connection on this thread: an idle connection holds none.
#[derive(Default)]
struct Scratch {
    items: Vec<CheckItem>,
    decisions: Vec<Decision>,
}

struct Connection<'a, R, W> {
    reader: R,
    writer: W,
    session: Session,
    store: &'a Store,
    input: Input,
    /// The named policies of the server.
    policies: watch::Receiver<Arc<PolicyTable>>,
    /// When the last of the input arrived.
    arrived: Instant,
    /// Whether there is no whole frame in the input.
    starved: bool,
    /// Whether the last turn ended for the sake of others.
    yields: bool,
    output: BytesMut,
    /// Replies that are in the output. A batch holds its credit until its reply is written.
    unwritten: usize,
    /// Batches that the store is deciding.
    inflight: FuturesUnordered<BoxFuture<'a, (Stub, Vec<Decision>)>>,
    timeouts: Timeouts,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<'a, R, W> {
    fn new(terms: Arc<Terms>, store: &'a Store, reader: R, writer: W) -> Self {
        let now = Instant::now();
        Self {
            reader,
            writer,
            timeouts: Timeouts::new(terms.idle(), now),
            // Before the session takes the policies as they are: a change between the two is seen.
            policies: terms.policies.subscribe(),
            session: Session::new(terms),
            store,
            input: Input::new(),
            arrived: now,
            starved: true,
            yields: false,
            output: BytesMut::new(),
            unwritten: 0,
            inflight: FuturesUnordered::new(),
        }
    }

    /// Serves until all is said: there is no more to come, and the output is written.
    async fn run(&mut self, stage: &mut watch::Receiver<Stage>) -> Result<(), Lost> {
        let mut timer = pin!(sleep_until(Instant::now() + HELLO_TIMEOUT));
        stage.mark_changed();
        loop {
            if self.yields {
                yield_now().await;
            }
            let now = Instant::now();
            if stage.has_changed().map_err(|_| Lost::Cut)? {
                self.follow(*stage.borrow_and_update())?;
            }
            // An error would mean that there can be no change any more.
            if self.policies.has_changed().unwrap_or(false) {
                let policies = Arc::clone(&self.policies.borrow_and_update());
                self.session.follow_policies(policies, &mut self.output);
            }
            self.take_frames(now);
            self.give_up_what_is_due(now)?;
            if self.session.is_ending() && self.inflight.is_empty() {
                self.session.part(&mut self.output);
                if self.output.is_empty() {
                    return Ok(());
                }
            }
            self.set_timer(timer.as_mut(), now);
            let wants_input = self.starved && !self.session.is_ending();
            if wants_input {
                self.input.make_room();
            }
            // In this order, all that is ready goes out in one write, and goes out before more is read. The last
            // four arms only wake the task up: what they wait for is asked for at the top of each turn.
            tokio::select! {
                biased;
                Some((stub, mut decisions)) = self.inflight.next() => self.was_decided(&stub, &mut decisions),
                written = self.writer.write_buf(&mut self.output), if !self.output.is_empty() => {
                    self.was_written(written?, now)?;
                }
                read = self.reader.read_buf(self.input.bytes()), if wants_input => self.was_read(read?),
                Ok(()) = self.policies.changed() => self.policies.mark_changed(),
                changed = stage.changed() => changed.map(|()| stage.mark_changed()).map_err(|_| Lost::Cut)?,
                () = &mut timer, if !timer.is_elapsed() => {}
                () = ready(()), if self.yields => {}
            }
        }
    }

    /// Takes whole frames from the input, as long as there is room for their answers and the turn lasts.
    fn take_frames(&mut self, now: Instant) {
        let bytes_before = self.input.len();
        let (mut items, mut frames) = (0, 0);
        (self.starved, self.yields) = (false, false);
        SCRATCH.with_borrow_mut(|scratch| {
            while !self.starved && !self.yields && self.has_room() {
                let (input, output) = (self.input.bytes(), &mut self.output);
                match self.session.receive(input, output, &mut scratch.items, self.arrived) {
                    Ok(Step::Incomplete) => self.starved = true,
                    Ok(Step::Handled) => {}
                    Ok(Step::Check(request)) => {
                        items += request.batch.items().len();
                        self.decide(request, scratch);
                    }
                    Err(violation) => self.log(&violation),
                }
                frames += 1;
                self.yields = !self.starved && (items >= TURN_ITEMS_MAX || frames >= TURN_FRAMES_MAX);
            }
        });
        if self.session.is_greeted() || self.session.is_ending() {
            self.timeouts.greeted();
        }
        let is_cut_off = self.starved && !self.input.is_empty() && !self.session.is_ending();
        self.timeouts.awaits_rest(is_cut_off, self.input.len() < bytes_before, now);
    }

    /// Whether a frame may be taken. Where the credit is just used up one more is: it is a PING, which must not
    /// wait for replies, unless the client overdraws its credit.
    fn has_room(&self) -> bool {
        self.inflight.len() + self.unwritten <= self.session.inflight_max()
            && self.output.len() < OUTPUT_BYTES_MAX
    }

    fn decide(&mut self, request: Request, scratch: &mut Scratch) {
        match self.store {
            Store::Memory(memory) => {
                scratch.decisions.clear();
                memory.decide(&request.batch, &mut scratch.decisions);
                self.session.reply(&request, &mut scratch.decisions, &mut self.output);
                self.unwritten += 1;
                scratch.items = request.batch.check.items;
            }
            Store::Redis(redis) => self.inflight.push(Box::pin(ask(redis, request))),
        }
    }

    fn was_decided(&mut self, stub: &Stub, decisions: &mut [Decision]) {
        self.session.reply_late(stub, decisions, &mut self.output);
        self.unwritten += 1;
        self.timeouts.active(Instant::now());
    }

    fn was_written(&mut self, count: usize, now: Instant) -> io::Result<()> {
        self.timeouts.wrote(now);
        if self.output.is_empty() {
            self.unwritten = 0;
        }
        if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    fn was_read(&mut self, count: usize) {
        if count == 0 {
            self.session.end();
            return;
        }
        self.arrived = Instant::now();
        self.timeouts.active(self.arrived);
        self.input.was_read(count);
    }

    /// Acts on deadlines that have passed.
    fn give_up_what_is_due(&mut self, now: Instant) -> Result<(), Lost> {
        let is_busy = !self.inflight.is_empty() || !self.output.is_empty();
        while let Some(due) = self.timeouts.due(now) {
            match due {
                Due::Write => return Err(Lost::WriteTimeout),
                Due::Hello => self.time_out(Violation::HelloTimeout),
                Due::Frame => self.time_out(Violation::FrameTimeout),
                Due::Quiet if is_busy => {}
                Due::Quiet => self.release(),
                Due::Idle if is_busy => self.timeouts.active(now),
                Due::Idle => self.session.go_away(GoAwayReason::Idle, &mut self.output),
            }
        }
        Ok(())
    }

    fn time_out(&mut self, violation: Violation) {
        let violation = self.session.time_out(violation, self.input.bytes());
        self.log(&violation);
    }

    /// A client that said HELLO is somebody's; what never did may be anything that scans ports.
    fn log(&self, violation: &Violation) {
        if self.session.is_greeted() && self.session.pace().is_due() {
            tracing::warn!("closed for a protocol error: {violation}");
        } else {
            tracing::debug!("closed for a protocol error: {violation}");
        }
    }

    /// Gives back what an idle connection does not need.
    fn release(&mut self) {
        self.input.release();
        self.output = BytesMut::new();
    }

    /// Acts on a stage of the shutdown.
    fn follow(&mut self, stage: Stage) -> Result<(), Lost> {
        match stage {
            Stage::Serving => {}
            Stage::Leaving => self.session.announce_shutdown(&mut self.output),
            Stage::Finishing => self.session.go_away(GoAwayReason::Shutdown, &mut self.output),
            Stage::Cut => return Err(Lost::Cut),
        }
        Ok(())
    }

    /// Sets the timer where it would ring too late. Ringing too early costs less than being set at each frame.
    fn set_timer(&mut self, timer: Pin<&mut Sleep>, now: Instant) {
        self.timeouts.awaits_write(!self.output.is_empty(), now);
        if let Some(next) = self.timeouts.next()
            && (timer.is_elapsed() || next < timer.deadline())
        {
            timer.reset(next);
        }
    }
}

/// Lets Redis decide a batch.
async fn ask(redis: &RedisStore, mut request: Request) -> (Stub, Vec<Decision>) {
    let stub = request.stub();
    let decisions = redis.decide(request.batch).await;
    (stub, decisions)
}

#[cfg(test)]
mod tests;
