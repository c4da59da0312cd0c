//! The client as services use it.

use std::{fmt, sync::Arc, time::Duration};

use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_protocol::{policy::Limits, ring::RingSecret};

use crate::{
    call,
    decision::Decision,
    error::{CheckError, ConnectError, DefineError, UnknownPolicyError},
    many,
    policy::PolicyRef,
    request::Request,
    servers::Servers,
    supervisor,
};

/// Time that a call has in all unless [`Builder::deadline`] says other.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(1);

const DEADLINE_MIN: Duration = Duration::from_millis(1);
const DEADLINE_MAX: Duration = Duration::from_secs(3_600);

/// A client of one or more servers. Cheap to clone: all clones share one connection to each server, and calls
/// that wait at the same time share frames. The connections close when the last clone is dropped.
///
/// Each call is done within the client's deadline. Dropping a call's future is safe at any point; the request
/// may be executed nevertheless.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    deadline: Duration,
}

struct Inner {
    servers: Arc<Servers>,
    /// Ends the tasks of the connections.
    _stop: DropGuard,
}

impl Client {
    /// Connects to one server, `host:port`. Must be called within a tokio runtime, as the connections are
    /// tasks of it.
    ///
    /// # Errors
    /// Where the server cannot be reached.
    pub async fn connect(server: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder().servers([server]).connect().await
    }

    /// A builder for more servers or other options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same client, with another time that a call has in all, within 1 ms and 1 h.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate_client::{CheckError, Client, PolicyRef};
    /// # async fn example(client: Client, api: PolicyRef) -> Result<(), CheckError> {
    /// let hasty = client.with_deadline(Duration::from_millis(20));
    /// let decision = hasty.check(&api, "user:1", 1).await?;
    /// # Ok(()) }
    /// ```
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { inner: Arc::clone(&self.inner), deadline: deadline.clamp(DEADLINE_MIN, DEADLINE_MAX) }
    }

    /// The policy of a name in the servers' configuration.
    ///
    /// # Errors
    /// Where no server that was connected so far has announced the name.
    pub fn policy(&self, name: &str) -> Result<PolicyRef, UnknownPolicyError> {
        self.inner.servers.registry().named(name)
    }

    /// An inline policy: one [`Limit`](crate::Limit), or up to four that are charged together. All clients
    /// that define the same limits charge the same state.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate_client::{Client, Limit};
    ///
    /// let client = Client::connect("127.0.0.1:7420").await?;
    /// let policy = client.define("token-bucket:100/1m,burst=20".parse::<Limit>()?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where the client has defined 4,096 other policies. A server that refuses the limits is an error of the
    /// calls that use them.
    pub fn define(&self, limits: impl Into<Limits>) -> Result<PolicyRef, DefineError> {
        self.inner.servers.registry().inline(limits.into())
    }

    /// May `cost` pass for `key`? Charges it where it may.
    ///
    /// ```no_run
    /// # use tollgate_client::{CheckError, Client, PolicyRef};
    /// # async fn example(client: Client, api: PolicyRef) -> Result<(), CheckError> {
    /// let decision = client.check(&api, "user:1", 1).await?;
    /// if !decision.allowed {
    ///     println!("come back in {:?}", decision.retry_after);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Where there is no decision, see [`CheckError`].
    pub async fn check(
        &self,
        policy: &PolicyRef,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        self.call(Request::check(policy, &key).cost(cost)).await
    }

    /// Checks each of many keys at the same cost, in as few frames as they fit in. The answers stand in the
    /// order of the keys; each key is decided by itself.
    ///
    /// ```no_run
    /// # use tollgate_client::{Client, PolicyRef};
    /// # async fn example(client: Client, api: PolicyRef) {
    /// for answer in client.check_many(&api, &["user:1", "user:2"], 1).await {
    ///     println!("{answer:?}");
    /// }
    /// # }
    /// ```
    pub async fn check_many(
        &self,
        policy: &PolicyRef,
        keys: &[impl AsRef<[u8]>],
        cost: u64,
    ) -> Vec<Result<Decision, CheckError>> {
        many::many(&self.inner.servers, self.deadline, keys.len(), |index| {
            Request::check(policy, &keys[index]).cost(cost)
        })
        .await
    }

    /// Would `cost` pass for `key`? Never charges.
    ///
    /// # Errors
    /// As [`Client::check`]; never ambiguous.
    pub async fn peek(
        &self,
        policy: &PolicyRef,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        self.call(Request::peek(policy, &key).cost(cost)).await
    }

    /// Gives `cost` back, never above a full limit.
    ///
    /// # Errors
    /// As [`Client::check`].
    pub async fn refund(
        &self,
        policy: &PolicyRef,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        self.call(Request::refund(policy, &key).cost(cost)).await
    }

    /// Forgets what was charged to `key`.
    ///
    /// # Errors
    /// As [`Client::check`].
    pub async fn reset(&self, policy: &PolicyRef, key: impl AsRef<[u8]>) -> Result<Decision, CheckError> {
        self.call(Request::reset(policy, &key)).await
    }

    /// Charges `cost` although it is over the limit: for a cost that is known only afterwards.
    ///
    /// # Errors
    /// As [`Client::check`].
    pub async fn force(
        &self,
        policy: &PolicyRef,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        self.call(Request::force(policy, &key).cost(cost)).await
    }

    /// Charges as much of `cost` as may pass; [`Decision::granted`] says how much that was.
    ///
    /// # Errors
    /// As [`Client::check`].
    pub async fn take_up_to(
        &self,
        policy: &PolicyRef,
        key: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        self.call(Request::take_up_to(policy, &key).cost(cost)).await
    }

    /// Asks one request.
    ///
    /// # Errors
    /// As [`Client::check`].
    pub async fn call(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        call::one(&self.inner.servers, self.deadline, request).await
    }

    /// Asks many requests in as few frames as they fit in. The answers stand in the order of the requests.
    /// Each request is decided by itself, except those joined by [`Request::linked`].
    ///
    /// ```no_run
    /// # use tollgate_client::{CheckError, Client, PolicyRef, Request};
    /// # async fn example(client: Client, requests: PolicyRef, tokens: PolicyRef) {
    /// let answers = client
    ///     .call_many(&[
    ///         Request::check(&requests, "user:1").linked(),
    ///         Request::check(&tokens, "user:1").cost(250),
    ///     ])
    ///     .await;
    /// let passes = answers.iter().all(|answer| answer.as_ref().is_ok_and(|decision| decision.allowed));
    /// # }
    /// ```
    pub async fn call_many(&self, requests: &[Request<'_>]) -> Vec<Result<Decision, CheckError>> {
        many::many(&self.inner.servers, self.deadline, requests.len(), |index| requests[index]).await
    }
}

