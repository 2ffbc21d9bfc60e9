//! The output of commands: results to standard output, errors with their causes to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use nudge_protocol::error_chain::message;

/// Prints the reason of a failure and returns the exit status 1.
pub(super) fn fail(reason: &str) -> ExitCode {
    print_error(reason);
    ExitCode::FAILURE
}

/// Prints a line to standard error.
pub(super) fn print_error(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "nudge-agent: {line}");
}

/// Prints to standard output. A reader that has ended, as `head` does, is not an error.
pub(super) fn print(bytes: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&message(&error)),
    }
}
