//! Servers that go away, come back, and stand in for each other.

use std::{pin::pin, time::Duration};

use futures_util::{future::poll_immediate, join};
use tokio::task::{JoinHandle, JoinSet};
use tollgate_client::{CheckError, Client, PolicyRef, Request, RingSecret};
use tollgate_protocol::ring::Ring;

use crate::server::{PATIENCE, Server, soon};

const ALL: u32 = u32::MAX;

#[tokio::test]
async fn what_lies_above_the_last_id_of_a_goaway_moves() {
    let server = Server::start_with(|hello| hello.items_max = 1).await;
    let (client, mut old) = server.connect().await;
    let api = client.policy("api").unwrap();
    let keys = ["1", "2", "3"];
    let mut call = pin!(client.check_many(&api, &keys, 1));
    assert!(poll_immediate(&mut call).await.is_none());
    let first = old.checks().await;
    let (second, third) = (old.checks().await, old.checks().await);
    assert!(first.id < second.id && second.id < third.id);

    let script = async {
        old.go_away(ALL, Duration::ZERO).await;
        let mut new = server.accept().await;
        old.go_away(first.id, Duration::ZERO).await;
        for key in ["2", "3"] {
            let checks = new.checks().await;
            assert_eq!(checks.keys(), [key]);
            new.allow(&checks).await;
        }
        old.allow(&first).await;
        old.closed().await;
        new
    };
    let (answers, _new) = join!(soon(call), script);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn after_a_goaway_calls_take_a_new_connection_and_the_old_one_finishes() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut old) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut in_flight = pin!(client.check(&api, "in flight", 1));
    assert!(poll_immediate(&mut in_flight).await.is_none());
    let checks = old.checks().await;
    let mut waiting = pin!(client.check(&api, "waiting", 1));
    assert!(poll_immediate(&mut waiting).await.is_none());

    let script = async {
        // Nobody would wait for so long: a call that has nowhere else to go does not.
        old.go_away(ALL, 1_000 * PATIENCE).await;
        let mut new = server.accept().await;
        let moved = new.checks().await;
        assert_eq!(moved.keys(), ["waiting"]);
        new.allow(&moved).await;
        old.allow(&checks).await;
        old.closed().await;
        new
    };
    let (in_flight, waiting, _new) = join!(soon(in_flight), soon(waiting), script);
    assert!(in_flight.unwrap().allowed && waiting.unwrap().allowed);
}

#[tokio::test]
async fn a_call_that_finds_no_server_says_which_were_tried() {
    let server = Server::start().await;
    let (client, connection) =
        server.connect_with(|builder| builder.deadline(Duration::from_millis(300))).await;
    let api = client.policy("api").unwrap();
    let address = server.address();
    drop((server, connection));
    let unreachable = async {
        loop {
            match client.check(&api, "1", 1).await {
                Err(error @ CheckError::Unreachable { .. }) if error.to_string().contains("refused") => {
                    return error;
                }
                // The client has not seen yet that the connection is closed, or has not tried again.
                Err(CheckError::Ambiguous { .. } | CheckError::Unreachable { .. }) => {}
                answer => panic!("{answer:?}"),
            }
        }
    };
    let error = soon(unreachable).await;
    assert!(!error.ambiguous());
    assert!(error.to_string().contains(&format!("{address}: ")), "{error}");
}

#[tokio::test]
async fn a_call_waits_for_the_server_to_come_back() {
    let server = Server::start().await;
    let (client, connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let address = server.address();
    drop((server, connection));
    let script = async {
        let server = Server::start_at(&address).await;
        server.accept().await.serve(|_| 9).await;
    };
    let call = async {
        // A peek is sent again where the end of the connection was not seen yet.
        let answer = client.peek(&api, "1", 1).await;
        drop(client);
        answer
    };
    let (answer, ()) = join!(soon(call), script);
    assert_eq!(answer.unwrap().remaining, Some(9));
}

/// A server that answers on every connection; `remaining` in its answers is its number.
struct Running {
    task: JoinHandle<()>,
    address: String,
}

impl Running {
    fn start(server: Server, number: u64) -> Self {
        let address = server.address();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let connection = server.accept_whenever().await;
                connections.spawn(connection.serve(move |_| number));
            }
        });
        Self { task, address }
    }

    /// Closes the listener and all connections.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// The server that answers for each key. Peeks, as they may be sent again when a server dies.
async fn places(client: &Client, policy: &PolicyRef, keys: &[String]) -> Vec<u64> {
    let requests: Vec<_> = keys.iter().map(|key| Request::peek(policy, key)).collect();
    let answers = soon(client.call_many(&requests)).await;
    answers.into_iter().map(|answer| answer.unwrap().remaining.unwrap()).collect()
}

#[tokio::test]
async fn keys_of_a_dead_server_go_to_the_next_and_come_back() {
    let first = Running::start(Server::start().await, 1);
    let second = Running::start(Server::start().await, 2);
    let servers = [first.address.clone(), second.address.clone()];
    let builder = Client::builder().servers(servers.clone()).deadline(PATIENCE);
    let client = soon(builder.connect()).await.unwrap();
    let policy = client.policy("api").unwrap();
    let keys: Vec<_> = (0..50).map(|number| format!("key:{number}")).collect();
    let ring = Ring::new(RingSecret::default(), &servers);
    let home: Vec<_> = keys.iter().map(|key| ring.node(key.as_bytes()).unwrap() as u64 + 1).collect();
    assert!(home.contains(&1) && home.contains(&2));
    assert_eq!(places(&client, &policy, &keys).await, home);

    first.kill().await;
    assert_eq!(places(&client, &policy, &keys).await, [2; 50]);

    let _first = Running::start(Server::start_at(&servers[0]).await, 1);
    soon(async { while places(&client, &policy, &keys).await != home {} }).await;
    second.kill().await;
    assert_eq!(places(&client, &policy, &keys).await, [1; 50]);
}

#[tokio::test]
async fn a_client_starts_with_the_servers_that_are_up() {
    let up = Running::start(Server::start().await, 1);
    let down = Server::start().await;
    let down_address = down.address();
    drop(down);
    let builder = Client::builder().servers([down_address.clone(), up.address.clone()]).deadline(PATIENCE);
    let client = soon(builder.connect()).await.unwrap();
    let policy = client.policy("api").unwrap();
    let keys: Vec<_> = (0..50).map(|number| format!("key:{number}")).collect();
    assert_eq!(places(&client, &policy, &keys).await, [1; 50]);

    let _late = Running::start(Server::start_at(&down_address).await, 2);
    soon(async { while !places(&client, &policy, &keys).await.contains(&2) {} }).await;
}
