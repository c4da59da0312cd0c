//! What callers and a connection's task share: the queue from one to the other, and the outcomes on their way back.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
    time::Instant,
};

use tollgate_protocol::{check::CheckEncoder, hello::HelloOk, limits::ITEMS_DEFAULT};

use crate::{
    request::Request,
    slots::{Done, Outcome, SlotId, Slots},
    sync::Mutex,
    waiting::{Size, Waiting},
};

/// Most requests that wait for one connection when a call comes.
const WAITING_MAX: usize = 64 * ITEMS_DEFAULT;

/// The way to a live connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The most that a call may take.
    frame: Size,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Waiting,
    /// Requests that the task has taken over and not sent.
    ready: usize,
    slots: Slots,
    rest: Rest,
    /// Of the task, where it waits for a call.
    task: Option<Waker>,
    closed: bool,
}

/// What the connection's task rests for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It does not, and will look at the queue by itself.
    #[default]
    Awake,
    /// For any call: it could be sent at once.
    UntilCall,
    /// It cannot send: only for a call that expires before this time.
    Until(Instant),
}

impl Rest {
    fn ends_for(self, deadline: Instant) -> bool {
        match self {
            Self::Awake => false,
            Self::UntilCall => true,
            Self::Until(time) => deadline < time,
        }
    }
}

/// Why a call was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The connection is no longer used.
    Closed,
    /// This many requests wait already.
    Full(usize),
}

impl Link {
    /// The link of a connection whose frames have these bounds.
    pub(crate) fn new(hello: &HelloOk) -> Self {
        let whole = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let head = CheckEncoder::default().payload_bytes_max();
        let bytes_max = whole(hello.frame_bytes_max).saturating_sub(head);
        let frame = Size { requests: whole(hello.items_max), bytes_max };
        Self { frame, state: Mutex::new(State::default()) }
    }

    /// The most that a call may take: it travels in one frame.
    pub(crate) fn frame(&self) -> Size {
        self.frame
    }

    /// Queues a call of one request, whose caller is woken by `caller`.
    pub(crate) fn push(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        caller: &Waker,
    ) -> Result<SlotId, PushError> {
        let caller = caller.clone();
        self.push_with(deadline, |state| {
            let slot = state.slots.open(Some(caller));
            state.waiting.push_request(request, slot, deadline);
            slot
        })
    }

    /// Queues calls that were put together elsewhere, and returns their slots. They stay in `calls` where this
    /// fails.
    pub(crate) fn push_all(&self, calls: &mut Waiting, deadline: Instant) -> Result<Vec<SlotId>, PushError> {
        self.push_with(deadline, |state| {
            let slots = calls.open_slots(&mut state.slots);
            state.waiting.append(calls);
            slots
        })
    }

    fn push_with<T>(&self, deadline: Instant, add: impl FnOnce(&mut State) -> T) -> Result<T, PushError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        let count = state.waiting.len() + state.ready;
        if count >= WAITING_MAX {
            return Err(PushError::Full(count));
        }
        let added = add(&mut state);
        let mut task = None;
        if state.rest.ends_for(deadline) {
            state.rest = Rest::Awake;
            task = state.task.take();
        }
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
        Ok(added)
    }

    /// Moves what was queued to the end of `ready`.
    pub(crate) fn pull(&self, ready: &mut Waiting) {
        let mut state = self.state.lock();
        state.rest = Rest::Awake;
        ready.append(&mut state.waiting);
    }

    /// Rests, unless something that ends the rest is queued already. `ready` requests are with the task.
    pub(crate) fn rest(&self, rest: Rest, ready: usize) -> bool {
        let mut state = self.state.lock();
        state.ready = ready;
        let may_rest = state.waiting.first_deadline().is_none_or(|deadline| !rest.ends_for(deadline));
        if may_rest {
            state.rest = rest;
        }
        may_rest
    }

    /// Waits for a call that ends the rest.
    pub(crate) async fn called(&self) {
        poll_fn(|context| self.poll_called(context)).await;
    }

    fn poll_called(&self, context: &Context<'_>) -> Poll<()> {
        let task = context.waker().clone();
        let mut state = self.state.lock();
        let before = match state.rest {
            Rest::Awake => state.task.take(),
            _ => state.task.replace(task),
        };
        let called = state.rest == Rest::Awake;
        drop(state);
        // Outside of the lock, as dropping a waker may drop a task.
        drop(before);
        if called { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Leaves outcomes for their callers and wakes them. `callers` is room to work in.
    pub(crate) fn answer(&self, done: &mut Vec<Done>, callers: &mut Vec<Waker>) {
        if done.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        callers.extend(done.drain(..).filter_map(|done| state.slots.answer(done)));
        drop(state);
        callers.drain(..).for_each(Waker::wake);
    }

    /// Takes the outcome of the caller's call, or has `caller` woken when it is there.
    pub(crate) fn take(&self, slot: SlotId, caller: &Waker) -> Poll<Outcome> {
        let mut state = self.state.lock();
        let taken = state.slots.take(slot, caller);
        drop(state);
        match taken {
            Ok(outcome) => Poll::Ready(outcome),
            Err(_replaced) => Poll::Pending,
        }
    }

    /// Notes that a caller no longer waits.
    pub(crate) fn leave(&self, slot: SlotId) {
        let mut state = self.state.lock();
        let left = state.slots.leave(slot);
        drop(state);
        drop(left);
    }

    /// Takes no more calls; moves what was queued to the end of `ready`.
    pub(crate) fn close(&self, ready: &mut Waiting) {
        let mut state = self.state.lock();
        state.closed = true;
        ready.append(&mut state.waiting);
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom_tests;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
