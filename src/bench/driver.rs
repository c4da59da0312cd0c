//! One run of load, from connecting to what was measured.

use std::time::{Duration, Instant};

use rustix::time::ClockId;
use tokio::{
    sync::{
        mpsc::{self, UnboundedReceiver},
        oneshot,
    },
    time::{interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    collector::{Collected, Collector},
    pace::{Pace, Schedule, Stop},
    plan::{Plan, Timeline},
    progress::{Live, Progress},
    promise::{Monitor, Watch},
    recorder::{Interval, Limits},
    report::Measured,
    summary,
    worker::{BenchError, CALL_DEADLINE, Found, Go, Worker, cpu_s},
};

/// How often the progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// What a run has found.
pub(super) struct Run {
    pub(super) timeline: Timeline,
    /// Time that was measured.
    pub(super) elapsed: Duration,
    pub(super) collected: Collected,
    /// Calls that were due and never sent.
    pub(super) not_sent: u64,
    pub(super) watch: Watch,
    /// What all threads have found.
    pub(super) found: Found,
    /// CPU time of the process, in seconds.
    pub(super) process_cpu_s: f64,
}

/// Puts the load of `plan` on its servers, and measures. Once `interrupted`, it sends nothing more and tells what it
/// has so far.
///
/// # Errors
/// Where a connection cannot be opened, or the policy is not known. Failures from then on are counted.
pub async fn measure(
    plan: &Plan,
    progress: &Progress,
    interrupted: &CancellationToken,
) -> Result<Measured, BenchError> {
    let workers = start(plan).await?;
    let timeline = Timeline::new(Instant::now(), plan);
    let stop = Stop::default();
    let pace = match plan.rate_per_s {
        None => Pace::Closed { end: timeline.end, stop: stop.clone() },
        Some(rate_per_s) => {
            Pace::Open(Schedule::start(&timeline, rate_per_s / plan.batch() as f64, stop.clone()))
        }
    };
    let watch = Watch::new(&plan.workload);
    let span = timeline.end - timeline.begin + CALL_DEADLINE;
    let monitor = Monitor::new(watch, span.as_micros() as u64);
    let (closed, intervals) = mpsc::unbounded_channel();
    let mut founds = Vec::with_capacity(workers.len());
    for Worker { go, found, .. } in workers {
        let order =
            Go { timeline, pace: pace.clone(), monitor: monitor.clone(), watch, closed: closed.clone() };
        go.send(order).map_err(|_| BenchError::Lost)?;
        founds.push(found);
    }
    drop(closed);
    let listened = listen(plan, &timeline, intervals, progress, interrupted, &stop).await;
    let Listened { elapsed, collected, process_cpu_s } = listened;
    let found = gather(founds, monitor).await?;
    let not_sent = pace.not_sent();
    Ok(summary::measured(plan, &Run { timeline, elapsed, collected, not_sent, watch, found, process_cpu_s }))
}

/// Puts together what the threads have found; `monitor` has noted nothing yet.
async fn gather(threads: Vec<oneshot::Receiver<Found>>, monitor: Monitor) -> Result<Found, BenchError> {
    let mut all = Found { monitor, limits: Limits::default(), first_error: None, cpu_s: 0.0 };
    for thread in threads {
        let found = thread.await.map_err(|_| BenchError::Lost)?;
        all.monitor.merge(&found.monitor);
        all.limits.merge(&found.limits);
        all.first_error = all.first_error.or(found.first_error);
        all.cpu_s += found.cpu_s;
    }
    Ok(all)
}

/// Starts the threads, and waits until all have connected.
async fn start(plan: &Plan) -> Result<Vec<Worker>, BenchError> {
    let mut workers =
        (0..plan.threads).map(|index| Worker::start(plan, index)).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        (&mut worker.ready).await.map_err(|_| BenchError::Lost)??;
    }
    Ok(workers)
}

struct Listened {
    elapsed: Duration,
    collected: Collected,
    process_cpu_s: f64,
}

/// Puts together what the threads send, until they end.
async fn listen(
    plan: &Plan,
    timeline: &Timeline,
    mut intervals: UnboundedReceiver<Interval>,
    progress: &Progress,
    interrupted: &CancellationToken,
    stop: &Stop,
) -> Listened {
    let mut collector = Collector::new(plan.threads);
    let mut show = interval(SHOW_EVERY);
    let (mut is_interrupted, mut cpu_before_s) = (false, None);
    loop {
        tokio::select! {
            interval = intervals.recv() => match interval {
                Some(interval) => collector.take(interval),
                None => break,
            },
            _ = show.tick() => progress.show(&Live::new(timeline, &collector)),
            () = interrupted.cancelled(), if !is_interrupted => {
                is_interrupted = true;
                stop.set();
            }
            () = sleep_until(timeline.measure.into()), if cpu_before_s.is_none() => {
                cpu_before_s = Some(cpu_s(ClockId::ProcessCPUTime));
            }
        }
    }
    let measured = Instant::now().saturating_duration_since(timeline.measure);
    let elapsed = measured.min(plan.duration);
    let count = elapsed.as_nanos().div_ceil(timeline.interval.as_nanos()) as usize;
    let process_cpu_s = cpu_before_s.map_or(0.0, |before_s| cpu_s(ClockId::ProcessCPUTime) - before_s);
    Listened { elapsed, collected: collector.finish(count), process_cpu_s }
}
