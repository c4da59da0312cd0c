//! The servers of a client: which are live, and which of them a key belongs to.

use std::{
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout_at};
use tollgate_protocol::ring::{Ring, RingSecret};

use crate::{
    error::{Attempt, CheckError},
    link::{Link, PushError},
    policy::Registry,
    request::Request,
    ticket::Ticket,
};

/// All that a client's calls and its connections share.
#[derive(Debug)]
pub(crate) struct Servers {
    names: Vec<Arc<str>>,
    ring_secret: RingSecret,
    deadline: Duration,
    registry: Arc<Registry>,
    routes: watch::Sender<Arc<Routes>>,
    /// Calls that wait for a route.
    parked: watch::Sender<usize>,
}

/// Where calls go now.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    states: Vec<State>,
    live: Vec<Route>,
    /// Of the live servers, by their index in `live`.
    ring: Arc<Ring>,
}

/// A live server.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) server: usize,
    pub(crate) link: Arc<Link>,
}

#[derive(Clone, Debug, Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Why there is no link; `None` before the first attempt.
    failure: Option<Arc<str>>,
}

/// Why a call was not handed to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubmitError {
    /// No server is live.
    NoRoute,
    /// The route was closed meanwhile: look again.
    Moved,
    /// The caller gets this.
    Final(CheckError),
}

impl Routes {
    /// Index in [`Routes::live`] of the server that a key belongs to.
    pub(crate) fn index_of(&self, key: &[u8]) -> Option<usize> {
        match self.live.len() {
            0 => None,
            1 => Some(0),
            _ => self.ring.node(key),
        }
    }

    /// The live servers.
    pub(crate) fn live(&self) -> &[Route] {
        &self.live
    }
}

impl Servers {
    pub(crate) fn new(names: Vec<Arc<str>>, ring_secret: RingSecret, deadline: Duration) -> Self {
        let states = vec![State::default(); names.len()];
        let ring = Arc::new(Ring::new(ring_secret, std::iter::empty::<&str>()));
        let routes = watch::Sender::new(Arc::new(Routes { states, live: Vec::new(), ring }));
        let registry = Arc::new(Registry::new(names.len()));
        Self { names, ring_secret, deadline, registry, routes, parked: watch::Sender::new(0) }
    }

    /// The servers' addresses, as given.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    pub(crate) fn name(&self, server: usize) -> &Arc<str> {
        &self.names[server]
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Time that a call has in all.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The routes as they are now.
    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.borrow())
    }

    /// Notes that a server has a connection.
    pub(crate) fn up(&self, server: usize, link: Arc<Link>) {
        self.set(server, State { link: Some(link), failure: None });
    }

    /// Notes that a server has none, and why.
    pub(crate) fn down(&self, server: usize, reason: Arc<str>) {
        self.set(server, State { link: None, failure: Some(reason) });
    }

    fn set(&self, server: usize, state: State) {
        self.routes.send_modify(|routes| {
            let routes = Arc::make_mut(routes);
            let same_routes = routes.states[server].link.is_none() && state.link.is_none();
            routes.states[server] = state;
            if !same_routes {
                self.route(routes);
            }
        });
    }

    /// Puts the live servers on the ring.
    fn route(&self, routes: &mut Routes) {
        let links = routes.states.iter().map(|state| state.link.clone());
        routes.live =
            links.enumerate().filter_map(|(server, link)| Some(Route { server, link: link? })).collect();
        let names = routes.live.iter().map(|route| self.names[route.server].as_bytes());
        routes.ring = Arc::new(Ring::new(self.ring_secret, names));
    }

    /// Hands a verified request to the connection of its key. `caller` is woken when it has an outcome.
    pub(crate) fn submit(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        caller: &Waker,
    ) -> Result<Ticket, SubmitError> {
        let routes = self.routes.borrow();
        let index = routes.index_of(request.key).ok_or(SubmitError::NoRoute)?;
        let route = &routes.live[index];
        match route.link.push(request, deadline, caller) {
            Ok(slot) => Ok(Ticket::new(Arc::clone(&route.link), slot)),
            Err(PushError::Closed) => Err(SubmitError::Moved),
            Err(PushError::Full(waiting)) => Err(SubmitError::Final(self.overload(route.server, waiting))),
        }
    }

    pub(crate) fn overload(&self, server: usize, waiting: usize) -> CheckError {
        CheckError::Overload { waiting, server: Arc::clone(self.name(server)) }
    }

    /// Waits until a server is live.
    pub(crate) async fn wait_for_route(&self, deadline: Instant) -> Result<(), CheckError> {
        let _parked = Parked::new(&self.parked);
        let mut routes = self.routes.subscribe();
        let live = routes.wait_for(|routes| !routes.live.is_empty());
        match timeout_at(deadline.into(), live).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(CheckError::Unreachable { attempts: self.attempts() }),
        }
    }

    /// Waits until each server was tried once, and says whether one is live.
    pub(crate) async fn wait_for_attempts(&self) -> bool {
        let tried = |state: &State| state.link.is_some() || state.failure.is_some();
        let mut routes = self.routes.subscribe();
        let routes = routes.wait_for(|routes| routes.states.iter().all(tried)).await;
        routes.is_ok_and(|routes| !routes.live.is_empty())
    }

    /// Waits until a call needs a route that there is not.
    pub(crate) async fn wait_for_demand(&self) {
        // The sender lives as long as `self`.
        let _ = self.parked.subscribe().wait_for(|count| *count > 0).await;
    }

    /// Why each server that is not live could not be reached.
    pub(crate) fn attempts(&self) -> Arc<[Attempt]> {
        let routes = self.routes();
        let attempts = self.names.iter().zip(&routes.states).filter(|(_, state)| state.link.is_none());
        attempts
            .map(|(server, state)| Attempt {
                server: Arc::clone(server),
                reason: state.failure.clone().unwrap_or_else(|| "not connected yet".into()),
            })
            .collect()
    }
}

/// Counts a call as waiting for a route.
struct Parked<'a>(&'a watch::Sender<usize>);

impl<'a> Parked<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
