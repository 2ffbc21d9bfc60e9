//! `kubectl nudge`: what users do with versions, as one short command each.
//!
//! Decisions are plain functions over plain data (`content`, `parts`, `object_names`, `outcome`, `changes`, `report`, `dictionary`); the
//! commands ask the API server, decide, and print. No value of a Secret is printed, unless `get --show-secrets` asks for it.

mod arguments;
mod baseline;
mod changes;
mod completion;
mod content;
mod create;
mod current;
mod delete;
mod dictionary;
mod diff;
mod enable;
mod env_file;
mod failure;
mod get;
mod moved;
mod object_names;
mod outcome;
mod output;
mod owners;
mod parts;
mod pause;
mod period;
mod progress;
mod report;
mod restart;
mod rollback;
mod session;
mod sources;
mod stored;
mod switch;
mod versions;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};
use failure::Failure;
use output::Output;
use session::Session;

/// The name under which kubectl asks for completions.
const COMPLETER: &str = "kubectl_complete-nudge";

/// Runs the command of this process's arguments.
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the rollout that was waited for failed or was rolled back; 124 it was still on
/// when the time was up; 130 whoever waited pressed Ctrl-C.
pub fn run() -> ExitCode {
    let output = Output;
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let ended = if program.ends_with(COMPLETER) {
        start(completion::run(output, words.collect()))
    } else {
        let arguments = Arguments::parse();
        start(execute(output, arguments))
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.complain(&failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn start(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("can't start: {error}")))?;
    runtime.block_on(command)
}

async fn execute(output: Output, arguments: Arguments) -> Result<(), Failure> {
    let connection = &arguments.connection;
    // What needs no API server.
    match &arguments.command {
        Command::Completion => return output.print(completion::SCRIPT),
        Command::Complete { words } => return completion::run(output, words.clone()).await,
        Command::Create(command) if command.is_offline() => {
            return create::offline(output, command, connection.namespace.as_deref());
        }
        _ => {}
    }
    let session = Session::connect(connection, output).await?;
    let elsewhere = matches!(arguments.command, Command::Enable(_));
    match run_command(&session, arguments.command).await {
        Err(failure) if failure.code == failure::FAILED && !elsewhere => {
            Err(session.without_namespace().await.unwrap_or(failure))
        }
        ended => ended,
    }
}

async fn run_command(session: &Session, command: Command) -> Result<(), Failure> {
    match command {
        Command::Enable(command) => enable::run(session, &command).await,
        Command::Create(command) => create::run(session, &command).await,
        Command::Use(command) => switch::run(session, &command).await,
        Command::Rollback(command) => rollback::run(session, &command).await,
        Command::Versions(command) => versions::run(session, &command).await,
        Command::Diff(command) => diff::run(session, &command).await,
        Command::Status(command) => report::run(session, &command).await,
        Command::Current(command) => current::run(session, &command).await,
        Command::Pause(command) => pause::run(session, &command, true).await,
        Command::Resume(command) => pause::run(session, &command, false).await,
        Command::Delete(command) => delete::run(session, &command).await,
        Command::Baseline(command) => baseline::run(session, &command).await,
        Command::Restart(command) => restart::run(session, &command).await,
        Command::Get(command) => get::run(session, &command).await,
        Command::Completion | Command::Complete { .. } => Ok(()),
    }
}
