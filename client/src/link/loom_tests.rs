//! Every order in which callers and the connection's task can meet at a link. The comment of each model names the
//! break that it was seen to catch.

use std::{future::Future, pin::pin, sync::Arc, task::Waker};

use loom::{future::block_on, model, model::Builder, thread};

use super::{
    testing::{link, policy},
    *,
};
use crate::{error::CheckError, policy::PolicyRef, ticket::Ticket};

/// The caller of a call, whose outcome is to be told from others by the length of its key.
async fn call(link: Arc<Link>, policy: PolicyRef, key: &str) -> Result<Outcome, PushError> {
    let mut ticket = None;
    poll_fn(|context| match &mut ticket {
        None => {
            let request = Request::check(&policy, key);
            match link.push(&request, Instant::now(), context.waker()) {
                Ok(slot) => {
                    ticket = Some(Ticket::new(Arc::clone(&link), slot));
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        }
        Some(ticket) => pin!(ticket).poll(context).map(Ok),
    })
    .await
}

/// The outcome of a call of this key.
fn outcome(key_bytes: usize) -> Outcome {
    Outcome::Failed(CheckError::BadKey { key_bytes })
}

/// The connection's task, until it has answered this many calls.
fn serve(link: &Link, calls: usize) {
    let (mut ready, mut done, mut served) = (Waiting::default(), Vec::new(), 0);
    while served < calls {
        link.pull(&mut ready);
        while let Some((call, _, key)) = ready.take_front() {
            done.push(Done { slot: call.slot, outcome: outcome(key.len()) });
            served += 1;
        }
        link.answer(&mut done, &mut Vec::new());
        if served < calls && link.rest(Rest::UntilCall, 0) {
            block_on(link.called());
        }
    }
}

/// Caught: a rest without a look at the queue; a wait for calls without a look at whether one came since.
#[test]
fn each_call_reaches_the_task_and_has_its_own_outcome() {
    // All orders of three threads would take hours. A thread is interrupted at most this often, wherever that may be.
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (link, policy) = (link(), policy());
        let other = thread::spawn({
            let (link, policy) = (Arc::clone(&link), policy.clone());
            move || block_on(call(link, policy, "1"))
        });
        let task = thread::spawn({
            let link = Arc::clone(&link);
            move || serve(&link, 2)
        });
        assert_eq!(block_on(call(link, policy, "22")), Ok(outcome(2)));
        assert_eq!(other.join().unwrap(), Ok(outcome(1)));
        task.join().unwrap();
    });
}

/// Caught: a link that closes in two steps, first taking what is queued.
#[test]
fn a_call_is_refused_by_a_link_that_closes_or_handed_over() {
    model(|| {
        let (link, policy) = (link(), policy());
        let task = thread::spawn({
            let link = Arc::clone(&link);
            move || {
                let (mut ready, mut done) = (Waiting::default(), Vec::new());
                link.close(&mut ready);
                ready.take_all(|slot| done.push(Done { slot, outcome: Outcome::NotExecuted }));
                link.answer(&mut done, &mut Vec::new());
            }
        });
        let called = block_on(call(link, policy, "1"));
        assert!(matches!(called, Ok(Outcome::NotExecuted) | Err(PushError::Closed)));
        task.join().unwrap();
    });
}

/// Caught: an outcome that is looked for under one lock, and its waker left under the next; a waker that is not
/// replaced.
#[test]
fn a_caller_that_polls_again_is_woken() {
    model(|| {
        let (link, policy) = (link(), policy());
        let slot = link.push(&Request::check(&policy, "1"), Instant::now(), Waker::noop()).unwrap();
        let task = thread::spawn({
            let link = Arc::clone(&link);
            move || serve(&link, 1)
        });
        assert_eq!(block_on(Ticket::new(link, slot)), outcome(1));
        task.join().unwrap();
    });
}

/// Caught: a slot that is free as soon as its caller has gone.
#[test]
fn a_caller_that_goes_leaves_its_outcome_to_nobody() {
    model(|| {
        let (link, policy) = (link(), policy());
        let task = thread::spawn({
            let link = Arc::clone(&link);
            move || serve(&link, 2)
        });
        let slot = link.push(&Request::check(&policy, "1"), Instant::now(), Waker::noop()).unwrap();
        drop(Ticket::new(Arc::clone(&link), slot));
        assert_eq!(block_on(call(link, policy, "22")), Ok(outcome(2)));
        task.join().unwrap();
    });
}
