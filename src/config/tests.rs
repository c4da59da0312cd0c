use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::*;
use crate::policy::PolicyTable;

/// A file with this text, for as long as the directory is kept.
fn written(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tollgate.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn load_with(text: &str, overrides: Overrides) -> Result<Config, ConfigError> {
    let (_directory, path) = written(text);
    Config::load(Some(&path), overrides)
}

fn load(text: &str) -> Config {
    load_with(text, Overrides::default()).unwrap()
}

/// What is told of a file that does not do, with the path shortened to its name.
fn told(text: &str) -> String {
    let (directory, path) = written(text);
    let error = Config::load(Some(&path), Overrides::default()).unwrap_err();
    error.to_string().replace(&format!("{}/", directory.path().display()), "")
}

#[test]
fn nothing_said_is_a_server_on_this_machine_that_keeps_states_in_memory() {
    let config = Config::load(None, Overrides::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7420");
    assert_eq!(config.admin.map(|admin| admin.to_string()).as_deref(), Some("127.0.0.1:7421"));
    assert_eq!(config.log, LogConfig { level: LogLevel::Info, format: LogFormat::Human });
    let StoreConfig::Memory(memory) = config.store else { panic!("{:?}", config.store) };
    assert_eq!(memory, MemoryConfig { bytes_max: 1_073_741_824, keys_max: 10_000_000 });
    assert_eq!(config.placement.partitions, 64);
    assert_eq!(config.placement.key_prefix, "tollgate");
    assert_eq!(config.on_unavailable, OnUnavailable::Deny);
    assert!(config.placement.secret.is_none() && config.policies.is_empty());
    assert_eq!(config.connection, ServerConfig::default());
    assert_eq!(format!("{config:?}"), format!("{:?}", load("")));
}

#[test]
fn one_redis_has_fewer_partitions_than_a_cluster_unless_they_are_given() {
    let partitions = |store: &str, partitions| {
        let store = Some(Secret::from(store.to_owned()));
        let overrides = Overrides { store, partitions, ..Overrides::default() };
        Config::load(None, overrides).unwrap().placement.partitions
    };
    assert_eq!(partitions("redis://h:1", None), 16);
    assert_eq!(partitions("redis-cluster://h:1", None), 64);
    assert_eq!(partitions("redis://h:1", Some(64)), 64);
}

#[test]
fn every_key_of_the_file_is_taken() {
    let ca = written("certificates");
    let config = load(&format!(
        r#"
        listen = "[::]:7000"
        admin = "off"
        store = "rediss-cluster://user:pass@a:1,b:2"
        on_unavailable = "allow"
        [log]
        level = "debug"
        format = "json"
        [connection]
        connections_max = 1
        inflight_max = 2
        frame_bytes_max = 5000
        items_max = 4
        idle_ms = 5
        [memory]
        bytes_max = 5000
        keys_max = 7
        [redis]
        timeout_ms = 8
        partitions = 9
        placement_secret = "a secret"
        key_prefix = "other:1"
        tls_ca_file = {:?}
        [policies.api]
        limits = ["token-bucket:100/1m,burst=20", "sliding-window:1000/1h"]
        on_unavailable = "deny"
        [policies."a/b"]
        limits = ["sliding-window:1/1d"]
        "#,
        ca.1
    ));
    assert_eq!((config.listen.to_string().as_str(), config.admin), ("[::]:7000", None));
    assert_eq!(config.log, LogConfig { level: LogLevel::Debug, format: LogFormat::Json });
    let StoreConfig::Redis(redis) = &config.store else { panic!("{:?}", config.store) };
    assert_eq!(redis.url.to_string(), "rediss-cluster://a:1,b:2");
    assert_eq!(redis.url.password.as_deref(), Some("pass"));
    assert_eq!(redis.timeout, std::time::Duration::from_millis(8));
    assert_eq!(redis.tls_ca_pem.as_deref(), Some(&b"certificates"[..]));
    assert_eq!(config.placement.secret, Some(RingSecret::from_text("a secret")));
    assert_eq!((config.placement.partitions, config.placement.key_prefix.as_str()), (9, "other:1"));
    let connection = ServerConfig {
        connections_max: 1,
        inflight_max: 2,
        frame_bytes_max: 5_000,
        items_max: 4,
        idle_ms: 5,
    };
    assert_eq!(config.connection, connection);
    let policies: Vec<_> = config
        .policies
        .iter()
        .map(|policy| (policy.name.as_str(), policy.limits.to_string(), policy.on_unavailable))
        .collect();
    let both = "token-bucket:100/1m,burst=20 + sliding-window:1000/1h".to_owned();
    let one = "sliding-window:1/1d".to_owned();
    assert_eq!(policies, [("a/b", one, OnUnavailable::Allow), ("api", both, OnUnavailable::Deny)]);
}

#[test]
fn what_is_said_above_the_file_wins() {
    let file = r#"
        listen = "nonsense"
        admin = "off"
        store = "redis://file:1"
        [log]
        level = "error"
        format = "json"
        [redis]
        timeout_ms = 0
        deny_cache_entries = 1
        partitions = 1
        placement_secret = "file"
    "#;
    let overrides = Overrides {
        listen: Some("127.0.0.1:1".into()),
        admin: Some("127.0.0.1:2".into()),
        store: Some(Secret::from("redis://flag:2".to_owned())),
        store_timeout_ms: Some(3),
        deny_cache_entries: Some(0),
        partitions: Some(4),
        placement_secret: Some(Secret::from("flag".to_owned())),
        log_level: Some(LogLevel::Warn),
        log_format: Some(LogFormat::Human),
    };
    let config = load_with(file, overrides).unwrap();
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.admin.map(|admin| admin.port()), Some(2));
    let StoreConfig::Redis(redis) = &config.store else { panic!("{:?}", config.store) };
    assert_eq!((redis.url.to_string().as_str(), redis.timeout.as_millis()), ("redis://flag:2", 3));
    assert_eq!(redis.deny_cache_entries, 0);
    assert_eq!(config.placement.partitions, 4);
    assert_eq!(config.placement.secret, Some(RingSecret::from_text("flag")));
    assert_eq!(config.log, LogConfig { level: LogLevel::Warn, format: LogFormat::Human });
}

#[test]
fn all_problems_are_told_each_with_its_key_its_value_and_what_to_do() {
    let file = r#"
        listen = "localhost"
        admin = "none"
        store = "postgres://user:hunter2@host"
        [connection]
        connections_max = 0
        inflight_max = -1
        frame_bytes_max = 100
        items_max = 65537
        idle_ms = -1
        [memory]
        bytes_max = 1
        keys_max = 0
        [redis]
        timeout_ms = 60001
        deny_cache_entries = -1
        partitions = 4097
        placement_secret = ""
        key_prefix = "{x}"
        tls_ca_file = "missing.pem"
        [policies."a b"]
        limits = ["sliding-window:1/1d"]
        [policies.api]
        limits = ["token-bucket:1/1s", "leaky:1/1s", "token-bucket:9007199254740991/1s"]
        [policies.none]
        limits = []
    "#;
    let expected = r#"
tollgate.toml: listen = "localhost" is not an IP address and a port: write e.g. 127.0.0.1:7420, or [::]:7420 for all interfaces
tollgate.toml: admin = "none" is not an IP address and a port: write e.g. 127.0.0.1:7421, or off for none
tollgate.toml: connection.connections_max = 0 is out of range: choose 1 to 1000000
tollgate.toml: connection.inflight_max = -1 is out of range: choose 1 to 65535
tollgate.toml: connection.frame_bytes_max = 100 is out of range: choose 4096 to 16777215
tollgate.toml: connection.items_max = 65537 is out of range: choose 1 to 65536
tollgate.toml: connection.idle_ms = -1 is out of range: choose 1 to 86400000
tollgate.toml: memory.bytes_max = 1 is out of range: choose 4096 to 1125899906842624
tollgate.toml: memory.keys_max = 0 is out of range: choose 1 to 1099511627776
tollgate.toml: redis.timeout_ms = 60001 is out of range: choose 1 to 60000
tollgate.toml: redis.deny_cache_entries = -1 is out of range: choose 0 to 67108864
tollgate.toml: redis.tls_ca_file = "missing.pem" cannot be read: No such file or directory (os error 2)
tollgate.toml: store is not a store: the store must start with redis://, rediss://, redis-cluster:// or rediss-cluster://, or be `memory`
tollgate.toml: redis.placement_secret is empty: write a secret of your own, the same on all servers, or leave it out
tollgate.toml: redis.partitions = 4097 is out of range: choose 1 to 4096
tollgate.toml: redis.key_prefix = "{x}" does not do: write 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `:`, `/`
tollgate.toml: policies."a b": this is not a name: write 1 to 64 ASCII letters, digits, `-`, `_`, `.`, `/`
tollgate.toml: policies.api.limits[1]: `leaky:1/1s` is not a limit: `leaky` is not an algorithm known here (token-bucket, sliding-window); write e.g. token-bucket:100/1m,burst=20 or sliding-window:100/1m
tollgate.toml: policies.api.limits[2]: `token-bucket:9007199254740991/1s` cannot be enforced exactly: the burst times the period, in a power of ten of microseconds that divides it, reaches 2^52; lower the amount, or choose a shorter or rounder period
tollgate.toml: policies.none.limits has 0 entries: write 1 to 4, e.g. ["token-bucket:100/1m"]
"#;
    assert_eq!(told(file), expected.trim());
}

#[test]
fn a_flag_is_told_by_its_name_and_its_variable() {
    let overrides = Overrides {
        listen: Some("7420".into()),
        partitions: Some(0),
        store: Some(Secret::from("redis://:hunter2@host".to_owned())),
        placement_secret: Some(Secret::from(String::new())),
        ..Overrides::default()
    };
    let error = Config::load(None, overrides).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with("--listen (TOLLGATE_LISTEN) = \"7420\" is not"), "{error}");
    assert!(
        lines[1].starts_with("--store (TOLLGATE_STORE) is not a store: node 1 is not host:port"),
        "{error}"
    );
    assert!(lines[2].starts_with("TOLLGATE_PLACEMENT_SECRET is empty"), "{error}");
    assert_eq!(lines[3], "--partitions (TOLLGATE_PARTITIONS) = 0 is out of range: choose 1 to 4096");
    assert_eq!(lines.len(), 4);
}

