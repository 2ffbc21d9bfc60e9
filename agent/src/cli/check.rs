//! `nudge-agent check`: reports everything that is wrong with a folder.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use nudge_protocol::error_chain::message;
use nudge_protocol::plural::counted;
use nudge_protocol::status::Overlap;

use super::output::{fail, print};
use crate::content::{Dictionary, EtagKey, VersionContent};
use crate::source::dir::ConfigReport;

/// Report everything that is wrong with a folder of configuration
///
/// Reads every version of every config in DIR, current or not. Exits with 0 without problems and with 1 with problems.
/// Never prints a value.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the configuration
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let mut ignored = Vec::new();
    let configs = match ConfigReport::read_all(&args.dir, &mut ignored) {
        Ok(configs) => configs,
        Err(error) => return fail(&message(&error)),
    };
    let mut report = Report::default();
    for message in &ignored {
        report.add_problem("", message);
    }
    if configs.is_empty() {
        let dir = args.dir.display();
        report.add_problem(
            "",
            format_args!("{dir} holds no config; a config is a folder with a folder for each version"),
        );
    }
    for config in &configs {
        report.add_config(config);
    }
    // No ETag is shown, so its key does not matter.
    match Dictionary::merge(&report.current, &EtagKey::new(b"")) {
        Err(error) => report.add_problem("", format_args!("all configs together: {error}")),
        Ok(dictionary) => {
            for Overlap { key, winner, hidden } in dictionary.overlaps() {
                let hidden = hidden.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                report
                    .add_line(format_args!("note     key {key} of {hidden} is hidden by {winner} (later configs win)"));
            }
        }
    }
    match report.problems {
        0 => report.add_line("all is well"),
        count => report.add_line(counted(count, "problem")),
    }
    let printed = print(report.text.as_bytes());
    if report.problems == 0 { printed } else { ExitCode::FAILURE }
}

/// The report of all configs.
#[derive(Default)]
struct Report {
    text: String,
    problems: usize,
    /// The contents of the current versions.
    current: Vec<Arc<VersionContent>>,
}

impl Report {
    fn add_line(&mut self, line: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn add_problem(&mut self, indent: &str, message: impl Display) {
        self.add_line(format_args!("{indent}PROBLEM  {message}"));
        self.problems += 1;
    }

    fn add_config(&mut self, report: &ConfigReport) {
        self.add_line(&report.config);
        if let Err(error) = &report.current {
            self.add_problem("  ", error);
        }
        let mut has_current = false;
        for (version, content) in &report.versions {
            let is_current = report.current.as_ref().is_ok_and(|current| current == version);
            has_current |= is_current;
            match content {
                Ok(content) => {
                    let mark = if is_current { "current" } else { "" };
                    let keys = counted(content.values().len(), "key");
                    let bytes = counted(content.bytes(), "byte");
                    self.add_line(format_args!("  {mark:7}  {version}  {keys}, {bytes}"));
                    if is_current {
                        self.current.push(Arc::new(content.clone()));
                    }
                }
                Err(error) => self.add_problem("  ", error),
            }
        }
        if let (Ok(version), false) = (&report.current, has_current) {
            self.add_problem("  ", format_args!("version {version} is current, but there is no folder for it"));
        }
        for message in &report.ignored {
            self.add_problem("  ", message);
        }
    }
}
