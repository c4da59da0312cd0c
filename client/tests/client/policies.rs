//! Named and inline policies.

use futures_util::join;
use tollgate_client::{CheckError, Limits, Reason};
use tollgate_protocol::{
    frame::FrameType,
    reply::{Details, ReplyItem},
};

use crate::server::{Server, api, decided, limit, soon};

#[tokio::test]
async fn an_inline_policy_is_defined_once_a_connection_before_its_first_check() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let limits = Limits::new(vec![limit("token-bucket:10/1s"), limit("sliding-window:100/1m")]).unwrap();
    let policy = client.define(limits.clone()).unwrap();
    let script = async {
        let (id, define) = connection.define().await;
        assert_eq!(define.limits, limits);
        connection.defined(id, None).await;
        for _ in 0..2 {
            let checks = connection.checks().await;
            assert_eq!(u64::from(checks.batch.items[0].alias), define.alias);
            connection.allow(&checks).await;
        }
    };
    let calls = async {
        client.check(&policy, "1", 1).await.unwrap();
        client.check(&policy, "2", 1).await.unwrap();
    };
    join!(soon(calls), script);

    drop(connection);
    let script = async {
        let mut connection = server.accept().await;
        let (id, define) = connection.define().await;
        assert_eq!(define.limits, limits, "a new connection knows nothing of the last one's");
        connection.defined(id, None).await;
        let checks = connection.checks().await;
        connection.allow(&checks).await;
        connection
    };
    // A peek, as it may be sent again where the end of the last connection was not seen yet.
    let (decision, _connection) = join!(soon(client.peek(&policy, "3", 1)), script);
    assert!(decision.unwrap().allowed);
}

#[tokio::test]
async fn the_same_limits_are_the_same_policy() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let first = client.define(limit("token-bucket:10/1s")).unwrap();
    let second = client.define(limit("token-bucket:10/1s,burst=10")).unwrap();
    let other = client.define(limit("token-bucket:10/1s,burst=20")).unwrap();
    let script = async {
        let (_, define) = connection.define().await;
        let (_, other) = connection.define().await;
        let checks = connection.checks().await;
        let aliases: Vec<_> = checks.batch.items.iter().map(|item| u64::from(item.alias)).collect();
        assert_eq!(aliases, [define.alias, define.alias, other.alias]);
        assert!(define.alias % 2 == 1 && other.alias % 2 == 1 && define.alias != other.alias);
        connection.allow(&checks).await;
    };
    let calls = async {
        join!(client.check(&first, "1", 1), client.check(&second, "2", 1), client.check(&other, "3", 1))
    };
    let (answers, ()) = join!(soon(calls), script);
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok());
}

#[tokio::test]
async fn a_refused_policy_is_an_error_of_its_calls_alone() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let refused = client.define(limit("token-bucket:7/366d")).unwrap();
    let named = client.policy("api").unwrap();
    let script = async {
        let (id, _) = connection.define().await;
        let checks = connection.checks().await;
        connection.defined(id, Some("7 tokens in 366d cannot be counted exactly")).await;
        let items = [decided(false, Reason::UnknownPolicy), decided(true, Reason::Ok)];
        connection.reply(checks.id, &items).await;
    };
    let calls = async { join!(client.check(&refused, "1", 1), client.check(&named, "2", 1)) };
    let ((first, second), ()) = join!(soon(calls), script);
    assert!(second.unwrap().allowed);
    let first = first.unwrap_err();
    assert!(!first.ambiguous());
    assert_eq!(
        first.to_string(),
        format!(
            "the server {} refuses the policy `token-bucket:7/366d`: 7 tokens in 366d cannot be counted exactly",
            server.address()
        )
    );
    let again = soon(client.check(&refused, "1", 1)).await.unwrap_err();
    assert_eq!(again, first, "known without asking again");
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_those_that_are_known() {
    let server = Server::start_with(|hello| {
        let mut login = api();
        (login.name, login.alias) = ("login".into(), 2);
        hello.policies.push(login);
    })
    .await;
    let (client, _connection) = server.connect().await;
    let error = client.policy("apo").unwrap_err();
    assert_eq!(error.to_string(), "no server knows the policy `apo`; known are: api, login");
}

