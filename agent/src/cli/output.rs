//! What commands print: results to standard output, errors to standard error as one sentence with its causes.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints an error with its causes and returns the exit status 1.
pub(super) fn fail(error: &dyn Error) -> ExitCode {
    complain(&error_chain(error));
    ExitCode::FAILURE
}

/// Prints a line to standard error.
pub(super) fn complain(line: &str) {
    // If standard error is closed there is nobody left to tell.
    let _ = writeln!(io::stderr(), "nudge-agent: {line}");
}

/// Prints to standard output. A reader that has gone, as `head` does, is no error worth words.
pub(super) fn print(bytes: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// An error and its causes in one line. A cause that the text above it holds already is left out.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
