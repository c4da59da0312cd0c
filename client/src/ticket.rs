//! What a caller holds of a call that it has handed over.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    link::Link,
    slots::{Outcome, SlotId},
};

/// A call on a connection. Its outcome comes for certain: at the latest when the connection ends.
#[derive(Debug)]
pub(crate) struct Ticket {
    link: Arc<Link>,
    /// `None` once the outcome was taken.
    slot: Option<SlotId>,
}

impl Ticket {
    pub(crate) fn new(link: Arc<Link>, slot: SlotId) -> Self {
        Self { link, slot: Some(slot) }
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Some(slot) = self.slot else { return Poll::Pending };
        let outcome = self.link.take(slot, context.waker());
        if outcome.is_ready() {
            self.slot = None;
        }
        outcome
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.link.leave(slot);
        }
    }
}
