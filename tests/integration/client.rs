//! The client crate against a real server.

use std::time::Duration;

use tollgate::{clock::Clock, server::ServerConfig};
use tollgate_client::{CheckError, Client, Reason, Request};
use tollgate_protocol::varint::VALUE_MAX;

use crate::{
    harness::{PATIENCE, Server, Setup, server::limits},
    trace::START_US,
};

/// A server whose time stands still.
fn frozen() -> Setup {
    Setup { clock: Clock::Manual(std::sync::Arc::new(START_US.into())), ..Setup::default() }
}

#[tokio::test]
async fn every_operation_is_decided_as_asked() {
    let server = Server::start(frozen()).await;
    let client = server.client().await;
    for name in ["api", "window"] {
        let policy = client.policy(name).expect("a policy of the server");
        let told = async |request: Request<'_>| {
            let decision = client.call(request).await.expect("an answer");
            (decision.allowed, decision.reason, decision.granted, decision.remaining)
        };
        let key = "user:1";
        assert_eq!(told(Request::check(&policy, key).cost(3)).await, (true, Reason::Ok, 3, Some(2)));
        assert_eq!(told(Request::check(&policy, key).cost(3)).await, (false, Reason::Denied, 0, Some(2)));
        assert_eq!(told(Request::peek(&policy, key).cost(2)).await, (true, Reason::Ok, 2, Some(2)));
        assert_eq!(
            told(Request::take_up_to(&policy, key).cost(9)).await,
            (true, Reason::Partial, 2, Some(0))
        );
        assert_eq!(told(Request::force(&policy, key).cost(2)).await, (true, Reason::Ok, 2, Some(0)));
        assert_eq!(told(Request::refund(&policy, key).cost(3)).await, (true, Reason::Ok, 0, Some(1)));
        assert_eq!(told(Request::reset(&policy, key)).await, (true, Reason::Ok, 0, Some(5)));
        let over = told(Request::check(&policy, key).cost(VALUE_MAX)).await;
        assert_eq!(over, (false, Reason::CostOverLimit, 0, Some(5)));
        let huge = client.call(Request::check(&policy, key).cost(VALUE_MAX + 1)).await;
        assert_eq!(huge, Err(CheckError::BadCost { cost: VALUE_MAX + 1 }));
    }
}

#[tokio::test]
async fn denial_names_the_limit_and_the_time() {
    let server = Server::start(frozen()).await;
    let client = server.client().await;
    let policy = client.define(limits("token-bucket:100/1m + token-bucket:2/1h")).expect("a definition");
    assert!(client.check(&policy, "user:1", 2).await.expect("an answer").allowed);
    let denied = client.check(&policy, "user:1", 1).await.expect("an answer");
    assert_eq!((denied.limit_index, denied.limit.map(|limit| limit.ceiling())), (Some(1), Some(2)));
    assert_eq!(denied.retry_after, Some(Duration::from_secs(1_800)));
    let never = client.check(&policy, "user:1", 3).await.expect("an answer");
    assert_eq!((never.reason, never.retry_after), (Reason::CostOverLimit, None));
}

#[tokio::test]
async fn linked_requests_pass_together_or_not_at_all() {
    let server = Server::start(frozen()).await;
    let client = server.client().await;
    let (api, window) = (client.policy("api").expect("a policy"), client.policy("window").expect("a policy"));
    let both = [Request::check(&api, "a").cost(3).linked(), Request::check(&window, "a").cost(2)];
    let answers = async || {
        let answers = client.call_many(&both).await;
        answers.into_iter().map(|answer| answer.expect("an answer").reason).collect::<Vec<_>>()
    };
    assert_eq!(answers().await, [Reason::Ok, Reason::Ok]);
    assert_eq!(answers().await, [Reason::Denied, Reason::Linked]);
    let left = client.peek(&window, "a", 1).await.expect("an answer").remaining;
    assert_eq!(left, Some(3), "the one that would have passed was charged nothing");
}

/// Calls of many tasks share frames; a client that could not be batched would need a frame for each.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_together_share_frames() {
    let server = Server::start(frozen()).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy");
    let tasks: Vec<_> = (0..1_000)
        .map(|number| {
            let (client, policy) = (client.clone(), policy.clone());
            tokio::spawn(async move { client.check(&policy, format!("user:{number}"), 1).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("no panic").expect("an answer").allowed);
    }
    assert_eq!(server.metric("tollgate_batch_items_sum"), 1_000.0);
    let frames = server.metric("tollgate_batch_items_count");
    assert!(frames <= 500.0, "1,000 checks in {frames} frames");
}

#[tokio::test]
async fn client_keeps_to_the_bounds_that_the_server_announces() {
    let connection =
        ServerConfig { items_max: 3, inflight_max: 1, frame_bytes_max: 4_096, ..ServerConfig::default() };
    let server = Server::start(Setup { connection, ..frozen() }).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy");
    let keys: Vec<_> = (0..100).map(|number| format!("{number}{}", "x".repeat(1_000))).collect();
    for answer in client.check_many(&policy, &keys, 1).await {
        assert!(answer.expect("an answer").allowed);
    }
    assert!(server.metric("tollgate_batch_items_count") >= 34.0);
    assert_eq!(server.metric("tollgate_protocol_errors_total"), 0.0);
}

#[tokio::test]
async fn key_and_policy_mistakes_are_told_before_anything_is_sent() {
    let server = Server::start(frozen()).await;
    let (client, other) = (server.client().await, server.client().await);
    let policy = client.policy("api").expect("a policy");
    let bad_key = client.check(&policy, "", 1).await;
    assert_eq!(bad_key, Err(CheckError::BadKey { key_bytes: 0 }));
    let foreign = other.check(&policy, "a", 1).await;
    assert!(matches!(foreign, Err(CheckError::ForeignPolicy { .. })));
    let unknown = client.policy("nobody").expect_err("no such policy").to_string();
    assert!(unknown.contains("nobody") && unknown.contains("api"), "{unknown}");
    assert_eq!(server.metric("tollgate_batch_items_count"), 0.0);
}

/// A server goes, another stays: calls go to the other, and none is lost or charged twice.
#[tokio::test(flavor = "multi_thread")]
async fn calls_move_to_another_server_when_theirs_leaves() {
    let servers = [Server::start(frozen()).await, Server::start(frozen()).await];
    let names = servers.each_ref().map(|server| server.address.to_string());
    let client = Client::builder().servers(names).deadline(PATIENCE).connect().await.expect("both");
    let policy = client.policy("api").expect("a policy");
    let [leaving, staying] = servers;
    let stopping = tokio::spawn(leaving.stop());
    for round in 0..50 {
        let keys: Vec<_> = (0..20).map(|number| format!("{round}:{number}")).collect();
        for answer in client.check_many(&policy, &keys, 1).await {
            let decision = answer.expect("no check is lost");
            assert_eq!(decision.remaining, Some(4), "and none is charged twice");
        }
    }
    stopping.await.expect("it stops");
    assert!(client.check(&policy, "a", 1).await.expect("an answer").allowed);
    drop(staying);
}
