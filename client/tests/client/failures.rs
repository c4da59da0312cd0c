//! Broken connections, broken servers, late answers, bad input.

use std::{pin::pin, time::Duration};

use futures_util::{
    future::{join_all, poll_immediate},
    join,
};
use tollgate_client::{CheckError, Client, ConnectError, Reason, Request};
use tollgate_protocol::{error::ErrorCode, frame::FrameType};

use crate::server::{Server, allowed, decided, soon};

#[tokio::test]
async fn what_was_sent_when_the_connection_broke_is_ambiguous_and_what_was_not_is_sent_again() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let mut sent = pin!(client.check(&api, "sent", 1));
    assert!(poll_immediate(&mut sent).await.is_none());
    assert_eq!(connection.checks().await.keys(), ["sent"]);
    let mut unsent = pin!(client.check(&api, "unsent", 1));
    assert!(poll_immediate(&mut unsent).await.is_none());
    drop(connection);

    let script = async {
        let mut connection = server.accept().await;
        let checks = connection.checks().await;
        assert_eq!(checks.keys(), ["unsent"], "what may have been executed is not sent again");
        connection.allow(&checks).await;
        connection
    };
    let (sent, unsent, _connection) = join!(soon(sent), soon(unsent), script);
    assert!(unsent.unwrap().allowed);
    let error = sent.unwrap_err();
    assert!(error.ambiguous());
    assert!(error.to_string().contains("may have been executed"), "{error}");
    assert!(error.to_string().contains(&server.address()), "{error}");
}

#[tokio::test]
async fn a_peek_is_sent_again() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        assert_eq!(connection.checks().await.len(), 1);
        drop(connection);
        let mut connection = server.accept().await;
        let checks = connection.checks().await;
        connection.reply(checks.id, &[allowed(7)]).await;
        connection
    };
    let (decision, _connection) = join!(soon(client.peek(&api, "1", 1)), script);
    assert_eq!(decision.unwrap().remaining, Some(7));
}

#[tokio::test]
async fn requests_of_one_call_fail_each_for_itself() {
    let server = Server::start_with(|hello| (hello.items_max, hello.inflight_max) = (1, 1)).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let requests = [Request::check(&api, "a"), Request::check(&api, "b"), Request::peek(&api, "c")];
    let script = async {
        let first = connection.checks().await;
        connection.allow(&first).await;
        assert_eq!(connection.checks().await.keys(), ["b"]);
        drop(connection);
        let mut connection = server.accept().await;
        let last = connection.checks().await;
        assert_eq!(last.keys(), ["c"]);
        connection.allow(&last).await;
        connection
    };
    let (answers, _connection) = join!(soon(client.call_many(&requests)), script);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(CheckError::Ambiguous { .. })), "{answers:?}");
}

#[tokio::test]
async fn a_call_can_be_dropped_at_any_point() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let in_flight = {
        let mut call = pin!(client.check(&api, "in flight", 1));
        assert!(poll_immediate(&mut call).await.is_none());
        connection.checks().await
    };
    {
        let mut waiting = pin!(client.check(&api, "waiting", 1));
        assert!(poll_immediate(&mut waiting).await.is_none());
        let keys = ["many:1", "many:2"];
        let mut many = pin!(client.check_many(&api, &keys, 1));
        assert!(poll_immediate(&mut many).await.is_none());
    }
    connection.allow(&in_flight).await;
    let waiting = connection.checks().await;
    assert_eq!(waiting.keys(), ["waiting", "many:1", "many:2"]);
    connection.allow(&waiting).await;
    let script = async {
        let checks = connection.checks().await;
        connection.allow(&checks).await;
    };
    let (decision, ()) = join!(soon(client.check(&api, "after", 1)), script);
    assert!(decision.unwrap().allowed, "the credit of dropped calls came back with their replies");
}

