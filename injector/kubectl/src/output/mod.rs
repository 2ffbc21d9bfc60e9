//! The output of all commands: results go to standard output; warnings, errors and progress to standard error.

pub(crate) mod changes;
pub(crate) mod progress;
pub(crate) mod status;
pub(crate) mod table;

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use clap::ValueEnum;
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

/// Writes the output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output;

#[allow(clippy::unused_self)] // a command that writes needs an Output
impl Output {
    /// Writes to standard output.
    pub(crate) fn print(self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader has closed the pipe, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|error| Failure::new(format!("standard output: {error}"))),
        }
    }

    /// Writes a line to standard output.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{text}\n"))
    }

    /// Writes lines to standard output.
    pub(crate) fn lines(self, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
        self.print(&lines.concat())
    }

    /// Writes a value as a document.
    pub(crate) fn document(self, value: &impl Serialize, format: Format) -> Result<(), Failure> {
        self.print(&document(value, format)?)
    }

    /// Writes a warning to standard error.
    pub(crate) fn warn(self, text: &str) {
        let _ = writeln!(std::io::stderr(), "warning: {text}");
    }

    /// Writes an error to standard error.
    pub(crate) fn error(self, text: &str) {
        let _ = writeln!(std::io::stderr(), "error: {text}");
    }

    /// Whether standard error is a terminal that can move its cursor.
    pub(crate) fn is_terminal(self) -> bool {
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
    }
}

/// The value as JSON or YAML.
pub(crate) fn document(value: &impl Serialize, format: Format) -> Result<String, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(format!("the result can't be written: {error}"));
    match format {
        Format::Json => serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| failed(&error)),
        Format::Yaml | Format::Name => serde_saphyr::to_string(value).map_err(|error| failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_json_or_yaml() {
        let value = serde_json::json!({"a": "1"});
        assert_eq!(document(&value, Format::Json).unwrap(), "{\n  \"a\": \"1\"\n}\n");
        assert_eq!(document(&value, Format::Yaml).unwrap().trim(), "a: \"1\"");
    }
}
