//! The table, as it is printed and as a file for programs.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Context, Result};

use super::cell::Cell;
use super::engine::NAME;
use super::statistics::{count, upper_bound};
use super::tally::Tally;
use super::targets::target;

const HEAD: &str = "rules,weather,version,pods,workloads,bake,runs,rolled back,share,upper bound,inconclusive,ever inconclusive,held,\
     unfinished,passed,exposed p50,exposed p99,first step only,stopped p50 s,stopped p99 s,longest stall s,target,met,compared,compared rolled back";

/// Lines are printed as they are found.
pub(crate) struct Table {
    csv: String,
    explain: bool,
    missed: usize,
}

impl Table {
    pub(crate) fn new(explain: bool) -> Self {
        Self { csv: HEAD.to_owned() + "\n", explain, missed: 0 }
    }

    pub(crate) fn csv(&self) -> &str {
        &self.csv
    }

    pub(crate) fn add(&mut self, cell: &Cell, tally: &Tally) -> Result<()> {
        let head = if self.csv.lines().count() == 1 { line(&HEADS) + "\n" } else { String::new() };
        let (runs, stopped) = (tally.runs, tally.stopped());
        let share = |part: u64, all: u64| if all == 0 { f64::NAN } else { count(part) / count(all) };
        let seconds = |millis: u64| count(millis) / 1000.0;
        let upper = upper_bound(tally.rolled_back, runs);
        let first = share(tally.first_step_only, stopped);
        let (name, met) = target(cell, tally).unwrap_or_default();
        let met = if name.is_empty() {
            ""
        } else if met {
            "yes"
        } else {
            "no"
        };
        self.missed += usize::from(met == "no");
        let numbers = |stall: f64| {
            [
                runs.to_string(),
                tally.rolled_back.to_string(),
                format!("{:.5}", share(tally.rolled_back, runs)),
                format!("{upper:.5}"),
                tally.inconclusive.to_string(),
                tally.ever_inconclusive.to_string(),
                tally.held.to_string(),
                tally.unfinished.to_string(),
                tally.passed.to_string(),
                tally.exposed(500).to_string(),
                tally.exposed(990).to_string(),
                format!("{first:.3}"),
                format!("{:.1}", seconds(tally.stopped_after(500))),
                format!("{:.1}", seconds(tally.stopped_after(990))),
                format!("{stall:.0}"),
                name.clone(),
                met.to_owned(),
                tally.compared.to_string(),
                tally.compared_rolled_back.to_string(),
            ]
        };
        let numbers = numbers(seconds(tally.longest_stall));
        let Cell { weather, version, fleet, workloads, bake_seconds, .. } = cell;
        let bake = bake_seconds.map_or(String::new(), |seconds| seconds.to_string());
        let of =
            [NAME.to_owned(), weather.to_string(), version.to_string(), fleet.to_string(), workloads.to_string(), bake];
        let cells: Vec<String> = of.into_iter().chain(numbers.clone()).collect();
        // Writing to a string can't fail.
        let _ = writeln!(self.csv, "{}", cells.join(","));
        let shown: Vec<String> = [cell.to_string()].into_iter().chain(numbers).collect();
        let mut text = head + &line(&shown) + "\n";
        if let Some((number, message)) = tally.example().filter(|_| self.explain) {
            let _ =
                writeln!(text, "    {} looks a run; such as rollout {number}: {message}", tally.looks / runs.max(1));
        }
        io::stdout().write_all(text.as_bytes()).context("can't print the results")
    }

    pub(crate) fn end(&self) -> Result<()> {
        let lines = self.csv.lines().count() - 1;
        let text = format!("\n{lines} cells, {} of which miss their target\n", self.missed);
        io::stdout().write_all(text.as_bytes()).context("can't print the results")
    }
}

const HEADS: [&str; 20] = [
    "weather/version/pods x workloads",
    "runs",
    "back",
    "share",
    "upper",
    "inconcl",
    "ever",
    "held",
    "unfin",
    "passed",
    "exp p50",
    "p99",
    "first",
    "stop p50",
    "p99",
    "stall",
    "target",
    "met",
    "comp",
    "back",
];

fn line(cells: &[impl AsRef<str>]) -> String {
    let widths = [46, 6, 6, 8, 8, 7, 6, 6, 6, 6, 7, 6, 6, 8, 7, 6, 26, 3, 6, 6];
    let cells = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
        let cell = cell.as_ref();
        if column == 0 || (16..18).contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}
