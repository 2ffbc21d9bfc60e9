//! Everything that the commands write: results to standard output, the rest to standard error.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use super::failure::Failure;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// Names alone, such as versionedconfig.nudge.dev/shop
    Name,
}

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output;

#[allow(clippy::unused_self)] // so that a command shows that it writes
impl Output {
    /// Writes to standard output.
    pub(super) fn print(self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|error| Failure::new(format!("standard output: {error}"))),
        }
    }

    /// Writes a line to standard output.
    pub(super) fn line(self, text: &str) -> Result<(), Failure> {
        self.print(&format!("{text}\n"))
    }

    /// Writes lines to standard output.
    pub(super) fn lines(self, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
        self.print(&lines.concat())
    }

    /// Writes a document.
    pub(super) fn document(self, value: &impl Serialize, format: Format) -> Result<(), Failure> {
        self.print(&document(value, format)?)
    }

    /// A warning, on standard error.
    pub(super) fn warn(self, text: &str) {
        let _ = writeln!(std::io::stderr(), "warning: {text}");
    }

    /// An error, on standard error.
    pub(super) fn complain(self, text: &str) {
        let _ = writeln!(std::io::stderr(), "error: {text}");
    }

    /// Whether a person watches the progress, on a terminal that can move its cursor.
    pub(super) fn is_terminal(self) -> bool {
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
    }
}

/// The value as JSON or YAML.
pub(super) fn document(value: &impl Serialize, format: Format) -> Result<String, Failure> {
    let fault = |error: &dyn std::error::Error| Failure::new(format!("can't write the result: {error}"));
    match format {
        Format::Json => serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| fault(&error)),
        Format::Yaml | Format::Name => serde_saphyr::to_string(value).map_err(|error| fault(&error)),
    }
}

/// Columns as kubectl aligns them: three spaces between, nothing behind the last.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}

/// A cell without text.
pub(super) fn or_none(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long-name".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "X"], &rows), "NAME        X\na           b\nlong-name\n");
    }

    #[test]
    fn documents_are_json_or_yaml() {
        let value = serde_json::json!({"a": "1"});
        assert_eq!(document(&value, Format::Json).unwrap(), "{\n  \"a\": \"1\"\n}\n");
        assert_eq!(document(&value, Format::Yaml).unwrap().trim(), "a: \"1\"");
    }
}
