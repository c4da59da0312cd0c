//! A `redis-server` of its own.

use std::{
    fs,
    io::ErrorKind,
    process::{Command, Stdio},
};

use redis::{
    Client, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};
use tempfile::TempDir;

use super::{Process, eventually, free_port};

/// Whom a server lets in, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    pub(crate) tls: Option<Tls>,
    pub(crate) login: Option<Login>,
}

/// Certificates, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    pub(crate) ca: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Tls {
    /// An authority, and a certificate for 127.0.0.1 that it signed.
    pub(crate) fn generate() -> Self {
        let authority_key = rcgen::KeyPair::generate().expect("a key");
        let mut authority = rcgen::CertificateParams::default();
        // Of the same name as what it signs, it would seem to be signed by itself.
        authority.distinguished_name.push(rcgen::DnType::CommonName, "authority of the tests");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = authority.self_signed(&authority_key).expect("a certificate");
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().expect("a key");
        let server = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let certificate = server.signed_by(&key, &issuer).expect("a certificate");
        Self { ca: ca.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A user of the access control list with the least rights that Tollgate needs.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<&'static str>,
    pub(crate) password: &'static str,
    /// Rights as `ACL SETUSER` takes them, for a `user`.
    pub(crate) rules: &'static [&'static str],
}

/// A running server. Dropping it kills it.
pub(crate) struct RedisServer {
    process: Option<Process>,
    pub(crate) port: u16,
    security: Security,
    arguments: Vec<String>,
    directory: TempDir,
}

impl RedisServer {
    /// A server that persists nothing.
    pub(crate) fn start() -> Self {
        Self::start_with(Security::default(), &[])
    }

    /// A server with more arguments, such as `["--cluster-enabled", "yes"]`.
    pub(crate) fn start_with(security: Security, arguments: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("tollgate-redis-").tempdir().expect("a directory");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut server = Self { process: None, port: 0, security, arguments, directory };
        // Another process may take the port before the server does.
        for _ in 0..10 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("redis-server does not start: {}", server.log());
    }

    /// Starts the process and waits until it answers; `false` where it ended instead.
    fn launch(&mut self) -> bool {
        let mut command = Command::new("redis-server");
        command.args(self.own_arguments()).args(&self.arguments).current_dir(self.directory.path());
        command.stdin(Stdio::null());
        let process = Process::start(command, Some(self.directory.path()));
        let mut process = process.unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                panic!("redis-server is missing: install Redis 7 or newer, e.g. apt-get install redis-server")
            }
            _ => panic!("redis-server cannot be started: {error}"),
        });
        let mut answers = false;
        eventually("redis-server answers", || {
            answers = self.try_connect().is_ok();
            answers || process.has_exited()
        });
        self.process = Some(process);
        answers
    }

    fn own_arguments(&self) -> Vec<String> {
        let port = self.port.to_string();
        let mut all =
            vec!["--bind 127.0.0.1", "--save ", "--appendonly no", "--logfile log", "--daemonize no"];
        let (tls_port, plain_port) = (format!("--tls-port {port} --port 0"), format!("--port {port}"));
        all.push(if self.security.tls.is_some() { &tls_port } else { &plain_port });
        let mut all: Vec<_> = all.into_iter().flat_map(|pair| pair.split(' ')).map(str::to_owned).collect();
        if let Some(tls) = &self.security.tls {
            let files = [("cert", &tls.certificate), ("key", &tls.key), ("ca-cert", &tls.ca)];
            for (name, pem) in files {
                fs::write(self.directory.path().join(name), pem).expect("the directory can be written");
                all.extend([format!("--tls-{name}-file"), name.to_owned()]);
            }
            all.extend(["--tls-auth-clients", "no"].map(str::to_owned));
        }
        match &self.security.login {
            Some(Login { user: None, password, .. }) => {
                all.extend(["--requirepass".to_owned(), (*password).to_owned()]);
            }
            Some(Login { user: Some(user), password, rules }) => {
                let user = ["--user", user, "on", &format!(">{password}")].map(str::to_owned);
                all.extend(user.into_iter().chain(rules.iter().map(ToString::to_string)));
            }
            None => {}
        }
        all
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Where Tollgate finds it, with the credentials.
    pub(crate) fn url(&self) -> String {
        let tls = if self.security.tls.is_some() { "s" } else { "" };
        let login = match &self.security.login {
            Some(Login { user, password, .. }) => format!("{}:{password}@", user.unwrap_or_default()),
            None => String::new(),
        };
        format!("redis{tls}://{login}127.0.0.1:{}", self.port)
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        let host = "127.0.0.1".to_owned();
        let address = match &self.security.tls {
            Some(_) => ConnectionAddr::TcpTls { host, port: self.port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, self.port),
        };
        let mut login = RedisConnectionInfo::default();
        // A user of the access control list may do little; tests look on as the default user.
        if let Some(Login { user: None, password, .. }) = &self.security.login {
            login = login.set_password(*password);
        }
        let info = address.into_connection_info()?.set_redis_settings(login);
        let client = match &self.security.tls {
            Some(tls) => {
                let root_cert = Some(tls.ca.clone().into_bytes());
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })?
            }
            None => Client::open(info)?,
        };
        let mut connection = client.get_connection()?;
        redis::cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    /// A connection as the default user.
    pub(crate) fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|error| panic!("Redis at port {}: {error}", self.port))
    }

    /// Runs a command given as words, and answers what it answers.
    pub(crate) fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connect()).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// As `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process().signal("KILL");
        let (_, _, _) = self.process.take().expect("it runs").wait();
    }

    /// Starts it anew on the port that it had.
    pub(crate) fn restart(&mut self) {
        assert!(self.launch(), "redis-server does not start again: {}", self.log());
    }

    /// Lets it hang: it keeps its connections and answers nothing.
    pub(crate) fn pause(&self) {
        self.process().signal("STOP");
    }

    /// Wakes it up again.
    pub(crate) fn resume(&self) {
        self.process().signal("CONT");
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }
}
