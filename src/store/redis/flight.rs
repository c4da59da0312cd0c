//! One pipeline on its way: calls built, sent in one write, and each answer judged by itself.

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tollgate_protocol::reply::Reason;

use super::{
    lane::{Backlog, Held, Work},
    node::{Address, CallError, Node},
    script::{Answer, Call, Group},
    topology::{Topology, read_address},
};
use crate::{batch::Batch, limit::Decision};

/// Redirections of a call that are followed without a delay. More are a sign of servers that do not agree.
const REDIRECTS_AT_ONCE: u32 = 3;

/// Delays before a shard that cannot serve a call just now is asked again, doubled from the first to the last.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(5);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(80);

/// What became of a call that was sent.
enum Outcome {
    /// It has its answer.
    Settled(Settled),
    /// It was not executed, and may be sent again.
    Again(Again),
}

/// The end of a call.
enum Settled {
    /// The script ran, in a call that was sent then.
    Decided(Answer, Instant),
    /// It is given up: not executed, or perhaps.
    GivenUp(Reason),
}

/// Where a call that was not executed goes next.
enum Again {
    /// To a server that was named: by ASKING, where its slot is still moving there, or with the script's text, where
    /// the server does not know it.
    To { address: Address, asking: bool, by_text: bool },
    /// To whoever serves the slot, a little later.
    Later,
}

/// The work that shares a pipeline.
struct Flight {
    batches: Vec<Arc<Batch>>,
    replies: Vec<Reply>,
}

/// What is answered so far of one work.
struct Reply {
    decisions: Vec<(usize, Decision)>,
    /// Checks that are not answered yet.
    waiting: usize,
    /// Taken when all of them are.
    answer: Option<oneshot::Sender<Vec<(usize, Decision)>>>,
}

/// Sends the work of one pipeline and answers it. What was redirected goes on in a task of its own, so that the
/// lane is free again; it counts as waiting there until it is settled.
pub(super) async fn fly(node: Arc<Node>, topology: Arc<Topology>, works: Vec<Work>, backlog: Backlog) {
    let now = Instant::now();
    let deadline = now + topology.timeout();
    let mut flight = Flight::new();
    let calls = flight.load(works, now, topology.timeout());
    if calls.is_empty() {
        return;
    }
    let outcomes = send(&node, &topology, &calls, deadline).await;
    let mut redirected = Vec::new();
    for (call, outcome) in calls.into_iter().zip(outcomes) {
        topology.metrics().script_items.observe(call.items_count() as f64);
        match outcome {
            Outcome::Again(again) => redirected.push((call, again)),
            Outcome::Settled(settled) => flight.settle(&topology, &call, settled),
        }
    }
    if !redirected.is_empty() {
        let items = redirected.iter().map(|(call, _)| call.items_count()).sum();
        tokio::spawn(send_again(topology, flight, redirected, deadline, backlog.hold(items)));
    }
}

/// One write for all calls; an outcome for each.
async fn send(node: &Node, topology: &Topology, calls: &[Call], deadline: Instant) -> Vec<Outcome> {
    let sent = Instant::now();
    let time = topology.time_argument(node, deadline);
    let mut pipeline = redis::Pipeline::with_capacity(calls.len());
    for call in calls {
        let redis_key = topology.redis_key(call.partition);
        pipeline.add_command(call.command(topology.script(), false, redis_key, time));
    }
    let answer = node.call(&pipeline, calls.len(), deadline).await;
    if !matches!(answer, Err(CallError::NotSent)) {
        topology.metrics().store_seconds.observe(sent.elapsed().as_secs_f64());
    }
    match answer {
        Ok(values) if values.len() == calls.len() => {
            let outcome = |(call, value)| judge(node, topology, call, value, sent, false);
            calls.iter().zip(values).map(outcome).collect()
        }
        Ok(_) | Err(CallError::NoAnswer) => all_given_up(topology, calls, Reason::Ambiguous),
        Err(CallError::NotSent) => all_given_up(topology, calls, Reason::Unavailable),
    }
}

fn all_given_up(topology: &Topology, calls: &[Call], reason: Reason) -> Vec<Outcome> {
    topology.mark_stale();
    calls.iter().map(|_| given_up(topology, reason)).collect()
}

/// What an answer means. `asking`: whether it was asked for by ASKING.
fn judge(
    node: &Node,
    topology: &Topology,
    call: &Call,
    value: Value,
    sent: Instant,
    asking: bool,
) -> Outcome {
    let value = match value.extract_error() {
        Ok(value) => value,
        Err(error) => return judge_error(node, topology, &error, asking),
    };
    if let Some(answer) = Answer::read(&value) {
        node.learn_clock(sent, answer.now_us);
        if answer.states.len() == call.fields_count() {
            return Outcome::Settled(Settled::Decided(answer, sent));
        }
        // The shard's clock says that the deadline has passed; nothing was done.
        if answer.states.is_empty() {
            return Outcome::Again(Again::Later);
        }
    }
    let error = RedisError::from((ErrorKind::UnexpectedReturnType, "not an answer of the script"));
    failed(node, topology, &error)
}

