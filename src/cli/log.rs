//! The log, on the standard error.

use std::{
    env,
    io::{self, IsTerminal},
};

use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
};

use super::{CliError, usage};
use crate::config::{LogConfig, LogFormat, LogLevel};

/// Logs from now on.
pub(super) fn start(config: LogConfig) -> Result<(), CliError> {
    let directives = env::var("RUST_LOG").unwrap_or_default();
    let filter = filter(&directives, config.level).map_err(|error| {
        usage(format_args!("RUST_LOG={directives:?} is not a filter of the log: {error}"))
    })?;
    let is_colored =
        io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(is_colored)
        // Telling on the standard error that it is closed would panic.
        .log_internal_errors(false);
    let started = match config.format {
        LogFormat::Human => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    // Fails only where a log was started already: it goes on.
    let _ = started;
    Ok(())
}

/// What RUST_LOG says, else everything down to `level`.
fn filter(directives: &str, level: LogLevel) -> Result<EnvFilter, ParseError> {
    if directives.is_empty() {
        return Ok(EnvFilter::default().add_directive(level_filter(level).into()));
    }
    EnvFilter::builder().parse(directives)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_the_level() {
        let shown = |directives| filter(directives, LogLevel::Warn).map(|filter| filter.to_string()).ok();
        assert_eq!(shown("").as_deref(), Some("warn"));
        assert_eq!(shown("tollgate=debug").as_deref(), Some("tollgate=debug"));
        assert_eq!(shown("tollgate=loud"), None);
    }
}
