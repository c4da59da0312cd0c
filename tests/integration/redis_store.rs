//! A server on one Redis: what users see when it is down, hangs, forgets, or asks who they are.

use std::time::Duration;

use tollgate::policy::OnUnavailable;
use tollgate_client::{Client, PolicyRef, Reason};

use crate::harness::{
    Login, RedisServer, Security, Server, Setup, Tls, eventually, eventually_some, http_get,
};

/// A policy from which nothing drains while a test runs.
const SLOW: &[(&str, &str)] = &[("api", "token-bucket:5/1d")];

fn impatient(url: &str) -> Setup {
    let mut setup = Setup { policies: SLOW, ..Setup::on_redis(url) };
    if let Some(redis) = &mut setup.redis {
        redis.timeout = Duration::from_millis(100);
    }
    setup
}

/// Asks until the store decides.
async fn decided(client: &Client, policy: &PolicyRef, key: &str) {
    eventually_some("the store decides", async || {
        let decision = client.peek(policy, key, 1).await.expect("an answer");
        (!decision.degraded).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_starts_without_its_store_and_finds_it_later() {
    let mut redis = RedisServer::start();
    redis.kill();
    for (verdict, allowed) in [(OnUnavailable::Deny, false), (OnUnavailable::Allow, true)] {
        let server = Server::start(Setup { on_unavailable: verdict, ..impatient(&redis.url()) }).await;
        let (status, text) = http_get(server.admin, "/readyz").await;
        assert!(status == 503 && text.contains("Redis"), "{text}");
        let client = server.client().await;
        let policy = client.policy("api").expect("a policy of the server");
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        let told = (decision.allowed, decision.degraded, decision.reason, decision.remaining);
        assert_eq!(told, (allowed, true, Reason::Unavailable, None));

        redis.restart();
        server.ready().await;
        decided(&client, &policy, "user:1").await;
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        assert_eq!((decision.allowed, decision.remaining), (true, Some(4)), "the outage charged nothing");
        redis.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_hung_redis_are_ambiguous_and_not_executed_when_it_wakes_up() {
    let redis = RedisServer::start();
    let server = Server::start_ready(impatient(&redis.url())).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    decided(&client, &policy, "user:1").await;

    redis.pause();
    let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
    assert_eq!((decision.allowed, decision.degraded, decision.reason), (false, true, Reason::Ambiguous));
    redis.resume();
    decided(&client, &policy, "user:1").await;
    let peek = client.peek(&policy, "user:1", 1).await.expect("an answer");
    assert_eq!(peek.remaining, Some(5), "what was given up is not charged later");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_goes_on_after_redis_was_killed_and_came_back() {
    let mut redis = RedisServer::start();
    let server = Server::start_ready(impatient(&redis.url())).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    redis.kill();
    eventually_some("the outage is seen", async || {
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        decision.degraded.then_some(())
    })
    .await;
    assert_eq!(http_get(server.admin, "/healthz").await.0, 200, "alive though not ready");
    redis.restart();
    decided(&client, &policy, "user:1").await;
    server.ready().await;
    assert!(server.metric("tollgate_store_failures_total") >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_redis_forgot_are_sent_again_and_charge_once() {
    let redis = RedisServer::start();
    let server = Server::start_ready(Setup { policies: SLOW, ..Setup::on_redis(&redis.url()) }).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    for used in 1..=5 {
        redis.command::<()>(&["SCRIPT", "FLUSH"]);
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        let told = (decision.allowed, decision.degraded, decision.remaining);
        assert_eq!(told, (true, false, Some(5 - used)));
    }
    assert!(!client.check(&policy, "user:1", 1).await.expect("an answer").allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_in_redis_after_the_limits_have_reset() {
    let policies =
        &[("bucket", "token-bucket:100/1s"), ("window", "sliding-window:100/500ms + token-bucket:9/1s")];
    let redis = RedisServer::start();
    let server = Server::start_ready(Setup { policies, ..Setup::on_redis(&redis.url()) }).await;
    let client = server.client().await;
    for name in ["bucket", "window"] {
        let policy = client.policy(name).expect("a policy of the server");
        let keys: Vec<_> = (0..500).map(|key| format!("user:{key}")).collect();
        for answer in client.check_many(&policy, &keys, 1).await {
            assert!(answer.expect("an answer").allowed);
        }
    }
    let keys = redis.command::<Vec<String>>(&["KEYS", "*"]);
    assert!(!keys.is_empty());
    for key in keys {
        assert!(redis.command::<i64>(&["PTTL", &key]) >= 0, "no key is for ever");
    }
    eventually("Redis is empty", || redis.command::<u64>(&["DBSIZE"]) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_burst_of_keys_left_goes_while_one_key_of_its_partition_lives() {
    let policies = &[("long", "token-bucket:100000/1d"), ("short", "token-bucket:1000000/1s")];
    let redis = RedisServer::start();
    let server = Server::start_ready(Setup { policies, ..Setup::on_redis(&redis.url()) }).await;
    let client = server.client().await;
    let (long, short) = (client.policy("long").expect("a policy"), client.policy("short").expect("a policy"));
    let keys: Vec<_> = (0..1_000).map(|key| format!("user:{key}")).collect();
    client.check(&long, "hot", 1).await.expect("an answer");
    client.check_many(&short, &keys, 1).await;
    let hash_of_hot = redis.command::<Vec<String>>(&["KEYS", "*"]).into_iter().find(|hash| {
        let ttl_ms: i64 = redis.command(&["PTTL", hash]);
        ttl_ms > 1_500
    });
    let hash_of_hot = hash_of_hot.expect("the key of the long limit keeps its hash");
    assert!(redis.command::<u64>(&["HLEN", &hash_of_hot]) > 1, "others share the partition");
    // Now and then a check that charges looks at some states; dead for a second, they go by and by.
    eventually_some("only the living key is left", async || {
        client.check(&long, "hot", 1).await.expect("an answer");
        (redis.command::<u64>(&["HLEN", &hash_of_hot]) == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peeks_and_denials_write_nothing_to_redis() {
    let redis = RedisServer::start();
    let server = Server::start_ready(Setup { policies: SLOW, ..Setup::on_redis(&redis.url()) }).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    client.peek(&policy, "user:1", 1).await.expect("an answer");
    client.check(&policy, "user:1", 6).await.expect("an answer");
    assert_eq!(redis.command::<u64>(&["DBSIZE"]), 0);
    client.check(&policy, "user:1", 5).await.expect("an answer");
    let changes = || {
        let info: String = redis.command(&["INFO", "persistence"]);
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.expect("Redis counts changes").to_owned()
    };
    let before = changes();
    assert!(!client.check(&policy, "user:1", 1).await.expect("an answer").allowed);
    client.peek(&policy, "user:1", 1).await.expect("an answer");
    assert_eq!(changes(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_as_long_as_told_passes() {
    let policies = &[("bucket", "token-bucket:7/1s,burst=3"), ("window", "sliding-window:3/700ms")];
    let redis = RedisServer::start();
    let server = Server::start_ready(Setup { policies, ..Setup::on_redis(&redis.url()) }).await;
    let client = server.client().await;
    for name in ["bucket", "window"] {
        let policy = client.policy(name).expect("a policy of the server");
        for _ in 0..4 {
            let taken = client.take_up_to(&policy, "user:1", 3).await.expect("an answer");
            let denied = client.check(&policy, "user:1", 2).await.expect("an answer");
            assert!(!denied.allowed, "{name}: after {taken:?}");
            tokio::time::sleep(denied.retry_after.expect("it passes some time")).await;
            let decision = client.check(&policy, "user:1", 2).await.expect("an answer");
            assert!(decision.allowed, "{name}: {denied:?} {decision:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_by_tls_is_trusted_by_its_authority_alone() {
    let tls = Tls::generate();
    let redis = RedisServer::start_with(Security { tls: Some(tls.clone()), login: None }, &[]);
    let with_ca = |ca: &str| {
        let mut setup = Setup::on_redis(&redis.url());
        if let Some(redis) = &mut setup.redis {
            redis.tls_ca_pem = Some(ca.as_bytes().to_vec());
        }
        setup
    };
    let stranger = Server::start(with_ca(&Tls::generate().ca)).await;
    let server = Server::start_ready(with_ca(&tls.ca)).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    assert!(!client.check(&policy, "user:1", 1).await.expect("an answer").degraded);
    // By now the other server has had as much time to connect.
    assert_eq!(http_get(stranger.admin, "/readyz").await.0, 503, "an authority that nobody named");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_of_redis_is_given_and_a_wrong_one_is_no_crash() {
    let login = Login { user: None, password: "s3cret", rules: &[] };
    let redis = RedisServer::start_with(Security { tls: None, login: Some(login) }, &[]);
    let wrong = Server::start(Setup::on_redis(&redis.url().replace("s3cret", "guess"))).await;
    let missing = Server::start(Setup::on_redis(&format!("redis://127.0.0.1:{}", redis.port))).await;
    let server = Server::start_ready(Setup::on_redis(&redis.url())).await;
    for unwelcome in [&wrong, &missing] {
        assert_eq!(http_get(unwelcome.admin, "/readyz").await.0, 503);
        let client = unwelcome.client().await;
        let policy = client.policy("api").expect("a policy of the server");
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        assert_eq!((decision.reason, decision.degraded), (Reason::Unavailable, true));
    }
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    assert!(client.check(&policy, "user:1", 1).await.expect("an answer").allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_of_redis_needs_no_more_rights_than_are_used() {
    const RIGHTS: &[&str] = &[
        "~{*}tollgate",
        "+evalsha",
        "+eval",
        "+script|load",
        "+time",
        "+info",
        "+hmget",
        "+hset",
        "+hdel",
        "+hrandfield",
        "+pttl",
        "+pexpire",
    ];
    let login = Login { user: Some("tollgate"), password: "p@ss/word", rules: RIGHTS };
    let redis = RedisServer::start_with(Security { tls: None, login: Some(login) }, &[]);
    let url = redis.url().replace("p@ss/word", "p%40ss%2Fword");
    let server = Server::start_ready(Setup { policies: SLOW, ..Setup::on_redis(&url) }).await;
    let client = server.client().await;
    let policy = client.policy("api").expect("a policy of the server");
    for used in 1..=5 {
        let decision = client.check(&policy, "user:1", 1).await.expect("an answer");
        assert_eq!((decision.degraded, decision.remaining), (false, Some(5 - used)));
    }
    assert!(!client.reset(&policy, "user:1").await.expect("an answer").degraded);
}
