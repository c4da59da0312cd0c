//! Which requests share a frame, and the bounds of frames.

use std::{pin::pin, time::Duration};

use futures_util::{
    future::{join_all, poll_immediate},
    join,
};
use tollgate_client::{CheckError, Reason, Request};
use tollgate_protocol::{
    check::Operation,
    control::{Credit, Ping},
    frame::FrameType,
    varint,
};

use crate::server::{PATIENCE, Server, allowed, decided, soon};

#[tokio::test]
async fn calls_gather_while_a_reply_is_withheld() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut first = pin!(client.check(&api, "first", 1));
    assert!(poll_immediate(&mut first).await.is_none());
    let alone = connection.checks().await;
    assert_eq!(alone.keys(), ["first"], "an idle connection sends at once");

    let keys: Vec<_> = (0..100).map(|number| format!("key:{number}")).collect();
    let mut calls = pin!(join_all(keys.iter().map(|key| client.check(&api, key, 1))));
    assert!(poll_immediate(&mut calls).await.is_none());
    connection.allow(&alone).await;
    let together = connection.checks().await;
    assert_eq!(together.keys(), keys, "all that waited, in the order in which they came");

    let replies: Vec<_> = (0..100).map(allowed).collect();
    connection.reply(together.id, &replies).await;
    assert!(soon(first).await.unwrap().allowed);
    for (number, decision) in (0..).zip(soon(calls).await) {
        assert_eq!(decision.unwrap().remaining, Some(number));
    }
}

#[tokio::test]
async fn replies_may_come_in_any_order() {
    let server = Server::start_with(|hello| hello.items_max = 1).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        let (first, second) = (connection.checks().await, connection.checks().await);
        connection.reply(second.id, &[allowed(2)]).await;
        connection.reply(first.id, &[allowed(1)]).await;
    };
    let (answers, ()) = join!(soon(client.check_many(&api, &["a", "b"], 1)), script);
    let remaining: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().remaining).collect();
    assert_eq!(remaining, [Some(1), Some(2)]);
}

#[tokio::test]
async fn many_keys_are_split_at_items_max() {
    let server = Server::start_with(|hello| hello.items_max = 10).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let keys: Vec<_> = (0..25).map(|number| format!("key:{number}")).collect();
    let script = async {
        for expected in [10, 10, 5] {
            assert_eq!(connection.checks().await.len(), expected);
        }
        for id in 2..=4 {
            let count = if id == 4 { 5 } else { 10 };
            connection.reply(id, &vec![decided(true, Reason::Ok); count]).await;
        }
    };
    let (answers, ()) = join!(soon(client.check_many(&api, &keys, 1)), script);
    assert_eq!(answers.len(), 25);
    assert!(answers.iter().all(Result::is_ok));
}

#[tokio::test]
async fn many_keys_are_split_at_frame_bytes_max() {
    let server = Server::start_with(|hello| hello.frame_bytes_max = 4_096).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let keys: Vec<_> = (0..20).map(|number| format!("{number:01000}")).collect();
    let script = async {
        let mut answered = 0;
        while answered < keys.len() {
            let checks = connection.checks().await;
            assert!(checks.payload_bytes <= 4_096);
            connection.allow(&checks).await;
            answered += checks.len();
        }
    };
    let (answers, ()) = join!(soon(client.check_many(&api, &keys, 1)), script);
    assert!(answers.iter().all(Result::is_ok));
}

#[tokio::test]
async fn the_longest_group_with_the_longest_key_fits_in_the_smallest_frame() {
    let server = Server::start_with(|hello| hello.frame_bytes_max = 4_096).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let key = "k".repeat(1_024);
    let mut requests = vec![Request::check(&api, &key).cost(varint::VALUE_MAX).linked(); 15];
    requests.push(Request::check(&api, &key));
    let script = async {
        let checks = connection.checks().await;
        assert_eq!(checks.len(), 16);
        connection.allow(&checks).await;
    };
    let (answers, ()) = join!(soon(client.call_many(&requests)), script);
    assert!(answers.iter().all(Result::is_ok));

    requests.insert(0, requests[0]);
    let answers = soon(client.call_many(&requests)).await;
    assert_eq!(answers, vec![Err(CheckError::LinkTooLong { requests: 17 }); 17]);
}

#[tokio::test]
async fn batches_in_flight_stay_within_the_credit() {
    let server = Server::start_with(|hello| hello.inflight_max = 2).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut first = pin!(client.check(&api, "1", 1));
    assert!(poll_immediate(&mut first).await.is_none());
    let first_frame = connection.checks().await;
    let mut second = pin!(client.check(&api, "2", 1));
    assert!(poll_immediate(&mut second).await.is_none());
    assert_eq!(connection.checks().await.keys(), ["2"]);

    let mut third = pin!(client.check(&api, "3", 1));
    assert!(poll_immediate(&mut third).await.is_none());
    round_trip(&client, &mut connection).await;
    let mut fourth = pin!(client.check(&api, "4", 1));
    assert!(poll_immediate(&mut fourth).await.is_none());
    connection.allow(&first_frame).await;
    assert_eq!(connection.checks().await.keys(), ["3", "4"], "neither was sent before there was credit");
}

