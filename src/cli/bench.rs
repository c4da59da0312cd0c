//! `tollgate bench`

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clap::Args;
use tokio_util::sync::CancellationToken;
use tollgate_client::ConnectError;
use tollgate_protocol::{limit::Limit, policy::Limits, varint};

use super::{
    CliError, Outcome, block_on, log,
    output::{Align, tell, write_json_line, write_table},
    question::{self, parse_name, server_address},
    serve::{self, Signals},
    usage,
};
use crate::{
    bench::{
        BenchError,
        embedded::Embedded,
        html, measure,
        plan::{Load, Plan, PolicyChoice},
        progress::Progress,
        report::{Report, Settings},
        sweep, table,
        workload::{Distribution, KEYS_MAX, Workload},
    },
    config::{Config, LogLevel, Overrides, Secret, StoreConfig, parse_limit},
};

const CONNECTIONS_MAX: u64 = 10_000;
const IN_FLIGHT_MAX: u64 = 1_000;
const BATCH_MAX: u64 = 100_000;
const TASKS_MAX: u64 = 1_000_000;
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Put load on servers, and measure how fast they answer and whether they keep their limits
///
/// Without --server it starts a server in this process and drives that through its socket.
///
/// Ctrl-C ends it early, and what was measured so far is reported.
#[derive(Args)]
#[command(after_long_help = "\
Without --rate each call follows an answer: it shows how much the servers can do. With it calls are
sent by a schedule whatever the answers, and the time of each counts from when it was due, so that a
stall is not hidden. Times are those of a whole call, as who waits for it sees them.

The promise: for some keys, the hottest among them, it is noted what passed and when. Of all
intervals, the one is told in which most passed of what the limits let pass; above 1 the promise is
broken.

--json has one object, among it: checks_per_s (decided checks), allowed, denied, denied_cached,
errors, degraded, p50_us, p99_us, p999_us, worst_admitted_over_promised (null where the limits are
not known), percentiles, series, sweep, settings.

Exit status:
  0  it ran, and the limits were kept
  1  a limit was not kept, no server was there, or none of the checks was decided
  2  wrong usage

Examples:
  tollgate bench --batch 1024
  tollgate bench --tasks 1000
  tollgate bench --store redis://127.0.0.1:6379 --batch 256 --in-flight 8
  tollgate bench --server 10.0.0.1:7420,10.0.0.2:7420 --policy api --rate 50000 --json -
  tollgate bench --dist hot --limit token-bucket:1000000/1s --sweep --sweep-p99 2ms")]
pub(super) struct BenchArgs {
    /// Servers to put the load on, separated by commas; without it one is started in this process
    #[arg(
        long,
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = server_address,
        conflicts_with_all = ["config", "store"]
    )]
    server: Vec<String>,

    /// Configuration of the server in this process, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the server in this process keeps its states: `memory`, or a URL as of `tollgate serve`
    #[arg(long, value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// A policy that the servers' configuration names
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "limits")]
    policy: Option<String>,

    /// A limit, up to 4 times, as of `tollgate check` [default: token-bucket:100/1s]
    #[arg(long = "limit", value_name = "SPEC", value_parser = parse_limit)]
    limits: Vec<Limit>,

    /// What each check charges
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..=varint::VALUE_MAX)
    )]
    cost: u64,

    /// Keys to draw from
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX)
    )]
    keys: u64,

    /// How often each key is asked: `uniform`, `zipf:S` (the n-th in proportion to 1/n^S), `hot` (one key)
    #[arg(long, value_name = "DIST", default_value_t = Distribution::Uniform)]
    dist: Distribution,

    /// Seed that the keys are drawn by
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Clients, each with a connection of its own to each server
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX)
    )]
    connections: u64,

    /// Calls that wait for their answers at a time, on each connection
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u64).range(1..=IN_FLIGHT_MAX)
    )]
    in_flight: u64,

    /// Checks in each call
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX)
    )]
    batch: u64,

    /// Tasks that ask one check after another, spread over the connections, instead of calls of many
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["in_flight", "batch"],
        value_parser = clap::value_parser!(u64).range(1..=TASKS_MAX)
    )]
    tasks: Option<u64>,

    /// Checks a second to send by a schedule, whatever the answers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,

    /// Find the highest rate at which 99 % of the calls are answered in time; each rate takes a whole run
    #[arg(long, conflicts_with = "rate")]
    sweep: bool,

    /// The time of --sweep
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = time, requires = "sweep")]
    sweep_p99: Duration,

    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,

    /// Time of load before that, which is not measured
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time_or_none)]
    warm_up: Duration,

    /// Write the report as a JSON object to a file; `-`: to the standard output, and the table to the standard
    /// error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the report as a page with plots, in one file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