#[tokio::test]
async fn a_late_answer_is_an_error_and_harms_nobody_else() {
    let server = Server::start_with(|hello| hello.inflight_max = 1).await;
    let (client, mut connection) =
        server.connect_with(|builder| builder.deadline(Duration::from_millis(300))).await;
    let api = client.policy("api").unwrap();
    let mut sent = pin!(client.check(&api, "sent", 1));
    assert!(poll_immediate(&mut sent).await.is_none());
    let late = connection.checks().await;
    let keys = ["unsent:1", "unsent:2"];
    let (sent, unsent, many) =
        join!(soon(sent), soon(client.check(&api, "unsent", 1)), soon(client.check_many(&api, &keys, 1)));
    assert!(matches!(sent, Err(CheckError::Deadline { sent: true, .. })), "{sent:?}");
    assert!(sent.unwrap_err().ambiguous());
    for answer in many.into_iter().chain([unsent]) {
        assert!(matches!(answer, Err(CheckError::Deadline { sent: false, .. })), "{answer:?}");
        assert!(!answer.unwrap_err().ambiguous());
    }

    connection.allow(&late).await;
    let script = connection.serve(|key| {
        assert_eq!(key, b"after", "what was answered as not sent is never sent");
        7
    });
    let after = async {
        // On a busy machine this one may be late, too.
        loop {
            if let Ok(decision) = client.check(&api, "after", 1).await {
                return decision;
            }
        }
    };
    tokio::select! {
        decision = soon(after) => assert_eq!(decision.remaining, Some(7)),
        () = script => panic!("the client closed the connection"),
    }
}

#[tokio::test]
async fn an_unknown_reason_leaves_the_verdict() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        let checks = connection.checks().await;
        let items = [decided(true, Reason::Other(31)), decided(false, Reason::Other(30))];
        connection.reply(checks.id, &items).await;
    };
    let (answers, ()) = join!(soon(client.check_many(&api, &["a", "b"], 1)), script);
    let [Ok(first), Ok(second)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((first.allowed, first.reason, first.granted), (true, Reason::Other(31), 1));
    assert_eq!((second.allowed, second.reason, second.granted), (false, Reason::Other(30), 0));
}

/// What a server says to a check, and what the caller reads of it.
async fn check_against(bytes: &[u8], expected: &str) {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        connection.checks().await;
        connection.send_bytes(bytes).await;
        connection.closed().await;
        let mut connection = server.accept().await;
        let checks = connection.checks().await;
        assert_eq!(checks.keys(), ["after"]);
        connection.allow(&checks).await;
        connection
    };
    let calls = async {
        let error = client.check(&api, "1", 1).await.unwrap_err();
        assert!(error.ambiguous());
        assert!(error.to_string().contains(expected), "{error}");
        assert!(client.check(&api, "after", 1).await.unwrap().allowed);
    };
    let ((), _connection) = join!(soon(calls), script);
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_left_and_tried_again() {
    let cases: [(&[u8], &str); 6] = [
        // Another protocol; a length above the negotiated one; a reply of two decisions to one check.
        (b"HTTP/1.1 400 Bad Request\r\n", "is it a Tollgate server?"),
        (&[0xff, 0xff, 0xff, 0x90, 2, 0, 0, 0], "at most 262144 were negotiated"),
        (&[3, 0, 0, 0x90, 2, 0, 0, 0, 2, 0x80, 0x80], "2 decisions, 1 were asked for"),
        // A reply to nothing; a PONG to nothing; a frame of clients.
        (&[2, 0, 0, 0x90, 9, 0, 0, 0, 1, 0x80], "unexpected Reply frame of id 9"),
        (&[8, 0, 0, 0x83, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "unexpected Pong frame of id 9"),
        (&[0, 0, 0, 0x01, 9, 0, 0, 0], "unexpected Hello frame of id 9"),
    ];
    join_all(cases.map(|(bytes, expected)| check_against(bytes, expected))).await;
}

#[tokio::test]
async fn the_words_of_a_server_that_closes_reach_the_caller() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let script = async {
        connection.checks().await;
        connection.error(ErrorCode::Internal, "the store burnt down").await;
        connection.closed().await;
    };
    let (answer, ()) = join!(soon(client.check(&api, "1", 1)), script);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("the store burnt down"), "{error}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_taken_for_dead() {
    let server = Server::start().await;
    let (client, mut connection) =
        server.connect_with(|builder| builder.deadline(Duration::from_millis(300))).await;
    let api = client.policy("api").unwrap();
    let mut call = pin!(client.check(&api, "1", 1));
    assert!(poll_immediate(&mut call).await.is_none());
    connection.checks().await;
    assert!(soon(call).await.is_err());
    connection.closed().await;
    server.accept().await;
}

