//! The stages of a shutdown, in which no check is lost and none is executed twice.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::TaskTracker;

/// What was on its way when a client was told that the server leaves has arrived after this time.
const NOTICE: Duration = Duration::from_millis(200);

/// A shutdown takes no longer than this.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How far a shutdown is. Stages only ever follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// There is no shutdown.
    Serving,
    /// Clients are told that the server will leave; everything that comes is still executed.
    Leaving,
    /// Clients are told which frame was the last; what is in flight is finished.
    Finishing,
    /// What is left is cut off.
    Cut,
}

/// Leads all connections of a server through a shutdown.
#[derive(Debug)]
pub(crate) struct Drain {
    stage: watch::Sender<Stage>,
    /// The tasks that the shutdown waits for.
    pub(crate) tasks: TaskTracker,
}

impl Drain {
    /// Before a shutdown.
    pub(crate) fn new() -> Self {
        Self { stage: watch::Sender::new(Stage::Serving), tasks: TaskTracker::new() }
    }

    /// The stage, for one that follows it.
    pub(crate) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Shuts down. No task may be added any more.
    pub(crate) async fn run(&self) {
        let end = Instant::now() + DRAIN_MAX;
        self.tasks.close();
        self.stage.send_replace(Stage::Leaving);
        if timeout(NOTICE, self.tasks.wait()).await.is_ok() {
            return;
        }
        self.stage.send_replace(Stage::Finishing);
        if timeout_at(end, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "cut off what was not finished in {DRAIN_MAX:?}");
            self.stage.send_replace(Stage::Cut);
            self.tasks.wait().await;
        }
    }
}