/// Lets the client's task run until it has handled what the server sent.
async fn round_trip(client: &tollgate_client::Client, connection: &mut crate::server::Connection) {
    let mut policy = crate::server::api();
    policy.name = "barrier".into();
    connection.send(FrameType::Policy, 0, |out| policy.encode(out)).await;
    soon(async {
        while client.policy("barrier").is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_credit_frame_lets_more_batches_out() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut first = pin!(client.check(&api, "1", 1));
    assert!(poll_immediate(&mut first).await.is_none());
    assert_eq!(connection.checks().await.keys(), ["1"]);
    let mut second = pin!(client.check(&api, "2", 1));
    assert!(poll_immediate(&mut second).await.is_none());
    connection.send(FrameType::Credit, 0, |out| Credit { inflight_max: 2 }.encode(out)).await;
    assert_eq!(connection.checks().await.keys(), ["2"]);
}

#[tokio::test]
async fn linked_requests_travel_together() {
    let server = Server::start_with(|hello| hello.items_max = 4).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let single = Request::check(&api, "a");
    let requests =
        [single, single, single, Request::check(&api, "b").linked(), Request::check(&api, "b").cost(2)];
    let script = async {
        let singles = connection.checks().await;
        assert_eq!(singles.keys(), ["a", "a", "a"], "the pair does not fit in whole");
        let pair = connection.checks().await;
        assert_eq!(pair.keys(), ["b", "b"]);
        assert!(pair.batch.items[0].linked && !pair.batch.items[1].linked);
        assert_eq!(pair.batch.items[1].cost, 2);
        connection.allow(&singles).await;
        let items = [decided(false, Reason::Linked), decided(false, Reason::Denied)];
        connection.reply(pair.id, &items).await;
    };
    let (answers, ()) = join!(soon(client.call_many(&requests)), script);
    assert_eq!(answers[3].as_ref().unwrap().reason, Reason::Linked);
    assert_eq!(answers[4].as_ref().unwrap().reason, Reason::Denied);

    let five = [Request::check(&api, "c").linked(); 4].into_iter().chain([Request::check(&api, "c")]);
    let answers = soon(client.call_many(&five.collect::<Vec<_>>())).await;
    assert_eq!(answers.len(), 5);
    for answer in answers {
        assert_eq!(answer, Err(CheckError::LinkTooLong { requests: 5 }), "more than items_max");
    }
}

#[tokio::test]
async fn each_operation_is_asked_as_such_and_its_grant_is_told() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        let expected = [
            (Operation::Check, 3, decided(true, Reason::Ok)),
            (Operation::Peek, 3, decided(false, Reason::Denied)),
            (Operation::Refund, 3, decided(true, Reason::Ok)),
            (Operation::Reset, 1, decided(true, Reason::Ok)),
            (Operation::Force, 3, decided(true, Reason::Ok)),
        ];
        for (operation, cost, reply) in expected {
            let checks = connection.checks().await;
            let item = checks.batch.items[0];
            assert_eq!((item.operation, item.cost), (operation, cost));
            connection.reply(checks.id, &[reply]).await;
        }
        let checks = connection.checks().await;
        assert_eq!(checks.batch.items[0].operation, Operation::TakeUpTo);
        let mut part = decided(true, Reason::Partial);
        part.granted = 2;
        connection.reply(checks.id, &[part]).await;
    };
    let calls = async {
        let key = "user:1";
        [
            client.check(&api, key, 3).await.unwrap().granted,
            client.peek(&api, key, 3).await.unwrap().granted,
            client.refund(&api, key, 3).await.unwrap().granted,
            client.reset(&api, key).await.unwrap().granted,
            client.force(&api, key, 3).await.unwrap().granted,
            client.take_up_to(&api, key, 3).await.unwrap().granted,
        ]
    };
    let (granted, ()) = join!(soon(calls), script);
    assert_eq!(granted, [3, 0, 0, 0, 3, 2]);
}

#[tokio::test]
async fn a_frame_carries_the_time_that_its_calls_have_left() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut call = pin!(client.check(&api, "1", 1));
    assert!(poll_immediate(&mut call).await.is_none());
    let budget = Duration::from_micros(connection.checks().await.batch.deadline_us.unwrap());
    assert!(budget > PATIENCE / 2 && budget <= PATIENCE, "{budget:?}");
}

#[tokio::test]
async fn a_client_with_another_deadline_shares_the_connection() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let hasty = client.with_deadline(PATIENCE / 4);
    let mut call = pin!(hasty.check(&api, "1", 1));
    assert!(poll_immediate(&mut call).await.is_none());
    let budget = Duration::from_micros(connection.checks().await.batch.deadline_us.unwrap());
    assert!(budget <= PATIENCE / 4, "{budget:?}");
}

#[tokio::test]
async fn a_quiet_client_sends_pings() {
    let server = Server::start_with(|hello| hello.idle_ms = 30).await;
    let (_client, mut connection) = server.connect().await;
    let mut ids = vec![];
    for _ in 0..3 {
        let ping = connection.frame().await;
        assert_eq!(ping.kind, FrameType::Ping);
        let opaque = Ping::decode(&ping.payload).unwrap();
        connection.send(FrameType::Pong, ping.id, |out| opaque.encode(out)).await;
        ids.push(ping.id);
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_each_get_their_own_answers() {
    let server = Server::start_with(|hello| hello.items_max = 100).await;
    let (client, connection) = server.connect().await;
    let serving = tokio::spawn(connection.serve(|key| str::from_utf8(key).unwrap().parse().unwrap()));
    let api = client.policy("api").unwrap();
    let tasks = (0..1_000u64).map(|task| {
        let (client, api) = (client.clone(), api.clone());
        tokio::spawn(async move {
            for call in 0..20 {
                let number = task * 1_000 + call;
                let decision = client.check(&api, number.to_string(), 1).await.unwrap();
                assert_eq!(decision.remaining, Some(number));
            }
        })
    });
    for task in soon(join_all(tasks)).await {
        task.unwrap();
    }
    drop(client);
    soon(serving).await.unwrap();
}
