//! Policies that are not enforced, for all keys or some: they count, they deny nobody, and their answers say so.

use tollgate_client::{Client, Decision, PolicyRef, Reason, Request};

use crate::harness::{
    REDIS, eventually_some, http_get,
    server::metric,
    tollgate::{ServeProcess, run},
};

const POLICIES: &str = "
[policies.enforced]
limits = [\"token-bucket:2/1h\"]
[policies.half]
limits = [\"token-bucket:1/1h\"]
enforce_percent = 50
[policies.shadow]
limits = [\"token-bucket:1/1h\"]
enforce_percent = 0
";

struct Subject {
    server: ServeProcess,
    client: Client,
}

impl Subject {
    async fn start(store: &str) -> Self {
        let server = ServeProcess::start(&format!("{store}{POLICIES}"));
        eventually_some("the server is ready", async || {
            (http_get(server.admin, "/readyz").await.0 == 200).then_some(())
        })
        .await;
        let client = Client::connect(server.address.to_string()).await.expect("a server");
        Self { server, client }
    }

    fn policy(&self, name: &str) -> PolicyRef {
        self.client.policy(name).expect("announced")
    }

    async fn check(&self, policy: &str, key: &str, cost: u64) -> Decision {
        self.client.check(&self.policy(policy), key, cost).await.expect("an answer")
    }

    async fn decisions(&self, policy: &str, reason: &str) -> f64 {
        let (_, text) = http_get(self.server.admin, "/metrics").await;
        metric(&text, &format!("tollgate_decisions_total{{policy=\"{policy}\",reason=\"{reason}\""))
    }
}

async fn shadows_deny_nobody(store: &str) {
    let subject = Subject::start(store).await;
    assert_eq!(subject.check("shadow", "a", 1).await.reason, Reason::Ok);
    for _ in 0..3 {
        let decision = subject.check("shadow", "a", 1).await;
        let told =
            (decision.allowed, decision.reason, decision.granted, decision.remaining, decision.retry_after);
        assert_eq!(told, (true, Reason::Shadow, 1, Some(0), None));
    }
    assert_eq!(subject.decisions("shadow", "ok").await, 1.0);
    assert_eq!(subject.decisions("shadow", "shadow").await, 3.0);
    assert_eq!(subject.decisions("shadow", "denied").await, 0.0);

    let mut enforced = 0;
    for index in 0..200 {
        let key = format!("user:{index}");
        assert!(subject.check("half", &key, 1).await.allowed);
        let [first, second] = [subject.check("half", &key, 1).await, subject.check("half", &key, 1).await];
        assert_eq!(first.allowed, second.allowed, "a key is treated alike each time");
        enforced += usize::from(!first.allowed);
    }
    assert!((50..150).contains(&enforced), "{enforced} of 200");
}

/// What is not enforced holds back nothing that it is linked with, and is held back by nothing.
async fn shadows_are_not_linked(store: &str) {
    let subject = Subject::start(store).await;
    let policies = ["enforced", "shadow", "enforced"].map(|name| subject.policy(name));
    let linked = || async {
        let [first, second, third] = policies.each_ref().map(|policy| Request::check(policy, "b"));
        let answers = subject.client.call_many(&[first.linked(), second.linked(), third]).await;
        answers.into_iter().map(|answer| answer.expect("an answer").reason).collect::<Vec<_>>()
    };
    assert_eq!(linked().await, [Reason::Ok; 3]);
    assert_eq!(linked().await, [Reason::Denied, Reason::Shadow, Reason::Denied]);
    assert_eq!(subject.check("enforced", "b", 0).await.remaining, Some(0));
}

fn redis() -> String {
    let prefix = format!("shadow-{}", fastrand::u64(..));
    format!("store = \"{}\"\n[redis]\nkey_prefix = \"{prefix}\"\n", REDIS.url())
}

#[tokio::test]
async fn what_is_not_enforced_passes_and_says_so() {
    shadows_deny_nobody("").await;
    shadows_deny_nobody(&redis()).await;
}

#[tokio::test]
async fn what_is_not_enforced_is_not_linked_with_what_is() {
    shadows_are_not_linked("").await;
    shadows_are_not_linked(&redis()).await;
}

#[tokio::test]
async fn a_shadow_passes_where_the_store_is_away() {
    let server = ServeProcess::start(&format!("store = \"redis://127.0.0.1:1\"\n{POLICIES}"));
    let client = Client::connect(server.address.to_string()).await.expect("a server");
    for (name, allowed) in [("enforced", false), ("shadow", true)] {
        let decision =
            client.check(&client.policy(name).expect("announced"), "a", 1).await.expect("an answer");
        assert_eq!((decision.allowed, decision.degraded), (allowed, true), "{name}");
    }
}

#[test]
fn a_share_out_of_range_is_told() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[policies.a]\nlimits = [\"token-bucket:1/1h\"]\nenforce_percent = 101\n";
    std::fs::write(&file, text).expect("it can be written");
    let output = run(&["policies", &file.path().display().to_string()]);
    assert_eq!(output.status, Some(1));
    assert!(output.stderr.contains("policies.a.enforce_percent = 101"), "{}", output.stderr);
}
