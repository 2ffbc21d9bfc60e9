//! `kubectl nudge`: one short command for each task with versions.
//!
//! - `commands`: a file for each command, with its arguments
//! - `backup`: exports and their format
//! - `cluster`: the cluster, and the way to it
//! - `attention`: whether Nudge may look at the objects of a command
//! - `output`: tables, progress, and the text of reports
//! - `version`: the content of versions, as it is read from files, divided into objects, and read back
//! - `page`: the page of `kubectl nudge ui`
//! - `plan`: what a version would do to the pods of a config
//! - `rollout`: the change of `spec.version`, and the wait for the rollout
//! - `followed_objects`: the text of a config's objects, and the edits of users
//! - `editor`: the user's editor
//!
//! Only `get --show-secrets` prints a value of a Secret. Exports hold such values only encrypted.

mod attention;
mod backup;
mod cluster;
mod commands;
mod dry_run;
mod editor;
mod failure;
mod followed_objects;
mod manifest;
mod output;
mod page;
mod period;
mod plan;
mod reason;
mod rights;
mod rollout;
mod session;
mod version;
mod warnings;

use std::process::ExitCode;

use clap::Parser as _;

use crate::commands::arguments::Arguments;
use crate::commands::completion;
use crate::failure::Failure;
use crate::output::Output;

/// The program name under which kubectl requests completions.
const COMPLETION_PROGRAM: &str = "kubectl_complete-nudge";

/// Runs the command of this process's arguments.
pub fn run() -> ExitCode {
    let output = Output::default();
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let result = if program.ends_with(COMPLETION_PROGRAM) {
        block_on(completion::complete(output.clone(), arguments.collect()))
    } else {
        block_on(commands::run(output.clone(), Arguments::parse()))
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.error(&failure.message);
            failure.exit.into()
        }
    }
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("the program can't start: {error}")))?;
    runtime.block_on(command)
}
