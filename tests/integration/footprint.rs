//! Memory of a server stays within its bounds, whatever its clients do.
#![cfg(target_os = "linux")]

use tollgate_client::Client;

use crate::harness::{PATIENCE, Wire, eventually_some, http_get, server::metric, tollgate::ServeProcess};

const GROWTH_BYTES_MAX: u64 = 8 << 20;

fn assert_flat(server: &ServeProcess, before_bytes: u64, what: &str) {
    let after_bytes = server.resident_bytes();
    assert!(after_bytes < before_bytes + GROWTH_BYTES_MAX, "{what}: {before_bytes} to {after_bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_flat_under_new_keys_and_new_connections() {
    let config = "[memory]\nkeys_max = 20000\n[policies.api]\nlimits = [\"token-bucket:1/1h\"]\n";
    let server = ServeProcess::start(config);
    let builder = Client::builder().servers([server.address.to_string()]).deadline(PATIENCE);
    let client = builder.connect().await.expect("the server listens");
    let api = client.policy("api").expect("a policy of the server");
    let ask = async |batches: std::ops::Range<u32>| {
        for batch in batches {
            let keys: Vec<_> = (0..2_000).map(|key| format!("user:{batch}:{key}")).collect();
            for answer in client.check_many(&api, &keys, 1).await {
                answer.expect("an answer");
            }
        }
    };
    ask(0..20).await;
    let before_bytes = server.resident_bytes();
    ask(20..80).await;
    assert_flat(&server, before_bytes, "120,000 more keys than there is room for");

    for _ in 0..10 {
        let mut wires = Vec::new();
        for _ in 0..50 {
            wires.push(Wire::greet(server.address).await);
        }
    }
    eventually_some("the connections are closed", async || {
        let (_, text) = http_get(server.admin, "/metrics").await;
        (metric(&text, "tollgate_connections") <= 1.0).then_some(())
    })
    .await;
    assert_flat(&server, before_bytes, "500 connections that came and went");
}
