use std::net::SocketAddr;

use tokio::{
    net::TcpStream,
    sync::oneshot,
    task::{JoinHandle, yield_now},
    time::timeout,
};
use tollgate_protocol::{
    control::{GoAway, GoAwayReason},
    error::ErrorCode,
    frame::FrameType,
    hello::Hello,
    reply::Reason,
};

use super::*;
use crate::net::testing::{self, Client, check};

/// A server on ports of its own.
struct Running {
    address: SocketAddr,
    admin: SocketAddr,
    metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

async fn run(config: ServerConfig) -> Running {
    let metrics = Arc::new(Metrics::new());
    let policies = testing::policies(&metrics);
    let (secret, deny) = (RingSecret::default(), OnUnavailable::Deny);
    let server = Server::new(config, testing::store(), policies, secret, deny, Arc::clone(&metrics));
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (listener, admin) = (bind().await.expect("a port"), bind().await.expect("a port"));
    let (address, admin_address) = (listener.local_addr(), admin.local_addr());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(listener, Some(admin), async { drop(stopped.await) }));
    let (address, admin) = (address.expect("an address"), admin_address.expect("an address"));
    Running { address, admin, metrics, stop, task }
}

impl Running {
    async fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.address).await.expect("a connection"))
    }

    async fn greeted(&self) -> Client<TcpStream> {
        Client::greeted(TcpStream::connect(self.address).await.expect("a connection")).await
    }
}

async fn go_away(client: &mut Client<TcpStream>) -> GoAway {
    GoAway::decode(&client.expect(FrameType::GoAway, 0).await).expect("GOAWAY")
}

#[tokio::test]
async fn clients_share_their_states_and_leave_in_peace() {
    let server = run(ServerConfig::default()).await;
    let mut clients = [server.greeted().await, server.greeted().await];
    for id in 2..12 {
        let client = &mut clients[id as usize % 2];
        client.send(&check(id, "k")).await;
        assert_eq!(client.expect_reply(id, 1).await[0].reason, Reason::Ok);
    }
    let [first, second] = &mut clients;
    first.send(&check(12, "k")).await;
    assert_eq!(first.expect_reply(12, 1).await[0].reason, Reason::Denied);

    server.stop.send(()).expect("it runs");
    assert_eq!(go_away(first).await.last_id, u32::MAX);
    first.send(&check(13, "k")).await;
    first.expect_reply(13, 1).await;
    for (client, last_id) in [(first, 13), (second, 11)] {
        let last = loop {
            let last = go_away(client).await;
            if last.last_id != u32::MAX {
                break last;
            }
        };
        assert_eq!((last.last_id, last.reason), (last_id, GoAwayReason::Shutdown));
        client.expect_end().await;
    }
    drop(clients);
    server.task.await.expect("no panic").expect("no error");
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is free again");
    assert_eq!(server.metrics.connections.get(), 0);
    assert_eq!(server.metrics.connections_total.get(), 2);
}

#[tokio::test]
async fn connections_above_the_bound_are_told_and_closed() {
    let server = run(ServerConfig { connections_max: 1, ..ServerConfig::default() }).await;
    let first = server.greeted().await;
    let mut refused = server.connect().await;
    refused.send(&testing::hello(1, &Hello::default())).await;
    let error = refused.expect_error().await;
    assert_eq!(error.code, ErrorCode::TooManyConnections);
    assert_eq!(error.text, "this server is open to 1 connections at a time");

    drop(first);
    wait_until(|| server.metrics.connections.get() == 0).await;
    server.greeted().await;
}

async fn wait_until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            yield_now().await;
        }
    };
    timeout(testing::PATIENCE, wait).await.expect("in time");
}

#[tokio::test]
async fn a_server_that_is_dropped_lets_go_of_everything() {
    let server = run(ServerConfig::default()).await;
    let mut client = server.greeted().await;
    server.task.abort();
    client.expect_end().await;
    wait_until(|| server.metrics.connections.get() == 0).await;
}

#[tokio::test]
async fn health_and_metrics_are_served_beside_the_clients() {
    let server = run(ServerConfig::default()).await;
    let _client = server.greeted().await;
    let metrics = testing::http_get(server.admin, "/metrics").await;
    assert!(metrics.contains("\ntollgate_connections 1\n"), "{metrics}");
    server.stop.send(()).expect("it runs");
    server.task.await.expect("no panic").expect("no error");
    assert!(TcpStream::connect(server.admin).await.is_err());
}
