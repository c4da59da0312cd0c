//! Which calls wake the connection's task.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::poll_immediate;
use tokio::sync::oneshot;

use super::*;
use crate::{
    pending::Waiter,
    policy::{PolicyRef, Registry},
};

fn policy() -> PolicyRef {
    let limit: tollgate_protocol::limit::Limit = "token-bucket:1/1s".parse().unwrap();
    Arc::new(Registry::new(1)).inline(limit.into()).unwrap()
}

fn push(link: &Link, deadline: Instant) -> Result<(), PushError> {
    let call = Call { waiter: Waiter::One(oneshot::channel().0), deadline };
    link.push(&Request::check(&policy(), "key"), call)
}

#[tokio::test]
async fn a_task_that_can_send_is_woken_once_for_all_calls() {
    let (link, now) = (Link::default(), Instant::now());
    assert!(link.rest(Rest::UntilCall, 0));
    push(&link, now).unwrap();
    push(&link, now).unwrap();
    link.called().await;
    assert!(poll_immediate(pin!(link.called())).await.is_none(), "the second call found it awake");
    assert!(!link.rest(Rest::UntilCall, 0), "what came meanwhile is to be looked at first");
    let mut ready = Waiting::default();
    link.pull(&mut ready);
    assert_eq!(ready.len(), 2);
    assert!(link.rest(Rest::UntilCall, 0));
}

#[tokio::test]
async fn a_task_that_cannot_send_is_woken_only_for_what_expires_before_its_time() {
    let (link, now) = (Link::default(), Instant::now());
    let until = now + Duration::from_secs(1);
    assert!(link.rest(Rest::Until(until), 0));
    push(&link, until).unwrap();
    assert!(poll_immediate(pin!(link.called())).await.is_none());
    push(&link, now).unwrap();
    link.called().await;
    assert!(!link.rest(Rest::Until(until), 0));
}

#[test]
fn a_closed_link_takes_no_calls_and_hands_over_those_that_it_has() {
    let (link, now) = (Link::default(), Instant::now());
    push(&link, now).unwrap();
    let mut ready = Waiting::default();
    link.close(&mut ready);
    assert_eq!(ready.len(), 1);
    assert_eq!(push(&link, now), Err(PushError::Closed));
}

#[test]
fn a_full_link_refuses_calls() {
    let (link, now) = (Link::default(), Instant::now());
    assert!(link.rest(Rest::UntilCall, WAITING_MAX - 1));
    push(&link, now).unwrap();
    assert_eq!(push(&link, now), Err(PushError::Full(WAITING_MAX)));
}
