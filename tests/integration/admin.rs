//! What an operator sees: health, readiness, metrics.

use tollgate_client::Request;

use crate::harness::{Server, Setup, eventually_some, http_get};

#[tokio::test]
async fn health_readiness_and_metrics_are_served() {
    let server = Server::start(Setup::default()).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http_get(server.admin, path).await.0, 200, "{path}");
    }
    assert_eq!(http_get(server.admin, "/nothing").await.0, 404);
    let (status, metrics) = http_get(server.admin, "/metrics").await;
    assert_eq!(status, 200);
    let head = metrics.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");
    assert!(metrics.ends_with("# EOF\n"), "a whole OpenMetrics text");
}

#[tokio::test]
async fn decisions_are_counted_by_policy_and_reason_and_never_by_key() {
    let server = Server::start(Setup::default()).await;
    let client = server.client().await;
    let (api, window) = (client.policy("api").expect("a policy"), client.policy("window").expect("a policy"));
    for _ in 0..7 {
        client.check(&api, "secret-key", 1).await.expect("an answer");
    }
    client.call(Request::check(&window, "secret-key").cost(6)).await.expect("an answer");
    let (_, text) = http_get(server.admin, "/metrics").await;
    let count = |policy: &str, reason: &str| {
        server.metric(&format!("tollgate_decisions_total{{policy=\"{policy}\",reason=\"{reason}\""))
    };
    let counts = [count("api", "ok"), count("api", "denied"), count("window", "cost_over_limit")];
    assert_eq!(counts, [5.0, 2.0, 1.0], "{text}");
    assert!(!text.contains("secret-key"));
    assert_eq!(server.metric("tollgate_connections"), 1.0);
}

/// Metrics have as many lines after many keys as after one.
#[tokio::test]
async fn many_keys_make_no_more_metrics() {
    let server = Server::start(Setup::default()).await;
    let client = server.client().await;
    let api = client.policy("api").expect("a policy");
    let lines = || server.metrics.to_text().expect("metrics are text").lines().count();
    client.check(&api, "first", 1).await.expect("an answer");
    let before = lines();
    let keys: Vec<_> = (0..2_000).map(|number| format!("user:{number}")).collect();
    for answer in client.check_many(&api, &keys, 1).await {
        answer.expect("an answer");
    }
    assert_eq!(lines(), before);
    eventually_some("the keys are counted", async || {
        (server.metric("tollgate_memory_keys") == 2_001.0).then_some(())
    })
    .await;
}