fn time_or_none(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= TIME_MAX => Ok(time),
        Ok(_) => Err("at most 24h".into()),
        Err(error) => Err(format!("{error}; write a time such as 10s or 500ms")),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    time_or_none(text).and_then(|time| if time.is_zero() { Err("it must not be 0".into()) } else { Ok(time) })
}

pub(super) fn run(args: BenchArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let policy = policy(&args)?;
    // A file that cannot be written is told before the work, not after it.
    let json =
        args.json.as_deref().filter(|file| *file != Path::new("-")).map(ReportFile::create).transpose()?;
    let page = args.html.as_deref().map(ReportFile::create).transpose()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (embedded, store) = match &args.server[..] {
        [] => {
            let config = config(&args)?;
            log::start(config.log)?;
            let embedded = Embedded::start(cores, || serve::server(&config))?;
            (Some(embedded), Some(store_name(&config.store)))
        }
        _ => (None, None),
    };
    let servers = embedded.as_ref().map_or(args.server.clone(), |embedded| vec![embedded.address().into()]);
    let plan = plan(&args, servers, policy, cores);
    let report = test(&args, &plan, store)?;
    if let Some(page) = page {
        page.write(|out| out.write_all(html::page(&report)?.as_bytes()))?;
    }
    write(&args, &report, json, out)?;
    Ok(judge(&report))
}

fn policy(args: &BenchArgs) -> Result<PolicyChoice, CliError> {
    const DEFAULT: Limit = Limit::TokenBucket { rate: 100, period_us: 1_000_000, capacity: 100 };
    Ok(match &args.policy {
        Some(name) => PolicyChoice::Named(name.clone()),
        None => {
            PolicyChoice::Inline(question::limits(&args.limits)?.unwrap_or_else(|| Limits::from(DEFAULT)))
        }
    })
}

fn config(args: &BenchArgs) -> Result<Config, CliError> {
    let overrides = Overrides {
        store: args.store.clone().map(Secret::from),
        log_level: Some(LogLevel::Warn),
        ..Overrides::default()
    };
    Ok(Config::load(args.config.as_deref(), overrides)?)
}

/// Where states are kept, without credentials.
fn store_name(store: &StoreConfig) -> String {
    match store {
        StoreConfig::Memory(_) => "memory".into(),
        StoreConfig::Redis(redis) => redis.url.to_string(),
    }
}

fn plan(args: &BenchArgs, servers: Vec<String>, policy: PolicyChoice, threads: usize) -> Plan {
    let connections = args.connections as usize;
    Plan {
        servers,
        policy,
        workload: Workload::new(args.keys, args.dist, args.cost, args.seed),
        connections,
        load: match args.tasks {
            Some(tasks) => Load::Calls { tasks: tasks as usize },
            None => Load::Batches { in_flight: args.in_flight as usize, batch: args.batch as usize },
        },
        rate_per_s: args.rate.map(|rate| rate as f64),
        warm_up: args.warm_up,
        duration: args.duration,
        threads: threads.min(connections),
    }
}

