//! The results of a run: one aligned table for people, the same as JSON for programs.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::iter;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::row::{HEAD, Row};

/// All measures of a run, in order, and remarks that belong to them.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    remarks: Vec<String>,
    /// Details for programs only.
    details: Map<String, Value>,
}

impl Report {
    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }

    /// Adds something to the JSON that no table shows.
    pub(crate) fn detail(&mut self, name: impl Into<String>, value: Value) {
        self.details.insert(name.into(), value);
    }

    /// Writes the results to standard output.
    pub(crate) fn print(&self, json: bool) -> Result<()> {
        let text = if json { self.json()? + "\n" } else { self.table() };
        io::stdout().write_all(text.as_bytes()).context("can't print the results")
    }

    /// Returns the table, then the remarks.
    fn table(&self) -> String {
        let head = iter::once(HEAD.map(str::to_owned));
        let lines: Vec<[String; 6]> = head.chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);

        let mut table = String::new();
        for line in &lines {
            let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                // Words stand to the left, numbers to the right.
                if column == 0 || column == 5 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let cells: Vec<String> = cells.collect();
            table.push_str(cells.join("  ").trim_end());
            table.push('\n');
        }
        table.push('\n');
        for remark in &self.remarks {
            // Writing to a string can't fail.
            let _ = writeln!(table, "- {remark}");
        }
        table
    }

    /// Returns the same as JSON.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let measures: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let mut all = json!({"measures": measures, "remarks": self.remarks});
        for (name, value) in &self.details {
            all[name] = value.clone();
        }
        serde_json::to_string_pretty(&all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Target, Unit};

    #[test]
    fn the_table_is_aligned() {
        let mut report = Report::default();
        report.row(Row::new("short", Unit::Micros, 1.0));
        report.row(Row::new("a longer one", Unit::Kib, 123_456.0).target(Target::AtMost(2048.0)));
        report.remark("why");
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "short             1.0 µs              -      -           -  -");
        assert_eq!(lines[2], "a longer one  123456 KiB              -      -  ≤ 2048 KiB  no");
        assert_eq!(lines[4], "- why");
        assert!(report.json().unwrap().contains("\"met\": false"));
    }
}
