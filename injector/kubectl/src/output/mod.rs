//! The output of all commands: results go to standard output; warnings, errors and progress to standard error. Only
//! this module writes, and it writes nothing that a terminal would obey ([`visible`]).

pub(crate) mod changes;
pub(crate) mod progress;
pub(crate) mod rollout_report;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod visible;

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;
use serde::Serialize;

use crate::failure::Failure;

/// The output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Only names, such as versionedconfig.nudge.dev/shop
    Name,
}

/// The maximum number of lines that are kept for one command of the page.
const MAX_KEPT_LINES: usize = 100;

/// The output of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    /// The lines that are kept for the page, instead of being written.
    kept_lines: Option<Arc<Mutex<Vec<String>>>>,
}

impl Output {
    /// Returns an output that keeps its lines, and writes nothing.
    pub(crate) fn keeping() -> Self {
        Self { kept_lines: Some(Arc::default()) }
    }

    /// Returns the lines that were kept.
    pub(crate) fn kept_lines(&self) -> Vec<String> {
        self.kept_lines.as_ref().map(|lines| lines.lock().clone()).unwrap_or_default()
    }

    /// Keeps the text, if this output keeps lines. Returns whether it does.
    fn keep(&self, text: &str) -> bool {
        let Some(lines) = &self.kept_lines else { return false };
        let mut lines = lines.lock();
        let room = MAX_KEPT_LINES.saturating_sub(lines.len());
        lines.extend(text.lines().take(room).map(str::to_owned));
        true
    }

    /// Writes to standard output.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        if self.keep(&visible::text(text)) {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(visible::text(text).as_bytes()).and_then(|()| out.flush()) {
            // The reader has closed the pipe, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|error| Failure::new(format!("standard output: {error}"))),
        }
    }

    /// Writes a line to standard output.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{}\n", visible::line(text)))
    }

    /// Writes lines to standard output.
    pub(crate) fn lines(&self, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        let lines: Vec<String> = lines.into_iter().map(|line| visible::line(&line).into_owned() + "\n").collect();
        self.print(&lines.concat())
    }

    /// Writes a value as a document.
    pub(crate) fn document(&self, value: &impl Serialize, format: Format) -> Result<(), Failure> {
        self.print(&document(value, format)?)
    }

    /// Writes a warning to standard error.
    pub(crate) fn warn(&self, text: &str) {
        self.note(&format!("warning: {text}"));
    }

    /// Writes an error to standard error.
    pub(crate) fn error(&self, text: &str) {
        self.note(&format!("error: {text}"));
    }

    /// Writes a line to standard error.
    pub(crate) fn note(&self, text: &str) {
        let line = visible::line(text);
        if !self.keep(&line) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// Returns whether a person types the command and reads its output.
    pub(crate) fn is_interactive(&self) -> bool {
        self.kept_lines.is_none() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Returns whether standard error is a terminal that can move its cursor.
    pub(crate) fn is_terminal(&self) -> bool {
        self.kept_lines.is_none()
            && std::io::stderr().is_terminal()
            && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
    }
}

/// Returns the value as JSON or YAML. If YAML would hide something, the result is written like JSON with escapes, which
/// is also YAML.
pub(crate) fn document(value: &impl Serialize, format: Format) -> Result<String, Failure> {
    let failure = |error: &dyn std::error::Error| Failure::new(format!("the result can't be written: {error}"));
    if format != Format::Json {
        let text = serde_saphyr::to_string(value).map_err(|error| failure(&error))?;
        if visible::is_visible(&text) {
            return Ok(text);
        }
    }
    let text = serde_json::to_string_pretty(value).map_err(|error| failure(&error))?;
    Ok(visible::json(&text).into_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_lines_are_bounded_and_not_written() {
        let output = Output::keeping();
        output.line("one").unwrap();
        output.warn("two\u{1b}");
        for _ in 0..2 * MAX_KEPT_LINES {
            output.note("more");
        }
        let kept = output.kept_lines();
        assert_eq!((&*kept[0], &*kept[1], kept.len()), ("one", "warning: two\\u{1b}", MAX_KEPT_LINES));
        assert!(!output.is_terminal() && !output.is_interactive() && Output::default().kept_lines().is_empty());
    }

    #[test]
    fn documents_are_json_or_yaml() {
        let value = serde_json::json!({"a": "1"});
        assert_eq!(document(&value, Format::Json).unwrap(), "{\n  \"a\": \"1\"\n}\n");
        assert_eq!(document(&value, Format::Yaml).unwrap().trim(), "a: \"1\"");
    }

    #[test]
    fn documents_hide_nothing_and_mean_the_same() {
        for text in ["\u{1b}[2J", "a\u{9b}b", "a\u{7f}b", "abc\u{202e}def", "x\ry", "line\nline\u{2028}\n", "\u{e0041}"]
        {
            let value = serde_json::json!({"key": text, "n": 1});
            for format in [Format::Json, Format::Yaml] {
                let document = document(&value, format).unwrap();
                assert!(visible::is_visible(&document), "{document:?}");
                let read: serde_json::Value = serde_saphyr::from_str(&document).unwrap();
                assert_eq!(read, value, "{document}");
            }
        }
    }
}
