//! The commands: each file has the arguments of one command and runs it.

mod acts;
pub(crate) mod approve;
pub(crate) mod arguments;
pub(crate) mod baseline;
pub(crate) mod completion;
pub(crate) mod create;
pub(crate) mod current;
pub(crate) mod delete;
pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod enable;
pub(crate) mod export;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod inject;
pub(crate) mod plan;
pub(crate) mod push;
pub(crate) mod retry;
pub(crate) mod rollback;
pub(crate) mod set;
pub(crate) mod source;
pub(crate) mod status;
pub(crate) mod ui;
pub(crate) mod use_version;
pub(crate) mod validate;
pub(crate) mod versions;

use clap::Parser as _;
use futures::future::LocalBoxFuture;

use self::arguments::{Arguments, Command};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::session::{ConnectionOptions, Session};

/// Runs a command, with an API server if it needs one.
pub(crate) async fn run(output: Output, arguments: Arguments) -> Result<(), Failure> {
    let connection = &arguments.connection;
    match &arguments.command {
        Command::Completion => return output.print(completion::SCRIPT),
        Command::Complete { words } => return completion::complete(output, words.clone()).await,
        Command::Create(command) if command.is_offline() => {
            return create::print_offline(&output, command, connection.namespace.as_deref()).await;
        }
        Command::Inject(command) if command.is_offline() => return inject::run_offline(&output, command),
        Command::Push(command) => return push::run(&output, command).await,
        Command::Validate(command) if command.is_offline() => return validate::run_offline(&output, command),
        _ => {}
    }
    let session = Session::connect(connection, output)?;
    let in_namespace = match &arguments.command {
        Command::Enable(_) | Command::Disable(_) | Command::Import(_) => false,
        Command::Export(command) => !command.all_namespaces,
        _ => true,
    };
    match run_with(&session, connection, arguments.command).await {
        // A missing namespace explains most other failures.
        Err(failure) if failure.exit == Exit::Failed && in_namespace => {
            Err(session.missing_namespace().await.unwrap_or(failure))
        }
        result => result,
    }
}

async fn run_with(session: &Session, connection: &ConnectionOptions, command: Command) -> Result<(), Failure> {
    match command {
        Command::Enable(command) => enable::enable(session, &command).await,
        Command::Disable(command) => enable::disable(session, &command).await,
        Command::Inject(command) => inject::run(session, &command).await,
        Command::Create(command) => create::run(session, &command).await,
        Command::Plan(command) => plan::run(session, &command).await,
        Command::Use(command) => use_version::run(session, &command).await,
        Command::Rollback(command) => rollback::run(session, &command).await,
        Command::Retry(command) => retry::run(session, &command).await,
        Command::Follow(command) => follow::run(session, &command).await,
        Command::Set(command) => set::run(session, &command).await,
        Command::Edit(command) => edit::run(session, &command).await,
        Command::Approve(command) => approve::approve(session, &command).await,
        Command::Deny(command) => approve::deny(session, &command).await,
        Command::Validate(command) => validate::run(session, &command).await,
        Command::Versions(command) => versions::run(session, &command).await,
        Command::History(command) => history::run(session, &command).await,
        Command::Diff(command) => diff::run(session, &command).await,
        Command::Status(command) => status::run(session, &command).await,
        Command::Current(command) => current::run(session, &command).await,
        Command::Hold(command) => hold::hold(session, &command).await,
        Command::Unhold(command) => hold::unhold(session, &command).await,
        Command::Delete(command) => delete::run(session, &command).await,
        Command::Baseline(command) => baseline::run(session, &command).await,
        Command::Source(command) => source::run(session, &command).await,
        Command::Get(command) => get::run(session, &command).await,
        Command::Export(command) => export::run(session, &command).await,
        Command::Import(command) => import::run(session, &command).await,
        Command::Ui(command) => ui::run(session, connection, &command, run_words).await,
        Command::Completion | Command::Complete { .. } | Command::Push(_) => Ok(()),
    }
}

/// Runs the words of a command as the command line does.
fn run_words(session: Session, words: Vec<String>) -> LocalBoxFuture<'static, Result<(), Failure>> {
    Box::pin(async move {
        let words = ["kubectl-nudge".to_owned()].into_iter().chain(words);
        let arguments = Arguments::try_parse_from(words).map_err(|error| Failure::usage(error.to_string()))?;
        run_with(&session, &arguments.connection, arguments.command).await
    })
}
