//! Several servers on a Redis Cluster that loses nodes and moves slots.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tollgate::placement::{Partition, Placement};
use tollgate_client::{Client, Decision, PolicyRef};
use tollgate_protocol::{
    check::{Item, Operation},
    ring::RingSecret,
};

use crate::harness::{Cluster, Login, Security, Server, Setup, Shape, Tls, Wire, eventually_some};

/// What the policy `hot` lets pass in a second, and at once.
const HOT: (u64, u64) = (200, 400);

const POLICIES: &[(&str, &str)] = &[
    ("hot", "token-bucket:200/1s,burst=400"),
    ("slow", "token-bucket:1000/1d"),
    ("few", "token-bucket:5/1d"),
];

fn setup(cluster: &Cluster) -> Setup {
    Setup { policies: POLICIES, ..Setup::on_redis(&cluster.url()) }
}

/// As an operator would have it: an unanswered call is given up soon.
fn impatient(cluster: &Cluster) -> Setup {
    let mut setup = setup(cluster);
    if let Some(redis) = &mut setup.redis {
        redis.timeout = Duration::from_millis(200);
    }
    setup
}

fn policy(client: &Client, name: &str) -> PolicyRef {
    client.policy(name).expect("a policy of the server")
}

async fn check(client: &Client, policy: &PolicyRef, key: &str) -> Decision {
    client.check(policy, key, 1).await.unwrap_or_else(|error| panic!("{key}: {error}"))
}

/// The partition that the servers of these tests put a key in.
fn partition(key: &str) -> Partition {
    let placement = Placement::new(RingSecret::default(), 64, "tollgate");
    placement.partitions()[placement.partition_of(key.as_bytes())].clone()
}

/// Index of the node that serves a key.
fn node_of(cluster: &Cluster, key: &str) -> usize {
    cluster.primary_of(partition(key).slot).expect("a primary serves it")
}

