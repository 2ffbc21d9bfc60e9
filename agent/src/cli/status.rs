//! `nudge-agent status`: shows the versions that the pod runs.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::ValueEnum;
use nudge_protocol::plural::counted;
use nudge_protocol::status::{NotificationStatus, Problem, Status};

use super::client::get;
use super::output::{fail, print};

/// Show which versions are served and whether the containers were notified of them
///
/// Uses the same variables as `nudge-agent get`. Never prints a value.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// StatusFormat of the output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: StatusFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusFormat {
    /// For people.
    Text,
    /// The endpoint's reply.
    Json,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let body = match get("/status") {
        Ok(body) => body,
        Err(reason) => return fail(&reason),
    };
    if args.format == StatusFormat::Json {
        print(&body);
        return print(b"\n");
    }
    match serde_json::from_slice::<Status>(&body) {
        Ok(status) => print(describe(&status).as_bytes()),
        Err(error) => fail(&format!("the agent's reply can't be read: {error}; --format json shows it unchanged")),
    }
}

fn describe(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    for config in &status.configs {
        let (keys, bytes) = (counted(config.keys, "key"), counted(config.bytes, "byte"));
        line(format!("config     {}  {}  {keys}, {bytes}", config.name, config.version));
        if let Some(problem) = &config.problem {
            line(format!("           PROBLEM {}: {}", problem.reason.as_str(), problem.message));
        }
    }
    for unserved in &status.unserved {
        let Problem { reason, message, .. } = &unserved.problem;
        line(format!("config     {}  not served\n           PROBLEM {}: {message}", unserved.name, reason.as_str()));
    }
    for overlap in &status.overlaps {
        let hidden = overlap.hidden.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        line(format!("overlap    key {} of {hidden} is hidden by {}", overlap.key, overlap.winner));
    }
    for container in &status.containers {
        let acknowledged =
            if container.acknowledged { "has this version" } else { "has not acknowledged this version" };
        line(format!(
            "container  {}  {}  {}, {acknowledged}",
            container.name,
            container.notify,
            describe_notification(&container.notified)
        ));
    }
    for webhook in &status.hooks {
        line(format!("webhook    {}  {}  {}", webhook.id, webhook.url, describe_notification(&webhook.notified)));
    }
    if let Some(files) = &status.files {
        line(format!("files      {}  {}", files.path, files.message.as_deref().unwrap_or("written")));
    }
    line(format!("source     {}  read {} s ago", status.source, status.age_seconds));
    text
}

fn describe_notification(notified: &NotificationStatus) -> String {
    let mut text = notified.outcome.as_str().to_owned();
    if !notified.message.is_empty() {
        let _ = write!(text, " ({})", notified.message);
    }
    text
}
