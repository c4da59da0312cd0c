//! A configuration that changes while its server runs: clients are told, what was used is kept, and an error changes
//! nothing.

use tollgate_client::Client;
use tollgate_protocol::{
    check::{Item, Operation},
    frame::FrameType,
    policy::NamedPolicy,
    reply::{Reason, ReplyItem},
};

use crate::harness::{
    Process, REDIS, Wire, eventually, eventually_some, http_get,
    server::{limits, metric},
    tollgate::{ServeProcess, command},
};

fn api(limit: &str) -> String {
    format!("[policies.api]\nlimits = [\"{limit}\"]\n")
}

async fn check(wire: &mut Wire, alias: u64, cost: u64) -> ReplyItem {
    let item = Item { operation: Operation::Check, alias, cost, key: b"user:1", linked: false };
    wire.check(&[item]).await[0]
}

async fn next_policy(wire: &mut Wire) -> NamedPolicy {
    NamedPolicy::decode(&wire.expect(FrameType::Policy, 0).await).expect("POLICY")
}

/// Waits until a counter of the server has reached `value`.
async fn counted(server: &ServeProcess, name: &str, value: f64) {
    eventually_some(name, async || {
        let (_, text) = http_get(server.admin, "/metrics").await;
        (metric(&text, name) >= value).then_some(())
    })
    .await;
}

/// A raise holds at once, a cut gives nothing back, and what was used stays used.
async fn limits_change(store: &str) {
    let config = |limit| format!("{store}{}", api(limit));
    let server = ServeProcess::start(&config("token-bucket:5/1h"));
    eventually_some("the server is ready", async || {
        (http_get(server.admin, "/readyz").await.0 == 200).then_some(())
    })
    .await;
    let (mut wire, _) = Wire::greet(server.address).await;
    assert!(check(&mut wire, 0, 5).await.allow);
    // With Redis the second denial is remembered: a raise must not wait for its end.
    assert_eq!(check(&mut wire, 0, 1).await.reason, Reason::Denied);
    assert!(!check(&mut wire, 0, 1).await.allow);

    server.configure(&config("token-bucket:7/1h"));
    server.signal("HUP");
    let raised = next_policy(&mut wire).await;
    assert_eq!((raised.alias, raised.version, raised.limits), (0, 2, limits("token-bucket:7/1h")));
    assert!(check(&mut wire, 0, 2).await.allow);
    assert_eq!(check(&mut wire, 0, 1).await.reason, Reason::Denied);

    server.configure(&config("sliding-window:2/1h"));
    server.signal("HUP");
    assert_eq!(next_policy(&mut wire).await.version, 3);
    let denied = check(&mut wire, 0, 1).await;
    assert_eq!((denied.reason, denied.details.map(|details| details.remaining)), (Reason::Denied, Some(0)));

    server.configure(&config("token-bucket:9/1h"));
    server.signal("HUP");
    assert_eq!(next_policy(&mut wire).await.version, 4);
    assert!(!check(&mut wire, 0, 3).await.allow, "7 of 9 are used");
    assert!(check(&mut wire, 0, 2).await.allow);
}

#[tokio::test]
async fn what_was_used_outlives_a_change_of_the_limit() {
    limits_change("").await;
}

#[tokio::test]
async fn what_was_used_in_redis_outlives_a_change_of_the_limit() {
    let prefix = format!("reload-{}", fastrand::u64(..));
    limits_change(&format!("store = \"{}\"\n[redis]\nkey_prefix = \"{prefix}\"\n", REDIS.url())).await;
}

