//! One pipeline on its way: calls built, sent in one write, and each answer judged by itself.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tollgate_protocol::reply::Reason;

use super::{
    lane::Work,
    node::{Address, CallError, Node},
    script::{Answer, Call},
    topology::{Topology, read_address},
};
use crate::{batch::Batch, limit::Decision};

/// Delay before a shard that cannot serve a call just now is asked again.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// What became of a call.
enum Outcome {
    /// The script ran.
    Decided(Answer),
    /// It was not executed, and may be sent again.
    Again(Again),
    /// It is given up: not executed, or perhaps.
    GivenUp(Reason),
}

/// Where a call that was not executed goes next.
enum Again {
    /// To the server that the slot has moved to.
    Moved(Address),
    /// To the server that the slot is moving to, this once.
    Ask(Address),
    /// To the same server, with the script's text.
    ByText(Address),
    /// To the server that the slot is moving to, with the script's text.
    AskByText(Address),
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
/// lane is free again.
pub(super) async fn fly(node: Arc<Node>, topology: Arc<Topology>, works: Vec<Work>) {
    let sent = Instant::now();
    let deadline = sent + topology.timeout();
    let mut flight = Flight::new();
    let calls = flight.load(works, sent, topology.timeout());
    if calls.is_empty() {
        return;
    }
    let outcomes = send(&node, &topology, &calls, deadline).await;
    topology.metrics().store_seconds.observe(sent.elapsed().as_secs_f64());
    let mut redirected = Vec::new();
    for (call, outcome) in calls.into_iter().zip(outcomes) {
        topology.metrics().script_items.observe(call.items_count() as f64);
        match outcome {
            Outcome::Again(again) => redirected.push((call, again)),
            done => flight.settle(&call, done),
        }
    }
    if !redirected.is_empty() {
        tokio::spawn(send_again(topology, flight, redirected, deadline));
    }
}

/// One write for all calls; an outcome for each.
async fn send(node: &Node, topology: &Topology, calls: &[Call], deadline: Instant) -> Vec<Outcome> {
    let sent = Instant::now();
    let time = topology.time_argument(node, deadline);
    let mut pipeline = redis::Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call.command(
            topology.script(),
            false,
            topology.redis_key(call.partition),
            time,
        ));
    }
    match node.call(&pipeline, calls.len(), deadline).await {
        Ok(values) if values.len() == calls.len() => {
            let outcome = |(call, value)| judge(node, topology, call, value, sent);
            calls.iter().zip(values).map(outcome).collect()
        }
        Ok(_) => all_given_up(topology, calls, Reason::Ambiguous),
        Err(CallError::NotSent) => all_given_up(topology, calls, Reason::Unavailable),
        Err(CallError::NoAnswer) => all_given_up(topology, calls, Reason::Ambiguous),
    }
}

fn all_given_up(topology: &Topology, calls: &[Call], reason: Reason) -> Vec<Outcome> {
    topology.mark_stale();
    topology.metrics().store_failures.inc_by(calls.len() as u64);
    calls.iter().map(|_| Outcome::GivenUp(reason)).collect()
}

/// What an answer means.
fn judge(node: &Node, topology: &Topology, call: &Call, value: Value, sent: Instant) -> Outcome {
    let value = match value.extract_error() {
        Ok(value) => value,
        Err(error) => return judge_error(node, topology, &error),
    };
    if let Some(answer) = Answer::read(&value) {
        node.learn_clock(sent, answer.now_us);
        if answer.states.len() == call.fields_count() {
            return Outcome::Decided(answer);
        }
        // The shard's clock says that the deadline has passed; nothing was done.
        if answer.states.is_empty() {
            return Outcome::Again(Again::Later);
        }
    }
    let error = RedisError::from((ErrorKind::UnexpectedReturnType, "not an answer of the script"));
    failed(node, topology, &error)
}

