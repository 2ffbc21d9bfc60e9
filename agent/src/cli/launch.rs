//! Starts a command that keeps running: the log, the runtime, and the exit status of a failure.

use std::process::ExitCode;
use std::time::Duration;

use nudge_protocol::error_chain::message;
use nudge_server::memory::limit_arenas;
use tracing::level_filters::LevelFilter;

use super::LogFormat;
use super::output::print_error;
use crate::proc::EXIT_AGENT;

/// How long the runtime waits at its end for a thread that still reads or writes a file.
const FILES_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// The reasons why a command fails, with its exit code.
pub(super) struct LaunchFailure {
    pub(super) code: u8,
    pub(super) reasons: Vec<String>,
}

impl LaunchFailure {
    /// Returns the failure by what the agent finds before it serves.
    pub(super) fn of(reason: impl Into<String>) -> Self {
        Self { code: EXIT_AGENT, reasons: vec![reason.into()] }
    }
}

impl<E: std::error::Error> From<E> for LaunchFailure {
    fn from(error: E) -> Self {
        Self::of(message(&error))
    }
}

/// Runs `work` to its end, with the log on standard error.
pub(super) fn launch(
    format: LogFormat,
    level: LevelFilter,
    work: impl Future<Output = Result<u8, LaunchFailure>>,
) -> ExitCode {
    // The runtime has one thread; helpers that read files should not each get an arena.
    limit_arenas(1);
    start_log(format, level);
    report_panics();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().thread_keep_alive(Duration::from_secs(1)).build();
    let result = runtime.map_err(LaunchFailure::from).and_then(|runtime| {
        let result = runtime.block_on(work);
        runtime.shutdown_timeout(FILES_SHUTDOWN_TIMEOUT);
        result
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(LaunchFailure { code, reasons }) => {
            for reason in reasons {
                print_error(&reason);
            }
            ExitCode::from(code)
        }
    }
}

/// Logs the position of a panic, but not its message, which might hold a value.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(at = location, "task panicked, which is a bug");
    }));
}

fn start_log(format: LogFormat, level: LevelFilter) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        // The agent must not end when the reader of its log does.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.init(),
    }
}