/// Keys that a node serves, and keys that others do.
fn keys_on_and_off(cluster: &Cluster, node: usize) -> (Vec<String>, Vec<String>) {
    let keys = (0..60).map(|number| format!("user:{number}"));
    keys.partition(|key| node_of(cluster, key) == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_of_many_clients_of_two_servers_gets_its_limit_and_no_more() {
    let cluster = Cluster::start(Shape { primaries: 3, replicas: 0 });
    let servers = [Server::start_ready(setup(&cluster)).await, Server::start_ready(setup(&cluster)).await];
    let mut clients = Vec::new();
    for index in 0..8 {
        clients.push(servers[index % 2].client().await);
    }
    let hot = policy(&clients[0], "hot");
    let (passed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let outer = Instant::now();
    passed.store(check(&clients[0], &hot, "hot").await.granted, Ordering::Relaxed);
    let inner = Instant::now();
    let mut tasks = JoinSet::new();
    for client in &clients {
        for _ in 0..4 {
            let (client, passed, stop) = (client.clone(), Arc::clone(&passed), Arc::clone(&stop));
            let hot = policy(&client, "hot");
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    passed.fetch_add(check(&client, &hot, "hot").await.granted, Ordering::Relaxed);
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("a client that is answered");
    }
    let least = promised(inner.elapsed());
    let rest = clients[0].take_up_to(&hot, "hot", 1_000).await.expect("an answer").granted;
    let (passed, most) = (passed.load(Ordering::Relaxed) + rest, promised(outer.elapsed()));
    assert!(passed <= most, "{passed} passed of {most}");
    assert!(passed * 100 >= least * 99, "{passed} passed of {least}");
}

/// What `hot` promises for an interval.
fn promised(interval: Duration) -> u64 {
    let (rate, burst) = HOT;
    burst + (u128::from(rate) * interval.as_micros() / 1_000_000) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_by_tls_and_with_a_password_is_reached() {
    let tls = Tls::generate();
    let login = Login { user: None, password: "s3cret", rules: &[] };
    let security = Security { tls: Some(tls.clone()), login: Some(login) };
    let cluster = Cluster::start_with(&security, Shape { primaries: 3, replicas: 0 });
    assert!(cluster.url().starts_with("rediss-cluster://:s3cret@"));
    let mut setup = setup(&cluster);
    if let Some(redis) = &mut setup.redis {
        redis.tls_ca_pem = Some(tls.ca.into_bytes());
    }
    let server = Server::start_ready(setup).await;
    let client = server.client().await;
    let slow = policy(&client, "slow");
    let keys: Vec<_> = (0..60).map(|key| format!("user:{key}")).collect();
    for answer in client.check_many(&slow, &keys, 1).await {
        assert!(!answer.expect("an answer").degraded);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_slots_costs_no_check_and_loses_no_charge() {
    let cluster = Arc::new(Cluster::start(Shape { primaries: 3, replicas: 0 }));
    let server = Server::start_ready(setup(&cluster)).await;
    let client = server.client().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..8u64 {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        let slow = policy(&client, "slow");
        tasks.spawn(async move {
            let keys: Vec<_> = (0..25).map(|key| format!("user:{}", task * 25 + key)).collect();
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) && rounds < 900 {
                for answer in client.check_many(&slow, &keys, 1).await {
                    let decision = answer.expect("an answer");
                    assert!(decision.allowed && !decision.degraded, "{decision:?}");
                }
                rounds += 1;
            }
            (keys, rounds)
        });
    }
    let slots: BTreeSet<_> = (0..12).map(|key| partition(&format!("user:{}", key * 16)).slot).collect();
    let moving = Arc::clone(&cluster);
    let moved = tokio::task::spawn_blocking(move || {
        for slot in slots {
            let from = moving.primary_of(slot).expect("the slot is served");
            moving.move_slot(slot, (from + 1) % 3);
        }
    });
    moved.await.expect("the slots move");
    stop.store(true, Ordering::Relaxed);
    let slow = policy(&client, "slow");
    while let Some(task) = tasks.join_next().await {
        let (keys, rounds) = task.expect("every check is answered");
        for key in keys {
            let decision = client.peek(&slow, &key, 1).await.expect("an answer");
            assert_eq!(
                decision.remaining,
                Some(1_000 - rounds),
                "{key} is charged once a round: {decision:?}"
            );
        }
    }
    assert!(server.metric("tollgate_store_redirects_total{kind=\"moved\"") > 0.0, "slots did move");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_a_slot_on_the_move_follow_its_state() {
    let cluster = Cluster::start(Shape { primaries: 3, replicas: 0 });
    let server = Server::start_ready(setup(&cluster)).await;
    let client = server.client().await;
    let few = policy(&client, "few");
    let (key, from) = ("user:1", node_of(&cluster, "user:1"));
    let (slot, to) = (partition(key).slot, (from + 1) % 3);
    assert_eq!(cluster.begin_move(slot, to), from);
    // The slot has no state yet: its first is made at its new place, which knows no script.
    cluster.nodes[to].command::<()>(&["SCRIPT", "FLUSH"]);
    for left in (0..5).rev() {
        let decision = check(&client, &few, key).await;
        assert_eq!((decision.degraded, decision.remaining), (false, Some(left)));
        if left == 2 {
            cluster.end_move(slot, from, to);
        }
    }
    assert!(!check(&client, &few, key).await.allowed);
    assert!(
        server.metric("tollgate_store_redirects_total{kind=\"ask\"") > 0.0,
        "it was asked where it moves to"
    );
    assert_eq!(node_of(&cluster, key), to);
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_shards_do_not_wait_for_a_hung_one() {
    let cluster = Cluster::start(Shape { primaries: 3, replicas: 0 });
    let server = Server::start_ready(setup(&cluster)).await;
    let (mut wire, hello_ok) = Wire::greet(server.address).await;
    let slow = hello_ok.policies.iter().find(|policy| policy.name == "slow").expect("a policy of the server");
    let item = |key| Item { operation: Operation::Check, alias: slow.alias, cost: 1, key, linked: false };
    let node = node_of(&cluster, "user:1");
    let (hung, healthy) = keys_on_and_off(&cluster, node);

    cluster.nodes[node].pause();
    let to_hung = wire.send_check(&hung.iter().map(|key| item(key.as_bytes())).collect::<Vec<_>>()).await;
    let to_healthy =
        wire.send_check(&healthy.iter().map(|key| item(key.as_bytes())).collect::<Vec<_>>()).await;
    let decisions = wire.expect_reply(to_healthy, healthy.len()).await;
    assert!(decisions.iter().all(|decision| decision.allow && !decision.degraded));
    let decisions = wire.expect_reply(to_hung, hung.len()).await;
    assert!(decisions.iter().all(|decision| !decision.allow && decision.degraded));
}

/// Checks keys of a failing node until the store decides again; meanwhile they are answered by the policy, and the
/// keys of other nodes by their store.
async fn assert_only_keys_of_the_node_suffer(client: &Client, failed: &[String], healthy: &[String]) {
    let slow = policy(client, "slow");
    let mut degraded = 0;
    eventually_some("a replica takes over", async || {
        for answer in client.check_many(&slow, healthy, 1).await {
            assert!(!answer.expect("an answer").degraded, "a healthy shard answers");
        }
        let answers = client.check_many(&slow, failed, 1).await;
        let undecided = answers.into_iter().filter(|answer| {
            let decision = answer.as_ref().expect("an answer, though not of the store");
            assert_eq!(decision.degraded, decision.remaining.is_none());
            decision.degraded
        });
        let undecided = undecided.count();
        degraded += undecided;
        (degraded > 0 && undecided == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_of_a_killed_primary_takes_over_with_what_was_charged() {
    let mut cluster = Cluster::start(Shape { primaries: 3, replicas: 1 });
    let server = Server::start_ready(impatient(&cluster)).await;
    let client = server.client().await;
    let (slow, few) = (policy(&client, "slow"), policy(&client, "few"));
    let node = node_of(&cluster, "user:1");
    let (failed, healthy) = keys_on_and_off(&cluster, node);
    for answer in client.check_many(&slow, &[&failed[..], &healthy[..]].concat(), 1).await {
        assert!(!answer.expect("an answer").degraded);
    }
    assert!(client.check(&few, "user:1", 5).await.expect("an answer").allowed);
    cluster.await_replication();

    cluster.nodes[node].kill();
    assert_only_keys_of_the_node_suffer(&client, &failed, &healthy).await;
    let decision = check(&client, &few, "user:1").await;
    assert!(!decision.allowed && !decision.degraded, "the replica knows what was charged: {decision:?}");
    server.ready().await;

    // The old primary comes back empty and follows the new one.
    cluster.nodes[node].restart();
    cluster.await_whole();
    assert!(!check(&client, &few, "user:1").await.allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_of_a_hung_primary_takes_over_and_the_hung_one_changes_nothing_later() {
    let cluster = Cluster::start(Shape { primaries: 3, replicas: 1 });
    let server = Server::start_ready(impatient(&cluster)).await;
    let client = server.client().await;
    let slow = policy(&client, "slow");
    let node = node_of(&cluster, "user:1");
    let (failed, healthy) = keys_on_and_off(&cluster, node);
    for answer in client.check_many(&slow, &[&failed[..], &healthy[..]].concat(), 1).await {
        assert!(!answer.expect("an answer").degraded);
    }
    cluster.await_replication();

    cluster.nodes[node].pause();
    assert_only_keys_of_the_node_suffer(&client, &failed, &healthy).await;
    let before = client.peek(&slow, "user:1", 1).await.expect("an answer");
    cluster.nodes[node].resume();
    cluster.await_whole();
    let after = client.peek(&slow, "user:1", 1).await.expect("an answer");
    assert!(!before.degraded && !after.degraded);
    assert_eq!(before.remaining, after.remaining);
}