fn judge_error(node: &Node, topology: &Topology, error: &RedisError) -> Outcome {
    let target = || error.redirect_node().and_then(|(text, _)| read_address(text, &node.address.0));
    let ErrorKind::Server(kind) = error.kind() else { return failed(node, topology, error) };
    match kind {
        ServerErrorKind::Moved => {
            topology.metrics().redirected("moved");
            topology.mark_stale();
            Outcome::Again(target().map_or(Again::Later, Again::Moved))
        }
        ServerErrorKind::Ask => {
            topology.metrics().redirected("ask");
            Outcome::Again(target().map_or(Again::Later, Again::Ask))
        }
        ServerErrorKind::NoScript => Outcome::Again(Again::ByText(node.address.clone())),
        ServerErrorKind::TryAgain => {
            topology.metrics().redirected("tryagain");
            Outcome::Again(Again::Later)
        }
        ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly
        | ServerErrorKind::BusyLoading => {
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
        Some("BUSY" | "MISCONF" | "NOREPLICAS") => Outcome::Again(Again::Later),
        code => {
            node.tell_failed_call(error, "");
            let before_it_ran = matches!(code, Some("OOM" | "NOAUTH" | "WRONGTYPE"));
            given_up(topology, if before_it_ran { Reason::Unavailable } else { Reason::Ambiguous })
        }
    }
}

fn given_up(topology: &Topology, reason: Reason) -> Outcome {
    topology.metrics().store_failures.inc();
    Outcome::GivenUp(reason)
}

/// Sends the calls that were not executed again, each by itself, until the deadline.
async fn send_again(
    topology: Arc<Topology>,
    mut flight: Flight,
    calls: Vec<(Call, Again)>,
    deadline: Instant,
) {
    let again = |(call, again)| {
        let topology = Arc::clone(&topology);
        async move {
            let outcome = pursue(&topology, &call, again, deadline).await;
            (call, outcome)
        }
    };
    let mut pursuits: FuturesUnordered<_> = calls.into_iter().map(again).collect();
    while let Some((call, outcome)) = pursuits.next().await {
        flight.settle(&call, outcome);
    }
}

async fn pursue(topology: &Arc<Topology>, call: &Call, mut again: Again, deadline: Instant) -> Outcome {
    while Instant::now() < deadline {
        let (lane, asking, by_text) = match &again {
            Again::Moved(address) => (topology.lane(address).ok(), false, false),
            Again::Ask(address) => (topology.lane(address).ok(), true, false),
            Again::ByText(address) => (topology.lane(address).ok(), false, true),
            Again::AskByText(address) => (topology.lane(address).ok(), true, true),
            Again::Later => {
                sleep(RETRY_DELAY).await;
                (topology.lane_of(call.partition), false, false)
            }
        };
        let Some(lane) = lane.filter(|lane| lane.node.is_connected()) else {
            topology.mark_stale();
            // A server that is new to us is connected soon; its address stays the target.
            sleep(RETRY_DELAY).await;
            continue;
        };
        match send_one(topology, &lane.node, call, asking, by_text, deadline).await {
            Outcome::Again(next) => again = keep_asking(again, next),
            done => return done,
        }
    }
    given_up(topology, Reason::Unavailable)
}

/// A server that a slot is moving to may lack the script: it is then asked with the text, and still by ASK.
fn keep_asking(before: Again, next: Again) -> Again {
    match (before, next) {
        (Again::Ask(_), Again::ByText(address)) => Again::AskByText(address),
        (_, next) => next,
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
            Some(value) => judge(node, topology, call, value, sent),
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
        let mut calls: Vec<Call> = Vec::new();
        for (partition, index, items) in groups {
            let batch = &self.batches[index];
            let open = calls.last_mut().filter(|call| call.partition == partition);
            if !open.is_some_and(|call| call.add(index, batch, items.clone())) {
                let mut call = Call::new(partition);
                call.add(index, batch, items);
                calls.push(call);
            }
        }
        calls
    }

    /// Gives each group of a call its decisions.
    fn settle(&mut self, call: &Call, outcome: Outcome) {
        let Self { batches, replies } = self;
        match outcome {
            Outcome::Decided(answer) => call.decide(answer, batches, |group, decisions| {
                replies[group.work].give(group.items.clone().zip(decisions.iter().copied()));
            }),
            Outcome::GivenUp(reason) => {
                for group in &call.groups {
                    let batch = &batches[group.work];
                    let undecided = |item| (item, batch.undecided(item, reason));
                    replies[group.work].give(group.items.clone().map(undecided));
                }
            }
            Outcome::Again(_) => {}
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