/// Names the servers, and no key or secret.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("servers", &self.inner.servers.names()).finish_non_exhaustive()
    }
}

/// Options of a client.
#[derive(Clone, Debug)]
pub struct Builder {
    servers: Vec<String>,
    ring_secret: RingSecret,
    deadline: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self { servers: Vec::new(), ring_secret: RingSecret::default(), deadline: DEADLINE_DEFAULT }
    }
}

impl Builder {
    /// Adds servers, `host:port`. Keys are spread over them by a consistent-hash ring of these texts, so that
    /// all clients must give the same ones. The keys of a server that is down go to the others meanwhile.
    pub fn servers(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.servers.extend(servers.into_iter().map(Into::into));
        self
    }

    /// Sets the secret of the ring, the same for all clients: nobody who does not know it can aim keys at one
    /// server. Without it a published one is used.
    pub fn ring_secret(mut self, secret: RingSecret) -> Self {
        self.ring_secret = secret;
        self
    }

    /// Sets the time that a call has in all, from 1 ms to 1 h; [`DEADLINE_DEFAULT`] otherwise.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Connects: returns once each server was tried, which takes a few seconds at most. Servers that could not
    /// be reached are tried again for as long as the client lives.
    ///
    /// # Errors
    /// Where no server could be reached, or an option is wrong.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        self.verify()?;
        let names: Vec<Arc<str>> = self.servers.into_iter().map(Into::into).collect();
        let count = names.len();
        let servers = Arc::new(Servers::new(names, self.ring_secret, self.deadline));
        let stop = CancellationToken::new();
        for server in 0..count {
            supervisor::start(Arc::clone(&servers), server, stop.clone());
        }
        let inner = Arc::new(Inner { servers, _stop: stop.drop_guard() });
        let client = Client { inner, deadline: self.deadline };
        if client.inner.servers.wait_for_attempts().await {
            Ok(client)
        } else {
            Err(ConnectError::Unreachable { attempts: client.inner.servers.attempts() })
        }
    }

    fn verify(&self) -> Result<(), ConnectError> {
        if self.servers.is_empty() {
            return Err(ConnectError::NoServers);
        }
        if let Some(twice) =
            self.servers.iter().enumerate().find(|(index, name)| self.servers[..*index].contains(name))
        {
            return Err(ConnectError::Twice { server: twice.1.clone() });
        }
        if !(DEADLINE_MIN..=DEADLINE_MAX).contains(&self.deadline) {
            return Err(ConnectError::BadDeadline { deadline: self.deadline });
        }
        Ok(())
    }
}
