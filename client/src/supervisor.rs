//! One task a server that keeps it connected.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection,
    error::Broken,
    servers::Servers,
    session::{Left, Session},
};

/// Bounds of the delay before another attempt.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Starts the task. It ends with `stop`, and its connections with it.
pub(crate) fn start(servers: Arc<Servers>, server: usize, stop: CancellationToken) {
    let task = keep_connected(servers, server, stop.clone());
    tokio::spawn(stop.run_until_cancelled_owned(task));
}

async fn keep_connected(servers: Arc<Servers>, server: usize, stop: CancellationToken) {
    let mut backoff = Backoff::default();
    loop {
        let started = Instant::now();
        match connect(&servers, server, &stop).await {
            Ok(left) => {
                let left = left.await.unwrap_or(Left::Broken);
                backoff.lived(started.elapsed());
                wait_to_reconnect(&servers, &mut backoff, left).await;
            }
            Err(broken) => {
                let name = servers.name(server);
                tracing::warn!(server = %name, reason = %broken, "cannot connect");
                servers.down(server, broken.to_string().into());
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Opens a connection and starts its task.
async fn connect(
    servers: &Arc<Servers>,
    server: usize,
    stop: &CancellationToken,
) -> Result<oneshot::Receiver<Left>, Broken> {
    let opened = connection::open(servers.name(server)).await?;
    let names: Vec<_> = opened.hello.policies.iter().map(|policy| policy.name.clone()).collect();
    let now = Instant::now().into_std();
    let (session, left) = Session::new(Arc::clone(servers), server, opened.input, opened.hello, now)?;
    tracing::info!(server = %servers.name(server), "connected");
    servers.registry().announce_all(server, names);
    servers.up(server, Arc::clone(&session.link));
    tokio::spawn(stop.clone().run_until_cancelled_owned(connection::run(opened.stream, session)));
    Ok(left)
}

/// A server that says goodbye has its clients come back spread over the time it names; but a call that has
/// nowhere else to go does not wait. One that says goodbye again and again is waited for as if it were down.
async fn wait_to_reconnect(servers: &Servers, backoff: &mut Backoff, left: Left) {
    match left {
        Left::GoingAway(within) if backoff.is_new() => {
            backoff.next_delay();
            tokio::select! {
                () = sleep(random_below(within)) => {}
                () = servers.wait_for_demand() => {}
            }
        }
        _ => sleep(backoff.next_delay()).await,
    }
}

/// Delays between attempts: drawn from nothing to a bound that doubles, so that clients do not come together.
#[derive(Debug, Default)]
struct Backoff {
    attempts: u32,
}

impl Backoff {
    fn is_new(&self) -> bool {
        self.attempts == 0
    }

    /// Starts anew after a connection that lived for longer than any delay.
    fn lived(&mut self, time: Duration) {
        if time > BACKOFF_MAX {
            self.attempts = 0;
        }
    }

    fn next_delay(&mut self) -> Duration {
        let bound = BACKOFF_MIN.saturating_mul(1 << self.attempts.min(16)).min(BACKOFF_MAX);
        self.attempts += 1;
        random_below(bound)
    }
}

fn random_below(bound: Duration) -> Duration {
    bound.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_start_anew_after_a_long_life() {
        let mut backoff = Backoff::default();
        let first = (0..64).map(|_| Backoff::default().next_delay()).max();
        assert!(first <= Some(BACKOFF_MIN));
        assert!((0..100).all(|_| backoff.next_delay() <= BACKOFF_MAX));
        backoff.lived(Duration::from_secs(1));
        assert!(!backoff.is_new(), "a short life is no reason to come back at once");
        backoff.lived(Duration::from_secs(60));
        assert!(backoff.is_new());
    }
}
