//! The `tollgate` command as people and scripts use it: exit status, standard output, standard error.

use std::{fs, net::TcpListener, time::Instant};

use serde_json::Value;

use crate::harness::{
    CLUSTER, RedisServer, Security, Tls, eventually,
    tollgate::{Output, ServeProcess, run},
};

const CONFIG: &str = r#"
[policies.api]
limits = ["token-bucket:100/1m,burst=20", "sliding-window:1000/1h"]
[policies.login]
limits = ["sliding-window:5/15m"]
"#;

/// `command` asked of a server, with `arguments`.
fn ask(server: &ServeProcess, command: &str, arguments: &[&str]) -> Output {
    run(&[&[command, "--server", &server.address.to_string()], arguments].concat())
}

fn objects(output: &Output) -> Vec<Value> {
    let lines = output.stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// A failure for people: nothing on the standard output, one line on the standard error.
fn assert_one_clear_line(output: &Output, status: i32, parts: &[&str]) {
    assert_eq!((output.status, output.stdout.as_str()), (Some(status), ""), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    for part in parts {
        assert!(output.stderr.contains(part), "`{part}` in {}", output.stderr);
    }
}

#[test]
fn five_pass_and_the_sixth_is_told_when_to_come_back() {
    let server = ServeProcess::start("");
    let check = || ask(&server, "check", &["--limit", "token-bucket:5/1m", "--json", "user:1"]);
    let start = Instant::now();
    for remaining in (0..5).rev() {
        let output = check();
        assert_eq!(output.status, Some(0), "{output:?}");
        assert_eq!(objects(&output)[0]["remaining"], remaining);
    }
    let output = check();
    // A token comes every 12 s, the first 12 s after the first was taken.
    let elapsed_ms = start.elapsed().as_millis() as u64;
    assert_eq!(output.status, Some(3), "{output:?}");
    let denied = &objects(&output)[0];
    assert_eq!((&denied["allowed"], &denied["reason"]), (&false.into(), &"denied".into()));
    let retry_after_ms = denied["retry_after_ms"].as_u64().expect("a number");
    assert!((12_000u64.saturating_sub(elapsed_ms)..=12_000).contains(&retry_after_ms), "{denied}");
    let reset_after_ms = denied["reset_after_ms"].as_u64().expect("a number");
    assert!((60_000u64.saturating_sub(elapsed_ms)..=60_001).contains(&reset_after_ms), "{denied}");
}

#[test]
fn json_has_an_object_a_line_in_the_order_of_the_keys() {
    let server = ServeProcess::start(CONFIG);
    let output = ask(&server, "check", &["--policy", "login", "--cost", "3", "--json", "b", "a", "b", "ü\n"]);
    assert_eq!(output.status, Some(3), "{output:?}");
    let objects = objects(&output);
    let keys: Vec<_> = objects.iter().map(|object| object["key"].as_str().expect("a text")).collect();
    assert_eq!(keys, ["b", "a", "b", "ü\n"]);
    for (object, allowed) in objects.iter().zip([true, true, false, true]) {
        let mut fields: Vec<_> = object.as_object().expect("an object").keys().map(String::as_str).collect();
        fields.sort_unstable();
        let promised = [
            "allowed",
            "degraded",
            "key",
            "limit",
            "reason",
            "remaining",
            "reset_after_ms",
            "retry_after_ms",
        ];
        assert_eq!(fields, promised);
        let told = (&object["allowed"], &object["limit"], &object["remaining"], &object["degraded"]);
        assert_eq!(told, (&allowed.into(), &5.into(), &2.into(), &false.into()));
        assert_eq!(object["retry_after_ms"].is_null(), allowed);
    }
    let never = ask(&server, "check", &["--policy", "login", "--cost", "6", "--json", "c"]);
    let never = &self::objects(&never)[0];
    assert_eq!((&never["reason"], &never["retry_after_ms"]), (&"cost_over_limit".into(), &Value::Null));
}

#[test]
fn peek_charges_nothing_and_refund_and_reset_give_back() {
    let server = ServeProcess::start(CONFIG);
    let left = || {
        let output = ask(&server, "check", &["--policy", "login", "--peek", "--json", "user:1"]);
        objects(&output)[0]["remaining"].as_u64().expect("a number")
    };
    assert_eq!(ask(&server, "check", &["--policy", "login", "--cost", "4", "user:1"]).status, Some(0));
    assert_eq!([left(), left()], [1, 1]);
    let refund = ask(&server, "refund", &["--policy", "login", "--cost", "2", "user:1"]);
    assert_eq!((refund.status, left()), (Some(0), 3), "{refund:?}");
    let reset = ask(&server, "reset", &["--policy", "login", "user:1"]);
    assert_eq!((reset.status, left()), (Some(0), 5), "{reset:?}");
}

#[test]
fn questions_that_cannot_be_answered_end_with_1_and_say_why() {
    let server = ServeProcess::start(CONFIG);
    let unknown = ask(&server, "check", &["--policy", "nobody", "user:1"]);
    assert_one_clear_line(&unknown, 1, &["nobody", "api", "login"]);
    let address = server.address.to_string();
    drop(server);
    let unreachable = run(&["check", "--server", &address, "--policy", "api", "user:1"]);
    assert_one_clear_line(&unreachable, 1, &[&address, "refused"]);
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &["check", "user:1"][..],
        &["check", "--limit", "token-bucket:10", "user:1"],
        &["check", "--limit", "token-bucket:10/1s", "--policy", "api", "user:1"],
        &["check", "--policy", "api", "--cost", "-1", "user:1"],
        &["check", "--policy", "api", "--cost", "1.5", "user:1"],
        &["check", "--policy", "api"],
        &["ring"],
        &["serve", "--verbose-please"],
        &["frobnicate"],
        &[],
    ] {
        let output = run(arguments);
        assert_eq!((output.status, output.stdout.as_str()), (Some(2), ""), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_version_and_completions_go_to_the_standard_output() {
    let version = run(&["--version"]);
    assert_eq!(version.stdout, format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(&["--help"]);
    for command in ["serve", "check", "reset", "refund", "policies", "ring", "completions"] {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{command} in {}", help.stdout);
    }
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&["completions", shell]);
        assert_eq!(completions.status, Some(0), "{completions:?}");
        assert!(completions.stdout.contains("retry") || completions.stdout.contains("policies"), "{shell}");
    }
}

#[test]
fn serve_that_cannot_start_says_why_in_a_line() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("an address").to_string();
    let listen = run(&["serve", "--listen", &taken, "--admin", "off"]);
    assert_one_clear_line(&listen, 1, &[&taken, "--listen"]);
    let admin = run(&["serve", "--listen", "127.0.0.1:0", "--admin", &taken]);
    assert_one_clear_line(&admin, 1, &[&taken, "--admin"]);
    for (url, part) in [
        ("http://127.0.0.1:6379", "redis://"),
        ("redis://127.0.0.1", "host:port"),
        ("redis://127.0.0.1:6379,127.0.0.1:6380", "redis-cluster://"),
    ] {
        assert_one_clear_line(&run(&["serve", "--store", url]), 1, &["--store", part]);
    }
    let missing = run(&["serve", "--config", "/nowhere/tollgate.toml"]);
    assert_one_clear_line(&missing, 1, &["/nowhere/tollgate.toml"]);
}

#[test]
fn configuration_is_judged_with_file_field_and_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tollgate.toml");
    let path = file.to_str().expect("a path in UTF-8");
    let wrong = "listen = \"here\"\n[connection]\nitems_max = 0\n[policies.\"a b\"]\nlimits = []\n\
                 [policies.api]\nlimits = [\"token-bucket:10\"]\n";
    fs::write(&file, wrong).expect("the directory can be written");
    for arguments in [&["policies", path][..], &["serve", "--config", path]] {
        let output = run(arguments);
        assert_eq!((output.status, output.stdout.as_str()), (Some(1), ""), "{output:?}");
        for part in [path, "listen", "here", "items_max", "a b", "policies.api", "token-bucket:10"] {
            assert!(output.stderr.contains(part), "`{part}` in {}", output.stderr);
        }
    }
    fs::write(&file, CONFIG).expect("the directory can be written");
    let good = run(&["policies", path]);
    assert_eq!(good.status, Some(0), "{good:?}");
    for part in ["api", "login", "token-bucket:100/1m,burst=20", "sliding-window:5/15m", "deny"] {
        assert!(good.stdout.contains(part), "`{part}` in {}", good.stdout);
    }
}

#[test]
fn authority_of_redis_is_read_from_its_file() {
    let tls = Tls::generate();
    let redis = RedisServer::start_with(Security { tls: Some(tls.clone()), login: None }, &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ca.pem");
    let config = format!(
        "store = \"{}\"\n[redis]\ntimeout_ms = 2000\ntls_ca_file = \"{}\"\n",
        redis.url(),
        file.display()
    );
    let config_file = directory.path().join("tollgate.toml");
    fs::write(&config_file, &config).expect("the directory can be written");
    let serve =
        ["serve", "--listen", "127.0.0.1:0", "--config", config_file.to_str().expect("a path in UTF-8")];
    assert_one_clear_line(&run(&serve), 1, &["tls_ca_file", "ca.pem"]);

    fs::write(&file, &tls.ca).expect("the directory can be written");
    let server = ServeProcess::start(&config);
    eventually("the store decides", || {
        let output = ask(&server, "check", &["--limit", "token-bucket:9/1h", "--peek", "--json", "user:1"]);
        objects(&output)[0]["degraded"] == false
    });
}

#[test]
fn configuration_of_the_deployment_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/tollgate.toml");
    let output = run(&["policies", path]);
    assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{output:?}");
}

#[test]
fn ring_tells_which_shard_has_a_key() {
    let output = run(&["ring", "--store", &CLUSTER.url(), "--json", "user:1", "user:2", "{a}b"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    for object in objects(&output) {
        let redis_key = format!("{{{}}}tollgate", object["tag"].as_str().expect("a text"));
        let slot: u16 = CLUSTER.nodes[0].command(&["CLUSTER", "KEYSLOT", &redis_key]);
        assert_eq!(object["slot"], slot);
        let node = CLUSTER.primary_of(slot).expect("a primary serves it");
        assert_eq!(object["shard"], format!("127.0.0.1:{}", CLUSTER.nodes[node].port));
    }
    let in_memory = run(&["ring", "--json", "user:1"]);
    assert!(objects(&in_memory)[0]["shard"].is_null(), "memory has no shards");
    let spread = run(&["ring", "--spread", "10000"]);
    assert!(spread.status == Some(0) && spread.stdout.contains("partitions"), "{spread:?}");
}

#[test]
fn redis_that_is_away_is_told_where_an_answer_is_needed_at_once() {
    let mut redis = RedisServer::start();
    let url = redis.url();
    redis.kill();
    let output = run(&["ring", "--store", &url.replace("redis://", "redis-cluster://:secret@"), "user:1"]);
    assert_one_clear_line(&output, 1, &[&redis.port.to_string()]);
    assert!(!output.stderr.contains("secret"), "{}", output.stderr);
}
