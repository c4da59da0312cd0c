//! Where Redis is, as an operator writes it.

use std::{fmt, str::FromStr};

use percent_encoding::percent_decode_str;

/// Where Redis is, parsed from `redis://[user:password@]host:port[/database]`, `rediss://…` (TLS),
/// `redis-cluster://[user:password@]host:port,host:port,…` or `rediss-cluster://…` (TLS).
/// Its `Display` and `Debug` leave out the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Whether the nodes form a Redis Cluster.
    pub cluster: bool,
    /// Whether to connect by TLS.
    pub tls: bool,
    /// Name to log in with; `None`: the default user.
    pub username: Option<String>,
    /// Password to log in with.
    pub password: Option<String>,
    /// Host and port of each node; one unless `cluster`.
    pub nodes: Vec<(String, u16)>,
    /// Number of the database; 0 in a cluster.
    pub database: i64,
}

/// Why a text is not the place of a Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRedisUrlError {
    /// No scheme that is known.
    #[error(
        "the store must start with redis://, rediss://, redis-cluster:// or rediss-cluster://, or be `memory`"
    )]
    Scheme,
    /// A part of the credentials is not percent-encoded UTF-8.
    #[error("the {0} is not percent-encoded UTF-8")]
    Encoding(&'static str),
    /// The node of this number, from 1, is not host:port. Its text is not repeated: it may hold a password.
    #[error("node {0} is not host:port; an IPv6 address stands in brackets")]
    Node(usize),
    /// More than one node without a cluster.
    #[error("{0} nodes are named: use redis-cluster:// for a Redis Cluster")]
    ManyNodes(usize),
    /// The database is not a number, or the Redis is a cluster. Its text is not repeated: it may hold a password.
    #[error("what follows the `/` is not a database: write a number, and none for a Redis Cluster")]
    Database,
}

impl FromStr for RedisUrl {
    type Err = ParseRedisUrlError;

    fn from_str(text: &str) -> Result<Self, ParseRedisUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(ParseRedisUrlError::Scheme)?;
        let (cluster, tls) = match scheme {
            "redis" => (false, false),
            "rediss" => (false, true),
            "redis-cluster" => (true, false),
            "rediss-cluster" => (true, true),
            _ => return Err(ParseRedisUrlError::Scheme),
        };
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (username, password) = parse_credentials(credentials)?;
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let nodes = hosts.split(',').enumerate().map(parse_node).collect::<Result<Vec<_>, _>>()?;
        if nodes.len() > 1 && !cluster {
            return Err(ParseRedisUrlError::ManyNodes(nodes.len()));
        }
        let database = parse_database(database, cluster)?;
        Ok(Self { cluster, tls, username, password, nodes, database })
    }
}

type Credentials = (Option<String>, Option<String>);

/// `user:password`, `:password` or `password`.
fn parse_credentials(text: Option<&str>) -> Result<Credentials, ParseRedisUrlError> {
    let Some(text) = text else { return Ok((None, None)) };
    let (username, password) = text.split_once(':').unwrap_or(("", text));
    let decode = |text: &str, name| {
        let decoded =
            percent_decode_str(text).decode_utf8().map_err(|_| ParseRedisUrlError::Encoding(name))?;
        Ok(Some(decoded.into_owned()).filter(|text| !text.is_empty()))
    };
    Ok((decode(username, "user name")?, decode(password, "password")?))
}

fn parse_node((index, text): (usize, &str)) -> Result<(String, u16), ParseRedisUrlError> {
    let bad = || ParseRedisUrlError::Node(index + 1);
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').ok_or_else(bad)?,
        None if host.contains(':') => return Err(bad()),
        None => host,
    };
    let port = port.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(bad)?;
    if host.is_empty() { Err(bad()) } else { Ok((host.to_owned(), port)) }
}

fn parse_database(text: &str, cluster: bool) -> Result<i64, ParseRedisUrlError> {
    match text.parse::<u16>() {
        Ok(database) if !cluster || database == 0 => Ok(i64::from(database)),
        Err(_) if text.is_empty() => Ok(0),
        _ => Err(ParseRedisUrlError::Database),
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tls, cluster) = (if self.tls { "s" } else { "" }, if self.cluster { "-cluster" } else { "" });
        write!(f, "redis{tls}{cluster}://")?;
        for (index, (host, port)) in self.nodes.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if host.contains(':') {
                write!(f, "{comma}[{host}]:{port}")?
            } else {
                write!(f, "{comma}{host}:{port}")?
            }
        }
        if self.database != 0 { write!(f, "/{}", self.database) } else { Ok(()) }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RedisUrl, ParseRedisUrlError> {
        text.parse()
    }

    #[test]
    fn every_part_is_read() {
        let url =
            parse("rediss-cluster://us%40er:p%3Ass@10.0.0.1:7000,[::1]:7001,redis.example:7002").unwrap();
        assert!(url.cluster && url.tls);
        assert_eq!((url.username.as_deref(), url.password.as_deref()), (Some("us@er"), Some("p:ss")));
        let nodes = [("10.0.0.1", 7000), ("::1", 7001), ("redis.example", 7002)];
        assert_eq!(url.nodes, nodes.map(|(host, port)| (host.to_owned(), port)));
        let url = parse("redis://:secret@localhost:6379/3").unwrap();
        assert_eq!((url.username, url.password.as_deref(), url.database), (None, Some("secret"), 3));
    }

    #[test]
    fn errors_name_the_part() {
        assert_eq!(parse("localhost:6379"), Err(ParseRedisUrlError::Scheme));
        assert_eq!(parse("http://localhost:6379"), Err(ParseRedisUrlError::Scheme));
        assert_eq!(parse("redis://a:1,b:2"), Err(ParseRedisUrlError::ManyNodes(2)));
        assert_eq!(parse("redis-cluster://a:1,b"), Err(ParseRedisUrlError::Node(2)));
        assert_eq!(parse("redis://::1:6379"), Err(ParseRedisUrlError::Node(1)));
        assert_eq!(parse("redis://a:0"), Err(ParseRedisUrlError::Node(1)));
        assert_eq!(parse("redis://a:1/x"), Err(ParseRedisUrlError::Database));
        assert_eq!(parse("redis-cluster://a:1/1"), Err(ParseRedisUrlError::Database));
        assert_eq!(parse("redis://%ff:x@a:1"), Err(ParseRedisUrlError::Encoding("user name")));
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = parse("redis://admin:hunter2@a:1/2").unwrap();
        assert_eq!(url.to_string(), "redis://a:1/2");
        assert!(!format!("{url:?}").contains("hunter2"));
        for text in ["redis://a:1/0?password=hunter2", "redis://:hunter2:a:1", "redis://hunter2"] {
            assert!(!parse(text).unwrap_err().to_string().contains("hunter2"), "{text}");
        }
    }
}