#[test]
fn an_unknown_key_is_told_with_its_line() {
    let error = told("listen = \"127.0.0.1:1\"\n[connection]\nconections_max = 1\n");
    assert!(error.starts_with("tollgate.toml: TOML parse error at line 3, column 1\n"), "{error}");
    assert!(error.contains("3 | conections_max = 1"), "{error}");
    assert!(error.contains("unknown field `conections_max`, expected one of `connections_max`"), "{error}");
}

#[test]
fn a_policy_without_limits_is_told_with_its_line() {
    let error = told("[policies.api]\non_unavailable = \"allow\"\n");
    assert!(error.contains("at line 1") && error.contains("missing field `limits`"), "{error}");
}

#[test]
fn a_word_that_is_not_known_is_told_with_those_that_are() {
    let error = told("on_unavailable = \"local\"\n");
    assert!(error.contains("unknown variant `local`, expected `deny` or `allow`"), "{error}");
    assert!(told("[log]\nformat = \"xml\"\n").contains("expected `human` or `json`"));
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let error = Config::load(Some(Path::new("no/such.toml")), Overrides::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "the configuration no/such.toml cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn too_many_policies_are_told() {
    let policies: String = (0..1_025)
        .map(|index| format!("[policies.p{index}]\nlimits = [\"sliding-window:1/1s\"]\n"))
        .collect();
    assert_eq!(told(&policies), "tollgate.toml: policies: 1025 policies are too many: keep at most 1024");
}

#[test]
fn secrets_are_never_shown() {
    let config =
        load("store = \"redis://user:hunter2@host:1\"\n[redis]\nplacement_secret = \"correct horse\"\n");
    let shown = format!("{config:?}");
    assert!(shown.contains("host:1"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("correct"), "{shown}");

    let overrides = Overrides {
        store: Some(Secret::from("redis://:hunter2@h:1".to_owned())),
        placement_secret: Some(Secret::from("correct horse".to_owned())),
        ..Overrides::default()
    };
    let shown = format!("{overrides:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("correct"), "{shown}");
}

#[test]
fn a_line_that_may_hold_a_secret_is_told_by_its_place_alone() {
    let with_secret = [
        "[redis]\nplacement_secret = 31337\n",
        "[redis]\nplacement_secret = \"31337\n",
        "\nstore = \"redis://:31337@host:1\n",
        "\nstores = \"redis://:31337@host:1\"\n",
        "\nredis = { placement_secret = [\"31337\"] }\n",
        "\n[redis]\nplacement_secret = \"\"\"\n31337 \\x\"\"\"\n",
    ];
    for file in with_secret {
        let error = told(file);
        assert!(error.starts_with("tollgate.toml: TOML parse error at line "), "{error}");
        assert!(error.contains("is not shown because it may hold a secret"), "{error}");
        assert!(!error.contains("31337"), "{error}");
    }
}

#[test]
fn the_policies_of_a_configuration_are_ready_to_decide() {
    let config = load(
        "[policies.b]\nlimits = [\"sliding-window:1/1s\"]\n[policies.a]\nlimits = [\"token-bucket:1/1s\"]\n",
    );
    let announced = PolicyTable::new(config.ready_policies(&Metrics::new()).unwrap()).announce();
    let names: Vec<_> = announced.iter().map(|policy| (policy.name.as_str(), policy.alias)).collect();
    assert_eq!(names, [("a", 0), ("b", 2)]);
}

#[test]
fn the_file_to_start_from_says_the_defaults() {
    let mut config = load(include_str!("../../deploy/tollgate.toml"));
    assert!(!config.policies.is_empty());
    config.policies.clear();
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::load(None, Overrides::default()).unwrap()));
}
