//! `bench judgement`: which versions are rolled back and which are not, in simulated clusters.
//!
//! The clusters are simulated, the rules are those of the control plane: `nudge_core::rollout` decides. Each cell of
//! the table is a fleet with a version that is rolled out to it and something that happens meanwhile, and is run many
//! times with random moments. The same seed gives the same runs, however many of them are made at a time.

mod cell;
mod cluster;
mod engine;
mod events;
mod forecast;
mod harm;
mod judge;
mod kubelet;
mod outcome;
mod real;
mod statistics;
mod table;
mod tally;
mod targets;
#[cfg(test)]
#[path = "judgement_tests.rs"]
mod tests;
mod versions;
mod weather;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::progress;
use cell::{Cell, cells};
use cluster::Cluster;
use engine::Engine;
use tally::Tally;

/// Rollouts that a cell has at least, however many pods they have.
const MIN_RUNS: u64 = 100;

#[derive(Args)]
pub(crate) struct Options {
    /// Rollouts of each cell
    #[arg(long, default_value_t = 1000)]
    runs: u64,
    /// Fewer rollouts of a cell if they would have more pods than this in all, but at least 100
    #[arg(long)]
    pods: Option<u64>,
    /// Only cells with this in their names, such as calm/good/40x1
    #[arg(long)]
    only: Vec<String>,
    /// Where the random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rollouts that are simulated at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Harm of the background, as a number per pod and week
    #[arg(long, default_value_t = 1.0)]
    harms_a_week: f64,
    /// Also write the table to this file
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Say of each cell which rollout was the first that did not end as it should, and why
    #[arg(long)]
    explain: bool,
    /// Print what is said in this rollout of each cell, by its number
    #[arg(long)]
    diary: Option<u64>,
    /// Small fleets and few rollouts: fails where a target is missed by more than chance explains
    #[arg(long)]
    small: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named = |cell: &Cell| {
        let name = cell.to_string();
        options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()))
    };
    let mut cells: Vec<Cell> = cells(options.harms_a_week).into_iter().filter(named).collect();
    if options.small {
        cells.retain(|cell| targets::few_runs(cell).is_some());
    }
    if cells.is_empty() {
        bail!("no cell has such a name");
    }
    let budget = Budget {
        runs: options.runs,
        pods: options.pods.unwrap_or(u64::MAX),
        seed: options.seed,
        jobs: options.jobs.max(1),
    };
    if let Some(number) = options.diary {
        return cells.iter().try_for_each(|cell| say(cell, options.seed, number));
    }
    let mut table = table::Table::new(options.explain);
    let mut missed = Vec::new();
    for cell in &cells {
        let began = Instant::now();
        let few = targets::few_runs(cell).filter(|_| options.small);
        let (cell, tally) = simulate(cell, &Budget { runs: few.unwrap_or(budget.runs), ..budget });
        progress(&format!("{cell}: {} runs in {:.1} s", tally.runs, began.elapsed().as_secs_f64()));
        if options.small && targets::is_missed(&cell, &tally) {
            missed.push(cell.to_string());
        }
        table.add(&cell, &tally)?;
        if let Some(path) = &options.csv {
            std::fs::write(path, table.csv()).with_context(|| format!("can't write {}", path.display()))?;
        }
    }
    if !missed.is_empty() {
        bail!("targets are missed: {}", missed.join(", "));
    }
    table.end()
}

/// How much is simulated of a cell.
struct Budget {
    runs: u64,
    pods: u64,
    seed: u64,
    jobs: usize,
}

/// Returns the cell with how long a rollout usually takes.
fn with_usual_duration(cell: &Cell, seed: u64) -> Cell {
    let usual = Cluster::new(&cell.without_weather(), seed, Engine::new()).run().duration;
    Cell { usual: Some(usual), ..cell.clone() }
}

/// Prints what is said in one rollout.
fn say(cell: &Cell, seed: u64, number: u64) -> Result<()> {
    let cell = with_usual_duration(cell, seed);
    let mut cluster = Cluster::new(&cell, run_seed(&cell, seed, number), Engine::new());
    cluster.outcome.diary = Some(Vec::new());
    let diary = cluster.run().diary.unwrap_or_default();
    let text = format!("{cell}, rollout {number}:\n{}\n", diary.join("\n"));
    io::stdout().write_all(text.as_bytes()).context("can't print the results")
}

/// Simulates the rollouts of a cell; gives the cell with how long one usually takes.
fn simulate(cell: &Cell, budget: &Budget) -> (Cell, Tally) {
    let cell = with_usual_duration(cell, budget.seed);
    let runs = budget.runs.min((budget.pods / cell.fleet as u64).max(MIN_RUNS));
    let next = AtomicU64::new(0);
    let worker = || {
        let mut tally = Tally::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return tally;
            }
            let outcome = Cluster::new(&cell, run_seed(&cell, budget.seed, number), Engine::new()).run();
            tally.add(&cell, number, &outcome);
        }
    };
    let mut all = Tally::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..budget.jobs).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            match worker.join() {
                Ok(tally) => all.merge(tally),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    (cell, all)
}

/// Returns the seed of one run: its own, and the same in each release.
fn run_seed(cell: &Cell, seed: u64, number: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (cell.to_string(), seed, number).hash(&mut hasher);
    hasher.finish()
}
