//! `nudge-agent check`: reports everything that is wrong with a folder.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::output::{fail, print};
use crate::content::{Dictionary, EtagKey};
use crate::source::dir::ConfigReport;

/// Report everything that is wrong with a folder of configuration
///
/// Reads every version of every config in DIR, current or not. Exits with 0 without problems and with 1 with problems. Never prints a
/// value.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folder with the configuration
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let mut problems = Vec::new();
    let reports = match ConfigReport::read_all(&args.dir, &mut problems) {
        Ok(reports) => reports,
        Err(error) => return fail(&error),
    };
    let mut text = String::new();
    for problem in &problems {
        line(&mut text, &format!("PROBLEM  {problem}"));
    }
    if reports.is_empty() {
        problems.push(String::new());
        line(
            &mut text,
            &format!(
                "PROBLEM  {} holds no config; a config is a folder with a folder for each version",
                args.dir.display()
            ),
        );
    }
    let mut current = Vec::new();
    for report in &reports {
        describe(report, &mut text, &mut problems, &mut current);
    }
    // No ETag is shown, so its key does not matter.
    match Dictionary::merge(&current, &EtagKey::new(b"")) {
        Err(error) => {
            line(&mut text, &format!("PROBLEM  all configs together: {error}"));
            problems.push(String::new());
        }
        Ok(dictionary) => {
            for overlap in dictionary.overlaps() {
                let hidden = overlap.hidden.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                line(
                    &mut text,
                    &format!(
                        "note     key {} of {hidden} is hidden by {} (later configs win)",
                        overlap.key, overlap.winner
                    ),
                );
            }
        }
    }
    line(
        &mut text,
        &match problems.len() {
            0 => "all is well".to_owned(),
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        },
    );
    let printed = print(text.as_bytes());
    if problems.is_empty() { printed } else { ExitCode::FAILURE }
}

fn describe(
    report: &ConfigReport,
    text: &mut String,
    problems: &mut Vec<String>,
    current: &mut Vec<Arc<crate::content::VersionContent>>,
) {
    line(text, report.config.as_str());
    let mut problem = |text: &mut String, message: String| {
        line(text, &format!("  PROBLEM  {message}"));
        problems.push(message);
    };
    if let Err(error) = &report.current {
        problem(text, error.to_string());
    }
    let mut is_there = false;
    for (version, content) in &report.versions {
        let is_current = report.current.as_ref().is_ok_and(|current| current == version);
        is_there |= is_current;
        match content {
            Ok(content) => {
                let mark = if is_current { "current" } else { "" };
                let (keys, bytes) = (content.values().len(), content.bytes());
                line(text, &format!("  {mark:7}  {version}  {keys} keys, {bytes} bytes"));
                if is_current {
                    current.push(Arc::new(content.clone()));
                }
            }
            Err(error) => problem(text, error.to_string()),
        }
    }
    if let (Ok(version), false) = (&report.current, is_there) {
        problem(text, format!("version {version} is current, but there is no folder for it"));
    }
    for message in &report.ignored {
        problem(text, message.clone());
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{line}");
}
