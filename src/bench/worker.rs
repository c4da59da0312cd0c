//! A thread of the load generator: a runtime of its own, some of the connections, and the tasks that call on them.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::{
    runtime::Builder,
    sync::{mpsc::UnboundedSender, oneshot},
    task::LocalSet,
    time::sleep_until,
};
use tollgate_client::{Client, ConnectError, DefineError, PolicyRef, UnknownPolicyError};

use super::{
    pace::{Pace, Turn},
    plan::{Load, Plan, PolicyChoice, Timeline},
    promise::{Monitor, Watch},
    recorder::{Call, Interval, Limits, Recorder},
    workload::{Key, Stream, Workload},
};

/// Time that a call has until it is given up. A server that stalls for less is seen as slow, not as failing.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Why a load test did not begin.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A client could not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The servers do not know the policy.
    #[error(transparent)]
    UnknownPolicy(#[from] UnknownPolicyError),
    /// The client does not take the policy.
    #[error(transparent)]
    Define(#[from] DefineError),
    /// A runtime, a thread or a socket could not be had.
    #[error("the load test cannot be started: {0}")]
    Start(#[from] io::Error),
    /// A thread of the load generator is gone.
    #[error("a thread of the load generator ended before its time")]
    Lost,
}

/// What a thread is told when all are connected.
pub(super) struct Go {
    pub(super) timeline: Timeline,
    pub(super) pace: Pace,
    pub(super) monitor: Monitor,
    pub(super) watch: Watch,
    pub(super) closed: UnboundedSender<Interval>,
}

/// What a thread has found in the end.
pub(super) struct Found {
    pub(super) monitor: Monitor,
    pub(super) limits: Limits,
    pub(super) first_error: Option<String>,
    /// CPU time that it took since the measuring began, in seconds.
    pub(super) cpu_s: f64,
}

/// A thread, from its starter's side.
pub(super) struct Worker {
    /// Says when it has connected.
    pub(super) ready: oneshot::Receiver<Result<(), BenchError>>,
    /// Lets it begin; dropped instead, it ends.
    pub(super) go: oneshot::Sender<Go>,
    /// What it has found.
    pub(super) found: oneshot::Receiver<Found>,
}

impl Worker {
    /// Starts thread `index` of `plan.threads`, which connects.
    pub(super) fn start(plan: &Plan, index: usize) -> Result<Self, BenchError> {
        let ((say_ready, ready), (go, begin), (say_found, found)) =
            (oneshot::channel(), oneshot::channel(), oneshot::channel());
        let plan = plan.clone();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(format!("load-{index}")).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                let connected = connect(&plan, index).await;
                let (said, connections) = match connected {
                    Ok(connections) => (Ok(()), connections),
                    Err(error) => (Err(error), Vec::new()),
                };
                // Whoever started it may have given up.
                let _ = say_ready.send(said);
                if let Ok(go) = begin.await {
                    let _ = say_found.send(run(&plan, index, connections, go).await);
                }
            });
        })?;
        Ok(Self { ready, go, found })
    }
}

/// A client, and how to ask by it.
#[derive(Clone)]
struct Connection {
    number: usize,
    client: Client,
    policy: PolicyRef,
}

/// Opens every `plan.threads`-th connection.
async fn connect(plan: &Plan, thread: usize) -> Result<Vec<Connection>, BenchError> {
    let mut connections = Vec::new();
    for number in (thread..plan.connections).step_by(plan.threads) {
        let builder = Client::builder().servers(plan.servers.iter().cloned()).deadline(CALL_DEADLINE);
        let client = builder.connect().await?;
        let policy = match &plan.policy {
            PolicyChoice::Named(name) => client.policy(name)?,
            PolicyChoice::Inline(limits) => client.define(limits.clone())?,
        };
        connections.push(Connection { number, client, policy });
    }
    Ok(connections)
}

async fn run(plan: &Plan, thread: usize, connections: Vec<Connection>, go: Go) -> Found {
    let Go { timeline, pace, monitor, watch, closed } = go;
    let recorder = Recorder::new(thread, timeline, plan.workload.cost(), monitor, closed);
    let recorder = Rc::new(RefCell::new(recorder));
    let cpu_before_s = tokio::task::spawn_local(async move {
        sleep_until(timeline.measure.into()).await;
        cpu_s(ClockId::ThreadCPUTime)
    });
    let mut tasks = Vec::new();
    for connection in connections {
        for task in 0..plan.tasks_of(connection.number) {
            // Each task draws keys of its own.
            let stream = plan.workload.stream((connection.number as u64) << 32 | task as u64);
            let caller = Caller {
                connection: connection.clone(),
                workload: plan.workload.clone(),
                stream,
                watch,
                pace: pace.clone(),
                recorder: Rc::clone(&recorder),
            };
            tasks.push(match plan.load {
                Load::Batches { batch, .. } => tokio::task::spawn_local(caller.call_batches(batch)),
                Load::Calls { .. } => tokio::task::spawn_local(caller.call_one_by_one()),
            });
        }
    }
    for task in tasks {
        // A task that panicked has said so.
        let _ = task.await;
    }
    let before_s = if cpu_before_s.is_finished() { cpu_before_s.await.ok() } else { None };
    let mut recorder = recorder.borrow_mut();
    recorder.finish();
    Found {
        monitor: recorder.monitor.clone(),
        limits: std::mem::take(&mut recorder.limits),
        first_error: recorder.first_error.take(),
        cpu_s: before_s.map_or(0.0, |before_s| cpu_s(ClockId::ThreadCPUTime) - before_s),
    }
}

/// CPU time by a clock, in seconds.
pub(super) fn cpu_s(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A task that asks and waits.
struct Caller {
    connection: Connection,
    workload: Workload,
    stream: Stream,
    watch: Watch,
    pace: Pace,
    recorder: Rc<RefCell<Recorder>>,
}

impl Caller {
    async fn call_batches(mut self, batch: usize) {
        let (mut keys, mut watched) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
        let Connection { client, policy, .. } = &self.connection;
        loop {
            keys.clear();
            watched.clear();
            for (position, index) in self.stream.by_ref().take(batch).enumerate() {
                keys.push(Key::new(index));
                watched.extend(self.watch.slot(index).map(|slot| (position, slot)));
            }
            let Some(Turn { due, now: sent }) = self.pace.next().await else { return };
            let answers = client.check_many(policy, &keys, self.workload.cost()).await;
            let call = Call { due, sent, answered: Instant::now() };
            self.recorder.borrow_mut().record(call, &answers, &watched);
        }
    }

    async fn call_one_by_one(mut self) {
        let Connection { client, policy, .. } = &self.connection;
        while let Some(Turn { due, now: sent }) = self.pace.next().await {
            let Some(index) = self.stream.next() else { return };
            let watched = self.watch.slot(index).map(|slot| (0, slot));
            let answer = client.check(policy, Key::new(index), self.workload.cost()).await;
            let call = Call { due, sent, answered: Instant::now() };
            self.recorder.borrow_mut().record(call, &[answer], watched.as_slice());
        }
    }
}
