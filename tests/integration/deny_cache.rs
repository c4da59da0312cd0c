//! Denials that a server remembers: Redis is not asked for them, and whoever may pass again is told so.

use tollgate_client::{Client, Decision, PolicyRef, Reason};

use crate::harness::{REDIS, RedisServer, Server, Setup, eventually_some};

/// Policies under which nothing drains while a test runs.
const SLOW: &[(&str, &str)] =
    &[("api", "token-bucket:5/1d"), ("both", "sliding-window:9/7d + token-bucket:5/1d")];

struct Subject {
    server: Server,
    client: Client,
    policy: PolicyRef,
}

impl Subject {
    async fn start(redis: &RedisServer, policy: &str, deny_cache_entries: usize) -> Self {
        let mut setup = Setup { policies: SLOW, ..Setup::on_redis(&redis.url()) };
        if let Some(redis) = &mut setup.redis {
            redis.deny_cache_entries = deny_cache_entries;
        }
        let server = Server::start_ready(setup).await;
        let client = server.client().await;
        let policy = client.policy(policy).expect("a policy of the server");
        Self { server, client, policy }
    }

    async fn check(&self, key: &str, cost: u64) -> Decision {
        let decision = self.client.check(&self.policy, key, cost).await.expect("an answer");
        assert!(!decision.degraded, "{decision:?}");
        decision
    }

    /// Asks for a key without a token left until that is answered from memory.
    async fn learn(&self, key: &str) {
        eventually_some("the denial is remembered", async || {
            let decision = self.check(key, 1).await;
            assert!(!decision.allowed, "{decision:?}");
            (decision.reason == Reason::DeniedCached).then_some(())
        })
        .await;
    }
}

/// Calls of the script so far.
fn calls(redis: &RedisServer) -> usize {
    let info: String = redis.command(&["INFO", "commandstats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_of_a_hot_key_do_not_reach_redis() {
    let redis = RedisServer::start();
    for name in ["api", "both"] {
        let subject = Subject::start(&redis, name, 1 << 16).await;
        assert!(subject.check("hot", 5).await.allowed);
        subject.learn("hot").await;
        let (before, mut cached) = (calls(&redis), 0);
        for _ in 0..200 {
            let decision = subject.check("hot", 1).await;
            assert!(!decision.allowed);
            assert_eq!((decision.remaining, decision.retry_after.is_some()), (Some(0), true));
            cached += usize::from(decision.reason == Reason::DeniedCached);
        }
        assert!(cached > 0);
        assert_eq!(calls(&redis) - before, 200 - cached, "a check that is not remembered is one call");
        let counted = subject
            .server
            .metric(&format!("tollgate_decisions_total{{policy=\"{name}\",reason=\"denied_cached\""));
        assert!(counted >= cached as f64, "{counted} of {cached}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_reach_redis_where_the_cache_is_off() {
    let redis = RedisServer::start();
    let subject = Subject::start(&redis, "api", 0).await;
    assert!(subject.check("hot", 5).await.allowed);
    let before = calls(&redis);
    for _ in 0..50 {
        assert_eq!(subject.check("hot", 1).await.reason, Reason::Denied);
    }
    assert_eq!(calls(&redis) - before, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_and_refund_are_seen_at_once_by_the_server_that_did_them() {
    let subject = Subject::start(&REDIS, "api", 1 << 16).await;
    for turn in 0..20 {
        let key = format!("deny-cache-own-{turn}");
        assert!(subject.check(&key, 5).await.allowed);
        subject.learn(&key).await;
        subject.client.refund(&subject.policy, &key, 1).await.expect("an answer");
        assert!(subject.check(&key, 1).await.allowed);
        subject.learn(&key).await;
        subject.client.reset(&subject.policy, &key).await.expect("an answer");
        assert!(subject.check(&key, 1).await.allowed);
    }
}

/// Callers that never stop asking do not bring back a denial that a reset has ended.
#[tokio::test(flavor = "multi_thread")]
async fn reset_is_seen_at_once_while_others_ask_for_the_key() {
    let subject = Subject::start(&REDIS, "api", 1 << 16).await;
    let key = "deny-cache-busy";
    let ask = |client: Client, policy: PolicyRef| async move {
        while client.check(&policy, key, 5).await.is_ok() {}
    };
    let others: Vec<_> =
        (0..8).map(|_| tokio::spawn(ask(subject.client.clone(), subject.policy.clone()))).collect();
    for turn in 0..200 {
        subject.client.reset(&subject.policy, key).await.expect("an answer");
        let decision = subject.check(key, 5).await;
        // A peek is always asked of Redis.
        let peek = subject.client.peek(&subject.policy, key, 5).await.expect("an answer");
        assert!(
            decision.allowed || !peek.allowed,
            "turn {turn}: nobody took what the reset gave: {decision:?}"
        );
    }
    others.iter().for_each(|other| other.abort());
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_through_another_server_is_seen_before_the_denial_would_end() {
    let redis = RedisServer::start();
    let subject = Subject::start(&redis, "api", 1 << 16).await;
    let other = Subject::start(&redis, "api", 1 << 16).await;
    assert!(subject.check("user:1", 5).await.allowed);
    subject.learn("user:1").await;
    other.client.reset(&other.policy, "user:1").await.expect("an answer");
    assert!(other.check("user:1", 1).await.allowed, "nothing is remembered there");
    // The denial itself holds for hours.
    eventually_some("the reset is seen", async || subject.check("user:1", 1).await.allowed.then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_as_long_as_a_remembered_denial_says_passes() {
    let policies = &[("bucket", "token-bucket:7/1s,burst=3"), ("window", "sliding-window:3/700ms")];
    let setup = Setup { policies, ..Setup::on_redis(&REDIS.url()) };
    let server = Server::start_ready(setup).await;
    let client = server.client().await;
    for name in ["bucket", "window"] {
        let policy = client.policy(name).expect("a policy of the server");
        let mut cached = 0;
        for _ in 0..4 {
            client.take_up_to(&policy, "deny-cache-waits", 3).await.expect("an answer");
            client.check(&policy, "deny-cache-waits", 2).await.expect("an answer");
            let denied = client.check(&policy, "deny-cache-waits", 2).await.expect("an answer");
            assert!(!denied.allowed, "{name}: {denied:?}");
            cached += u32::from(denied.reason == Reason::DeniedCached);
            tokio::time::sleep(denied.retry_after.expect("it passes some time")).await;
            let decision = client.check(&policy, "deny-cache-waits", 2).await.expect("an answer");
            assert!(decision.allowed, "{name}: {denied:?} {decision:?}");
        }
        assert!(cached > 0, "{name}: some were remembered");
    }
}
