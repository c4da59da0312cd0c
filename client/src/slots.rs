//! Where the outcomes of calls are left for their callers. A slot is used again and again, so that a call takes no
//! allocation.

use std::task::Waker;

use crate::{decision::Decision, error::CheckError};

/// What callers get.
pub(crate) type Answer = Result<Decision, CheckError>;

/// What becomes of a call on one connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The answer to its one request.
    One(Answer),
    /// The answers to its requests, in order.
    Many(Vec<Answer>),
    /// Provably not executed: may be sent on another connection.
    NotExecuted,
    /// Each request gets this.
    Failed(CheckError),
}

/// The outcome of the call that waits at a slot.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) slot: SlotId,
    pub(crate) outcome: Outcome,
}

/// A slot. It is a call's from [`Slots::open`] until the outcome has come and the caller has taken it or gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId(u32);

/// The slots of one connection.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<SlotId>,
}

/// The state of a slot.
#[derive(Debug)]
pub(crate) enum Slot {
    /// No call has it.
    Free,
    /// The caller waits; it is yet to say how to wake it where there is no waker.
    Waiting(Option<Waker>),
    /// The caller is gone; an outcome frees the slot.
    Left,
    /// The outcome is there; its caller frees the slot.
    Done(Outcome),
}

impl Slots {
    /// A slot for a call, and how to wake its caller where that is known.
    pub(crate) fn open(&mut self, waker: Option<Waker>) -> SlotId {
        let slot = Slot::Waiting(waker);
        if let Some(id) = self.free.pop() {
            self.slots[id.index()] = slot;
            return id;
        }
        // Each slot is that of a call, which takes more memory than 2^32 of them could have.
        let id = SlotId(self.slots.len() as u32);
        self.slots.push(slot);
        id
    }

    /// Takes the outcome and frees the slot. Where there is none the caller waits, to be woken by `waker`.
    ///
    /// # Errors
    /// A waker that is no longer needed. It is to be dropped outside of any lock: that may drop a task.
    pub(crate) fn take(&mut self, id: SlotId, waker: &Waker) -> Result<Outcome, Option<Waker>> {
        let slot = &mut self.slots[id.index()];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Done(outcome) => {
                self.free.push(id);
                Ok(outcome)
            }
            Slot::Waiting(Some(known)) if known.will_wake(waker) => {
                *slot = Slot::Waiting(Some(known));
                Err(None)
            }
            Slot::Waiting(known) => {
                *slot = Slot::Waiting(Some(waker.clone()));
                Err(known)
            }
            // Whoever has left or has the outcome does not come again.
            slot @ (Slot::Free | Slot::Left) => {
                self.slots[id.index()] = slot;
                Err(None)
            }
        }
    }

    /// Notes that the caller is gone. What it leaves is to be dropped outside of any lock.
    pub(crate) fn leave(&mut self, id: SlotId) -> Slot {
        let slot = &mut self.slots[id.index()];
        let leave = match slot {
            Slot::Waiting(_) => Slot::Left,
            _ => {
                self.free.push(id);
                Slot::Free
            }
        };
        std::mem::replace(slot, leave)
    }

    /// Leaves an outcome, the first and only one; returns whom to wake.
    pub(crate) fn answer(&mut self, done: Done) -> Option<Waker> {
        let slot = &mut self.slots[done.slot.index()];
        if let Slot::Waiting(waker) = slot {
            let waker = waker.take();
            *slot = Slot::Done(done.outcome);
            return waker;
        }
        *slot = Slot::Free;
        self.free.push(done.slot);
        None
    }
}

impl SlotId {
    fn index(self) -> usize {
        self.0 as usize
    }
}