/// Runs the load; signals end it early.
fn test(args: &BenchArgs, plan: &Plan, store: Option<String>) -> Result<Report, CliError> {
    let progress = Progress::new(args.quiet);
    let tested = block_on(async {
        let mut signals = Signals::new().map_err(CliError::Signals)?;
        let interrupted = CancellationToken::new();
        let load = async {
            if args.sweep {
                let (measured, sweep) = sweep(plan, args.sweep_p99, &progress, &interrupted).await?;
                Ok((measured, Some(sweep)))
            } else {
                Ok((measure(plan, &progress, &interrupted).await?, None))
            }
        };
        tokio::select! {
            tested = load => tested.map_err(bench_error),
            () = signals.twice(&interrupted) => Err(CliError::Interrupted),
        }
    })?;
    progress.clear();
    let (measured, sweep) = tested?;
    let rate_per_s = sweep.as_ref().map_or(plan.rate_per_s, |sweep| sweep.knee_per_s);
    let settings = Settings { rate_per_s, ..settings(args, plan, store) };
    Ok(Report { version: env!("CARGO_PKG_VERSION"), settings, measured, sweep })
}

fn bench_error(error: BenchError) -> CliError {
    match error {
        BenchError::Connect(wrong) if !matches!(wrong, ConnectError::Unreachable { .. }) => usage(wrong),
        error => error.into(),
    }
}

fn settings(args: &BenchArgs, plan: &Plan, store: Option<String>) -> Settings {
    Settings {
        servers: args.server.clone(),
        store,
        policy: match &plan.policy {
            PolicyChoice::Named(name) => name.clone(),
            PolicyChoice::Inline(limits) => limits.to_string(),
        },
        connections: plan.connections,
        in_flight: plan.in_flight(),
        batch: plan.batch(),
        rate_per_s: plan.rate_per_s,
        keys: plan.workload.keys(),
        distribution: plan.workload.distribution().to_string(),
        cost: plan.workload.cost(),
        seed: plan.workload.seed(),
        threads: plan.threads,
        warm_up_s: plan.warm_up.as_secs_f64(),
        duration_s: plan.duration.as_secs_f64(),
    }
}

/// A file that a report goes to.
struct ReportFile<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> ReportFile<'a> {
    fn create(path: &'a Path) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|source| Self::error(path, source))?;
        Ok(Self { path, file })
    }

    fn write(self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), CliError> {
        let mut out = BufWriter::new(self.file);
        write(&mut out).and_then(|()| out.flush()).map_err(|source| Self::error(self.path, source))
    }

    fn error(path: &Path, source: io::Error) -> CliError {
        CliError::Report { file: path.display().to_string(), source }
    }
}

fn write(
    args: &BenchArgs,
    report: &Report,
    json: Option<ReportFile<'_>>,
    out: &mut impl Write,
) -> Result<(), CliError> {
    let rows = table::rows(report);
    let align = [Align::Left, Align::Left];
    match json {
        Some(json) => json.write(|out| write_json_line(out, report))?,
        None if args.json.is_some() => {
            write_json_line(out, report)?;
            // Nobody may be there to read the table.
            let _ = write_table(&mut io::stderr(), align, &rows);
            return Ok(());
        }
        None => {}
    }
    Ok(write_table(out, align, &rows)?)
}

/// Says what makes the test a failure, if anything does.
fn judge(report: &Report) -> Outcome {
    let measured = &report.measured;
    let is_broken = measured.worst_admitted_over_promised.is_some_and(|ratio| ratio > 1.0);
    if let Some(worst) = measured.worst.as_ref().filter(|_| is_broken) {
        tell(format_args!(
            "error: the promise was broken: {} passed for {} within {} us, where {} lets {} pass",
            worst.admitted, worst.key, worst.interval_us, worst.limit, worst.promised
        ));
    }
    let nothing = measured.allowed + measured.denied == 0;
    if nothing {
        let why = measured.first_error.as_deref().unwrap_or("the store did not answer, or it was too short");
        tell(format_args!("error: none of the checks was decided: {why}"));
    }
    if is_broken || nothing { Outcome::Failed } else { Outcome::Done }
}
