//! Servers as processes: they leave in peace, and come back under load without a lost or doubled check.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::task::JoinSet;
use tollgate_client::Client;
use tollgate_protocol::{
    check::{Item, Operation},
    control::GoAway,
    frame::FrameType,
};

use crate::harness::{
    PATIENCE, RedisServer, Wire, eventually_some, http_get, server::metric, tollgate::ServeProcess,
};

#[tokio::test]
async fn sigterm_tells_the_clients_and_ends_with_0() {
    let server = ServeProcess::start("[policies.api]\nlimits = [\"token-bucket:5/1h\"]\n");
    let (mut wire, _) = Wire::greet(server.address).await;
    assert_eq!(http_get(server.admin, "/readyz").await.0, 200);
    server.signal("TERM");
    let go_away = GoAway::decode(&wire.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
    assert_eq!(go_away.last_id, u32::MAX);
    let item = Item { operation: Operation::Check, alias: 0, cost: 1, key: b"a", linked: false };
    let id = wire.send_check(&[item]).await;
    assert!(wire.expect_reply(id, 1).await[0].allow, "what was on its way is executed");
    let go_away = GoAway::decode(&wire.expect(FrameType::GoAway, 0).await).expect("GOAWAY");
    assert_eq!(go_away.last_id, id);
    assert_eq!(wire.next().await, None);
    drop(wire);
    let output = server.wait();
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[tokio::test]
async fn interrupt_ends_a_server_without_clients_with_0() {
    let server = ServeProcess::start("");
    server.signal("INT");
    assert_eq!(server.wait().status, Some(0));
}

/// Two servers on one Redis are replaced one after the other while clients ask.
#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_loses_no_check_and_charges_none_twice() {
    let redis = RedisServer::start();
    let config = format!(
        "store = \"{}\"\n[redis]\ntimeout_ms = 5000\n[policies.api]\nlimits = [\"token-bucket:100000/1d\"]\n",
        redis.url()
    );
    let mut servers = [ServeProcess::start(&config), ServeProcess::start(&config)];
    for server in &servers {
        connected(server, "/readyz", |_| true).await;
    }
    let names = servers.each_ref().map(|server| server.address.to_string());
    let client = Client::builder().servers(&names).deadline(PATIENCE).connect().await.expect("both");
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        tasks.spawn(async move { ask_until(&client, task, &stop).await });
    }
    for server in &mut servers {
        server.signal("TERM");
        server.restart(&config);
        connected(server, "/readyz", |_| true).await;
        connected(server, "/metrics", |text| metric(text, "tollgate_connections") > 0.0).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        assert!(task.expect("every round is answered") > 1);
    }
}

/// Waits until a server answers 200 and a text as wanted.
async fn connected(server: &ServeProcess, path: &str, wanted: impl Fn(&str) -> bool) {
    eventually_some("the server is in use", async || {
        let (status, text) = http_get(server.admin, path).await;
        (status == 200 && wanted(&text)).then_some(())
    })
    .await;
}

/// Asks ten keys again and again, and counts along.
async fn ask_until(client: &Client, task: u64, stop: &AtomicBool) -> u64 {
    let api = client.policy("api").expect("a policy");
    let keys: Vec<_> = (0..10).map(|key| format!("{task}:{key}")).collect();
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        rounds += 1;
        for answer in client.check_many(&api, &keys, 1).await {
            let decision = answer.expect("no check is lost");
            assert!(!decision.degraded, "{decision:?}");
            // A little drains meanwhile: about one in a second.
            let used = 100_000 - decision.remaining.expect("it is known");
            assert!(used <= rounds && used + 100 >= rounds, "charged {used} times in {rounds} rounds");
        }
    }
    rounds
}
