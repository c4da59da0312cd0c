//! Which calls wake the connection's task, and what becomes of a call whose caller or connection goes.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::{
    testing::{link, policy},
    *,
};
use crate::ticket::Ticket;

fn push(link: &Link, deadline: Instant) -> Result<SlotId, PushError> {
    link.push(&Request::check(&policy(), "key"), deadline, Waker::noop())
}

fn answer(link: &Link, slot: SlotId, outcome: Outcome) {
    link.answer(&mut vec![Done { slot, outcome }], &mut Vec::new());
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    fn poll<F: Future>(self: &Arc<Self>, future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(&Arc::clone(self).into()))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_task_that_can_send_is_woken_once_for_all_calls() {
    let (link, now, task) = (link(), Instant::now(), Arc::new(Wakes::default()));
    assert!(link.rest(Rest::UntilCall, 0));
    assert!(task.poll(link.called()).is_pending());
    push(&link, now).unwrap();
    push(&link, now).unwrap();
    assert_eq!(task.count(), 1, "the second call found it awake");
    assert!(task.poll(link.called()).is_ready());
    assert!(!link.rest(Rest::UntilCall, 0), "what came meanwhile is to be looked at first");
    let mut ready = Waiting::default();
    link.pull(&mut ready);
    assert_eq!(ready.len(), 2);
    assert!(link.rest(Rest::UntilCall, 0));
    assert!(task.poll(link.called()).is_pending());
}

#[test]
fn a_task_that_cannot_send_is_woken_only_for_what_expires_before_its_time() {
    let (link, now, task) = (link(), Instant::now(), Arc::new(Wakes::default()));
    let until = now + Duration::from_secs(1);
    assert!(link.rest(Rest::Until(until), 0));
    assert!(task.poll(link.called()).is_pending());
    push(&link, until).unwrap();
    assert!(task.poll(link.called()).is_pending());
    push(&link, now).unwrap();
    assert_eq!(task.count(), 1);
    assert!(task.poll(link.called()).is_ready());
    assert!(!link.rest(Rest::Until(until), 0));
}

#[test]
fn a_closed_link_takes_no_calls_and_hands_over_those_that_it_has() {
    let (link, now) = (link(), Instant::now());
    push(&link, now).unwrap();
    let mut ready = Waiting::default();
    link.close(&mut ready);
    assert_eq!(ready.len(), 1);
    assert_eq!(push(&link, now), Err(PushError::Closed));
}

#[test]
fn a_full_link_refuses_calls() {
    let (link, now) = (link(), Instant::now());
    assert!(link.rest(Rest::UntilCall, WAITING_MAX - 1));
    push(&link, now).unwrap();
    assert_eq!(push(&link, now), Err(PushError::Full(WAITING_MAX)));
}

#[test]
fn a_caller_is_woken_where_it_was_last_polled() {
    let (link, now) = (link(), Instant::now());
    let (first, second) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let slot = push(&link, now).unwrap();
    let mut ticket = Ticket::new(Arc::clone(&link), slot);
    assert!(first.poll(&mut ticket).is_pending());
    assert!(second.poll(&mut ticket).is_pending());
    answer(&link, slot, Outcome::NotExecuted);
    assert_eq!((first.count(), second.count()), (0, 1));
    assert_eq!(second.poll(&mut ticket), Poll::Ready(Outcome::NotExecuted));
}

#[test]
fn a_slot_is_used_again_only_when_nobody_has_it_any_more() {
    let (link, now, caller) = (link(), Instant::now(), Arc::new(Wakes::default()));
    let slot = push(&link, now).unwrap();
    drop(Ticket::new(Arc::clone(&link), slot));
    let other = push(&link, now).unwrap();
    assert_ne!(slot, other, "an outcome for the first is still to come");
    answer(&link, slot, Outcome::Many(Vec::new()));
    assert!(caller.poll(Ticket::new(Arc::clone(&link), other)).is_pending(), "it was for the one that left");

    let answered = push(&link, now).unwrap();
    assert_eq!(slot, answered);
    answer(&link, answered, Outcome::NotExecuted);
    assert_ne!(push(&link, now).unwrap(), answered, "the caller has not taken it");
    drop(Ticket::new(Arc::clone(&link), answered));
    assert_eq!(push(&link, now).unwrap(), answered);
}