#[tokio::test]
async fn a_decision_names_the_limit_that_was_the_tightest() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let policy = client.policy("api").unwrap();
    let details =
        Details { remaining: 0, reset_after_us: 2_048, retry_after_us: Some(600_000), limit_index: 0 };
    let denied = ReplyItem { details: Some(details), ..decided(false, Reason::Denied) };
    let script = async {
        let checks = connection.checks().await;
        assert!(checks.batch.details);
        connection.reply(checks.id, &[denied]).await;
    };
    let (decision, ()) = join!(soon(client.check(&policy, "1", 1)), script);
    let decision = decision.unwrap();
    assert!(!decision.allowed);
    assert_eq!((decision.reason, decision.granted, decision.remaining), (Reason::Denied, 0, Some(0)));
    assert_eq!(decision.reset_after.unwrap().as_micros(), 2_048);
    assert_eq!(decision.retry_after.unwrap().as_millis(), 600);
    assert_eq!((decision.limit_index, decision.limit), (Some(0), Some(limit("token-bucket:100/1m"))));
}

#[tokio::test]
async fn a_policy_that_changes_is_taken_over() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let policy = client.policy("api").unwrap();
    let script = async {
        let before = connection.checks().await;
        assert_eq!(before.batch.items[0].alias, 0);
        let mut changed = api();
        (changed.alias, changed.version, changed.limits) = (6, 2, limit("token-bucket:9/1s").into());
        connection.send(FrameType::Policy, 0, |out| changed.encode(out)).await;
        connection.allow(&before).await;
        let after = connection.checks().await;
        assert_eq!(after.batch.items[0].alias, 6);
        let details = Some(Details::default());
        connection.reply(after.id, &[ReplyItem { details, ..decided(true, Reason::Ok) }]).await;
    };
    let calls = async {
        client.check(&policy, "1", 1).await.unwrap();
        client.check(&policy, "2", 1).await.unwrap()
    };
    let (after, ()) = join!(soon(calls), script);
    assert_eq!(after.limit, Some(limit("token-bucket:9/1s")));
}

#[tokio::test]
async fn a_name_that_the_server_lost_is_an_error() {
    let server = Server::start().await;
    let (client, mut connection) = server.connect().await;
    let policy = client.policy("api").unwrap();
    let script = async {
        let checks = connection.checks().await;
        connection.reply(checks.id, &[decided(false, Reason::UnknownPolicy)]).await;
    };
    let (answer, ()) = join!(soon(client.check(&policy, "1", 1)), script);
    let error = answer.unwrap_err();
    assert!(matches!(error, CheckError::UnknownPolicy { .. }), "{error}");
    assert!(error.to_string().contains("`api`") && error.to_string().contains(&server.address()), "{error}");
}

#[tokio::test]
async fn a_policy_of_another_client_is_refused() {
    let server = Server::start().await;
    let (client, _connection) = server.connect().await;
    let (other, _other_connection) = server.connect().await;
    let policy = other.policy("api").unwrap();
    let error = soon(client.check(&policy, "1", 1)).await.unwrap_err();
    assert!(matches!(error, CheckError::ForeignPolicy { .. }), "{error}");
}

#[tokio::test]
async fn more_inline_policies_than_a_connection_holds_are_refused() {
    let server = Server::start().await;
    let (client, _connection) = server.connect().await;
    for number in 1..=4_096 {
        client.define(limit(&format!("token-bucket:{number}/1s"))).unwrap();
    }
    let error = client.define(limit("token-bucket:5000/1s")).unwrap_err();
    assert!(error.to_string().contains("4096 different ones are allowed"), "{error}");
    assert!(client.define(limit("token-bucket:1/1s")).is_ok(), "a known one is no new one");
}
