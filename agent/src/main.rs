//! The agent's binary: hands over to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    nudge_agent::cli::run(std::env::args_os())
}