fn judge_error(node: &Node, topology: &Topology, error: &RedisError, asking: bool) -> Outcome {
    let redirection = |asking| {
        let address = error.redirect_node().and_then(|(text, _)| read_address(text, &node.address.0));
        Outcome::Again(address.map_or(Again::Later, |address| Again::To { address, asking, by_text: false }))
    };
    let ErrorKind::Server(kind) = error.kind() else { return failed(node, topology, error) };
    match kind {
        ServerErrorKind::Moved => {
            topology.metrics().redirected("moved");
            topology.mark_stale();
            redirection(false)
        }
        ServerErrorKind::Ask => {
            topology.metrics().redirected("ask");
            redirection(true)
        }
        ServerErrorKind::NoScript => {
            Outcome::Again(Again::To { address: node.address.clone(), asking, by_text: true })
        }
        ServerErrorKind::TryAgain => {
            topology.metrics().redirected("tryagain");
            Outcome::Again(Again::Later)
        }
        ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly
        | ServerErrorKind::BusyLoading => {
            node.tell_failed_call(error, "; it is asked again");
            topology.mark_stale();
            Outcome::Again(Again::Later)
        }
        ServerErrorKind::NoPerm => {
            node.tell_failed_call(error, ": the user needs the rights that deploy/README.md lists");
            given_up(topology, Reason::Unavailable)
        }
        _ => failed(node, topology, error),
    }
}

/// An error that says nothing of whether the script ran, but for the few codes that come before it.
fn failed(node: &Node, topology: &Topology, error: &RedisError) -> Outcome {
    match error.code() {
        Some("BUSY" | "MISCONF" | "NOREPLICAS") => {
            node.tell_failed_call(error, "; it is asked again");
            Outcome::Again(Again::Later)
        }
        code => {
            node.tell_failed_call(error, "");
            let before_it_ran = matches!(code, Some("OOM" | "NOAUTH" | "WRONGTYPE"));
            given_up(topology, if before_it_ran { Reason::Unavailable } else { Reason::Ambiguous })
        }
    }
}

fn given_up(topology: &Topology, reason: Reason) -> Outcome {
    topology.metrics().store_failures.inc();
    Outcome::Settled(Settled::GivenUp(reason))
}

/// Sends the calls that were not executed again, each by itself, until the deadline.
async fn send_again(
    topology: Arc<Topology>,
    mut flight: Flight,
    calls: Vec<(Call, Again)>,
    deadline: Instant,
    _held: Held,
) {
    let batches = flight.batches.clone();
    let pursue = |(call, again)| pursue(&topology, &batches, call, again, deadline);
    let mut pursuits: FuturesUnordered<_> = calls.into_iter().map(pursue).collect();
    while let Some((call, settled, late)) = pursuits.next().await {
        flight.refuse(&late, Reason::Deadline);
        flight.settle(&topology, &call, settled);
    }
}

/// Sends a call again until it is settled. Groups whose own deadline passes first are taken out of it; they come
/// back beside it.
async fn pursue(
    topology: &Arc<Topology>,
    batches: &[Arc<Batch>],
    mut call: Call,
    mut again: Again,
    deadline: Instant,
) -> (Call, Settled, Vec<Group>) {
    let mut late = Vec::new();
    let mut delay = RETRY_DELAY_MIN;
    let mut attempts = 0;
    loop {
        // The first redirections are followed at once: to where the slot is, from there by ASK, with the text.
        attempts += 1;
        if attempts > REDIRECTS_AT_ONCE || matches!(again, Again::Later) {
            sleep(delay).await;
            delay = RETRY_DELAY_MAX.min(2 * delay);
        }
        let now = Instant::now();
        late.extend(call.take_late(batches, now));
        if now >= deadline || call.groups.is_empty() {
            topology.metrics().store_failures.inc();
            return (call, Settled::GivenUp(Reason::Unavailable), late);
        }
        match send_to(topology, &call, &again, deadline).await {
            Outcome::Settled(settled) => return (call, settled, late),
            Outcome::Again(next) => again = next,
        }
    }
}

