//! The command line: a file for each command.

mod check;
mod client;
mod exec;
mod get;
mod launch;
mod output;
mod run;
mod status;
mod switch;
mod wait_ready;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::proc::EXIT_AGENT;

/// Serves configuration over HTTPS and notifies the application when it changes.
///
/// Try it: `nudge-agent exec --dir DIR --notify SIGUSR1 -- COMMAND` runs COMMAND with the configuration in DIR at hand,
/// and in another terminal `nudge-agent use --dir DIR CONFIG VERSION` gives it another version while it runs.
#[derive(Debug, Parser)]
#[command(name = "nudge-agent", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exec(Box<exec::Args>),
    Run(Box<run::Args>),
    WaitReady(wait_ready::Args),
    Use(switch::Args),
    Get(get::Args),
    Status(status::Args),
    Check(check::Args),
}

/// How the log is written, to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs the command line `arguments` and returns the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_exec = arguments.get(1).is_some_and(|command| command == "exec");
    match Cli::try_parse_from(arguments) {
        Ok(cli) => match cli.command {
            Command::Exec(args) => exec::run(*args),
            Command::Run(args) => run::run(*args),
            Command::WaitReady(args) => wait_ready::run(&args),
            Command::Use(args) => switch::run(&args),
            Command::Get(args) => get::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Check(args) => check::run(&args),
        },
        Err(error) => {
            // Help and version come as errors too; they go to standard output and succeed.
            let _ = error.print();
            match u8::try_from(error.exit_code()) {
                Ok(0) => ExitCode::SUCCESS,
                // The code differs from the exit status of COMMAND.
                _ if is_exec => ExitCode::from(EXIT_AGENT),
                code => ExitCode::from(code.unwrap_or(2)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
