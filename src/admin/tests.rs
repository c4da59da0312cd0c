use super::*;
use crate::net::{
    drain::Drain,
    testing::{http_get, store},
};

/// A running server and the stage that it goes by.
async fn serve() -> (std::net::SocketAddr, AdminServer, Drain) {
    let drain = Drain::new();
    let metrics = Arc::new(Metrics::new());
    let admin = Admin { store: Arc::new(store()), metrics, stage: drain.stage() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (address, start(listener, router(admin)), drain)
}

#[tokio::test]
async fn healthy_and_ready_while_it_serves_but_not_ready_once_it_leaves() {
    let (address, server, drain) = serve().await;
    for path in ["/healthz", "/readyz"] {
        assert!(http_get(address, path).await.starts_with("HTTP/1.1 200 "));
    }
    drain.run().await;
    assert!(http_get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let not_ready = http_get(address, "/readyz").await;
    assert!(not_ready.starts_with("HTTP/1.1 503 "), "{not_ready}");
    assert!(not_ready.ends_with("\r\n\r\nthe server is shutting down\n"), "{not_ready}");
    server.stop().await;
}

#[tokio::test]
async fn metrics_say_their_format_and_other_paths_are_not_found() {
    let (address, server, _drain) = serve().await;
    let metrics = http_get(address, "/metrics").await;
    assert!(metrics.contains(&format!("\r\ncontent-type: {OPEN_METRICS}\r\n")), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(http_get(address, "/").await.starts_with("HTTP/1.1 404 "));
    server.stop().await;
}