/// Sends a call to where it goes next.
async fn send_to(topology: &Arc<Topology>, call: &Call, again: &Again, deadline: Instant) -> Outcome {
    let (lane, asking, by_text) = match again {
        Again::To { address, asking, by_text } => (topology.lane(address).ok(), *asking, *by_text),
        Again::Later => (topology.lane_of(call.partition), false, false),
    };
    match lane.filter(|lane| lane.node.is_connected()) {
        Some(lane) => send_one(topology, &lane.node, call, asking, by_text, deadline).await,
        None => {
            // A server that is new to us is connected soon; where the slot is then, the map or a server says.
            topology.mark_stale();
            Outcome::Again(Again::Later)
        }
    }
}

/// One call by itself. ASKING goes in the same write, since it holds for the next command of a connection that
/// others share.
async fn send_one(
    topology: &Topology,
    node: &Node,
    call: &Call,
    asking: bool,
    by_text: bool,
    deadline: Instant,
) -> Outcome {
    let sent = Instant::now();
    let time = topology.time_argument(node, deadline);
    let mut pipeline = redis::pipe();
    if asking {
        pipeline.add_command(redis::cmd("ASKING"));
    }
    pipeline.add_command(call.command(topology.script(), by_text, topology.redis_key(call.partition), time));
    match node.call(&pipeline, 1 + usize::from(asking), deadline).await {
        Ok(mut values) => match values.pop() {
            Some(value) => judge(node, topology, call, value, sent, asking),
            None => given_up(topology, Reason::Ambiguous),
        },
        Err(CallError::NotSent) => Outcome::Again(Again::Later),
        Err(CallError::NoAnswer) => given_up(topology, Reason::Ambiguous),
    }
}

impl Flight {
    fn new() -> Self {
        Self { batches: Vec::new(), replies: Vec::new() }
    }

    /// Takes work on board and makes calls of it: for each partition as few as its checks fit in. What has waited
    /// too long, or whose deadline has passed, is answered at once and not executed.
    fn load(&mut self, works: Vec<Work>, now: Instant, timeout: Duration) -> Vec<Call> {
        let mut groups = Vec::new();
        for work in works {
            let late = work.late(now, timeout);
            if let Some(reason) = late {
                work.refuse(reason);
                continue;
            }
            let index = self.batches.len();
            let waiting = work.items_count();
            groups.extend(work.groups.into_iter().map(|(partition, items)| (partition, index, items)));
            self.replies.push(Reply {
                decisions: Vec::with_capacity(waiting),
                waiting,
                answer: Some(work.answer),
            });
            self.batches.push(work.batch);
        }
        // Stable: the checks of a key stay in the order in which they came.
        groups.sort_by_key(|(partition, ..)| *partition);
        groups.chunk_by(|(one, ..), (next, ..)| one == next).flat_map(|groups| self.calls(groups)).collect()
    }

    /// Calls for groups of one partition.
    fn calls(&self, groups: &[(usize, usize, Range<usize>)]) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for (taken, (partition, index, items)) in groups.iter().enumerate() {
            let batch = &self.batches[*index];
            if !calls.last_mut().is_some_and(|call| call.add(*index, batch, items.clone())) {
                let mut call = Call::new(*partition, groups.len() - taken);
                call.add(*index, batch, items.clone());
                calls.push(call);
            }
        }
        calls
    }

    /// Gives each group of a call its decisions.
    fn settle(&mut self, topology: &Topology, call: &Call, settled: Settled) {
        let Self { batches, replies } = self;
        let (cache, now) = (topology.deny_cache(), Instant::now());
        match settled {
            Settled::Decided(answer, sent) => call.decide(answer, batches, |group, decisions| {
                if let Some(cache) = cache {
                    cache.decided(&batches[group.work], group.items.clone(), decisions, sent, now);
                }
                replies[group.work].give(group.items.clone().zip(decisions.iter().copied()));
            }),
            Settled::GivenUp(reason) => {
                for group in &call.groups {
                    if let Some(cache) = cache {
                        cache.given_up(&batches[group.work], group.items.clone(), now);
                    }
                }
                self.refuse(&call.groups, reason);
            }
        }
    }

    /// Answers groups with what their policies say for `reason`.
    fn refuse(&mut self, groups: &[Group], reason: Reason) {
        for group in groups {
            let batch = &self.batches[group.work];
            let undecided = |item| (item, batch.undecided(item, reason));
            self.replies[group.work].give(group.items.clone().map(undecided));
        }
    }
}

impl Reply {
    /// Takes decisions, and answers when all are there.
    fn give(&mut self, decisions: impl Iterator<Item = (usize, Decision)>) {
        let before = self.decisions.len();
        self.decisions.extend(decisions);
        self.waiting -= self.decisions.len() - before;
        if self.waiting == 0
            && let Some(answer) = self.answer.take()
        {
            // Whoever asked may be gone.
            let _ = answer.send(std::mem::take(&mut self.decisions));
        }
    }
}