#[tokio::test]
async fn bad_input_is_refused_without_asking() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let api = client.policy("api").unwrap();
    let long = "x".repeat(1_025);
    let cases = [
        (Request::check(&api, ""), "the key has 0 bytes, 1 to 1024 are allowed"),
        (Request::check(&api, &long), "the key has 1025 bytes, 1 to 1024 are allowed"),
        (Request::check(&api, "1").cost(1 << 53), "the cost 9007199254740992 is above 2^53 - 1"),
        (Request::refund(&api, "1").cost(0), "the cost is 0"),
        (Request::check(&api, "1").linked(), "a linked request must be a check"),
    ];
    for (request, expected) in cases {
        let error = soon(client.call(request)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.ambiguous());
    }

    // In a call of many, a bad request takes those with it that it is linked with, and no other.
    let link = Request::check(&api, "b").linked();
    let requests =
        [Request::check(&api, "a"), link, Request::check(&api, "b").cost(1 << 53), Request::peek(&api, "c")];
    let script = async {
        let checks = connection.checks().await;
        assert_eq!(checks.keys(), ["a", "c"]);
        connection.allow(&checks).await;
    };
    let (answers, ()) = join!(soon(client.call_many(&requests)), script);
    let bad = CheckError::BadCost { cost: 1 << 53 };
    assert!(answers[0].is_ok() && answers[3].is_ok());
    assert_eq!((&answers[1], &answers[2]), (&Err(bad.clone()), &Err(bad)));
    for (first, second) in [
        (link, Request::check(&api, "other key")),
        (link, Request::peek(&api, "b")),
        (Request::peek(&api, "b").linked(), Request::check(&api, "b")),
    ] {
        let answers = soon(client.call_many(&[first, second])).await;
        assert_eq!(answers, [Err(CheckError::BadLink), Err(CheckError::BadLink)]);
    }
    let answers = soon(client.call_many(&[link, Request::check(&api, "b").cost(0)])).await;
    assert_eq!(answers, [Err(CheckError::ZeroCost), Err(CheckError::ZeroCost)]);
    assert_eq!(soon(client.call_many(&[])).await, []);
}

#[tokio::test]
async fn a_client_that_cannot_connect_says_why() {
    let address = Server::start().await.address();
    let error = soon(Client::connect(&address)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("no server could be reached: {}: ", address)), "{text}");
    assert!(text.contains("refused"), "{text}");

    let server = Server::start().await;
    let script = async {
        let mut connection = server.accept_silent().await;
        connection.frame().await;
        connection.error(ErrorCode::TooManyConnections, "10000 connections are open").await;
    };
    let (error, ()) = join!(soon(Client::connect(server.address())), script);
    assert!(error.unwrap_err().to_string().contains("10000 connections are open"));

    let stranger = async {
        let mut connection = server.accept_silent().await;
        connection.frame().await;
        connection.send_bytes(b"220 mail.example.com ESMTP\r\n").await;
        connection.closed().await;
    };
    let (error, ()) = join!(soon(Client::connect(server.address())), stranger);
    assert!(error.unwrap_err().to_string().contains("is it a Tollgate server?"));

    let wrong = async {
        let mut connection = server.accept_silent().await;
        let hello = connection.frame().await;
        connection.send(FrameType::Defined, hello.id, |_| {}).await;
    };
    let (error, ()) = join!(soon(Client::connect(server.address())), wrong);
    assert!(error.unwrap_err().to_string().contains("unexpected Defined frame"));

    let server = Server::start_with(|hello| hello.features = 1).await;
    let (error, _connection) = join!(soon(Client::connect(server.address())), server.accept());
    assert!(error.unwrap_err().to_string().contains("features that were not offered"));
}

#[tokio::test]
async fn options_out_of_range_are_refused() {
    let none = Client::builder().connect().await.unwrap_err();
    assert_eq!(none, ConnectError::NoServers);
    let twice = Client::builder().servers(["a:1", "b:1", "a:1"]).connect().await.unwrap_err();
    assert_eq!(twice, ConnectError::Twice { server: "a:1".into() });
    for deadline in [Duration::ZERO, Duration::MAX] {
        let error = Client::builder().servers(["a:1"]).deadline(deadline).connect().await.unwrap_err();
        assert_eq!(error, ConnectError::BadDeadline { deadline });
    }
}