#[tokio::test]
async fn policies_come_and_go() {
    let server = ServeProcess::start(&api("token-bucket:5/1h"));
    let (mut wire, _) = Wire::greet(server.address).await;
    let client = Client::connect(server.address.to_string()).await.expect("a server");
    let policy = client.policy("api").expect("announced");
    assert!(client.check(&policy, "user:2", 1).await.expect("an answer").allowed);

    server.configure("[policies.other]\nlimits = [\"token-bucket:1/1h\"]\n");
    server.signal("HUP");
    let other = next_policy(&mut wire).await;
    assert_eq!((other.name.as_str(), other.alias, other.version), ("other", 2, 1));
    assert_eq!(check(&mut wire, 0, 1).await.reason, Reason::UnknownPolicy);
    assert!(check(&mut wire, 2, 1).await.allow);
    let error = client.check(&policy, "user:2", 1).await.expect_err("the policy is gone").to_string();
    assert!(error.contains("api"), "{error}");
    let (_, hello_ok) = Wire::greet(server.address).await;
    assert_eq!(hello_ok.policies, [other]);

    server.configure(&api("token-bucket:2/1h"));
    server.signal("HUP");
    let back = next_policy(&mut wire).await;
    assert_eq!((back.name.as_str(), back.alias), ("api", 0), "an alias always stands for the same name");
    assert!(back.version > 1);
    let decision = eventually_some("the client knows of it", async || {
        let decision = client.check(&policy, "user:2", 1).await.ok()?;
        decision.limit.is_some().then_some(decision)
    })
    .await;
    assert_eq!(decision.limit.map(|limit| limit.to_string()).as_deref(), Some("token-bucket:2/1h"));
}

#[tokio::test]
async fn a_file_that_was_replaced_is_taken_without_a_signal() {
    let server = ServeProcess::start(&api("token-bucket:5/1h"));
    let (mut wire, _) = Wire::greet(server.address).await;
    server.configure(&api("token-bucket:6/1h"));
    assert_eq!(next_policy(&mut wire).await.limits, limits("token-bucket:6/1h"));
    counted(&server, "tollgate_config_reloads_total", 1.0).await;
}

#[tokio::test]
async fn a_file_with_an_error_changes_nothing_and_is_told() {
    let server = ServeProcess::start(&api("token-bucket:5/1h"));
    let (mut wire, _) = Wire::greet(server.address).await;
    server.configure("[policies.api]\nlimits = [\"token-bucket:0/1h\"]\n[policies.new]\nlimits = []\n");
    counted(&server, "tollgate_config_reload_failures_total", 1.0).await;
    assert_eq!(check(&mut wire, 0, 5).await.reason, Reason::Ok);
    server.configure(&format!("listen = \"127.0.0.1:1\"\n{}", api("token-bucket:6/1h")));
    assert_eq!(next_policy(&mut wire).await.limits, limits("token-bucket:6/1h"));
    drop(wire);
    counted(&server, "tollgate_config_reloads_total", 1.0).await;
    server.signal("TERM");
    let log = server.wait().stderr;
    for part in ["stays as it was", "policies.api.limits[0]", "policies.new.limits"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("another `listen`"), "the flag wins over the file: {log}");
}

#[tokio::test]
async fn what_cannot_change_is_told_and_the_rest_is_taken() {
    let server = ServeProcess::start(&api("token-bucket:5/1h"));
    let (mut wire, _) = Wire::greet(server.address).await;
    server.configure(&format!("[connection]\nitems_max = 7\n{}", api("token-bucket:6/1h")));
    server.signal("HUP");
    assert_eq!(next_policy(&mut wire).await.version, 2);
    drop(wire);
    counted(&server, "tollgate_config_reloads_total", 1.0).await;
    server.signal("TERM");
    let log = server.wait().stderr;
    assert!(log.contains("another `connection`"), "{log}");
}

#[test]
fn a_server_without_a_file_goes_on_at_sighup() {
    let serve = command(&["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    let mut process = Process::start(serve, None).expect("the server starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut process.stdout(), &mut line).expect("its output can be read");
    process.signal("HUP");
    process.signal("TERM");
    eventually("the server has ended", || process.has_exited());
    let (status, _, log) = process.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}
