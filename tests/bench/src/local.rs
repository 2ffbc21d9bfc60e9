//! `bench local`: all measures of an agent in local mode, on one machine.

use anyhow::Result;
use clap::{Args, ValueEnum};
use nudge_tests::binary;

use crate::bench::{Bench, FULL, QUICK};
use crate::report::Report;
use crate::{idle, memory, progress, requests, start, switch};

#[derive(Args)]
pub(crate) struct Options {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Only these measures, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
    /// Fewer and shorter runs: to see that it works, not to compare
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Switch of the current version until the signal handler is entered
    #[value(alias = "a")]
    Switch,
    /// Processor time and rate of GET /config
    #[value(alias = "b")]
    Requests,
    /// Memory after the start, under load and afterwards
    #[value(alias = "c")]
    Memory,
    /// Start of the agent until its child runs
    #[value(alias = "d")]
    Start,
    /// Wake-ups with nothing to do
    #[value(alias = "e")]
    Idle,
    /// Size of the binary
    Size,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    progress("building the agent, unless it is up to date");
    let binary = binary::release()?;
    let scale = if options.quick { QUICK } else { FULL };
    let mut bench = Bench { binary, scale, report: Report::default() };
    if options.quick {
        bench.report.remark("quick: too few runs to compare anything");
    }

    for &measure in Measure::value_variants() {
        if options.only.is_empty() || options.only.contains(&measure) {
            run_one(measure, &mut bench).await?;
        }
    }

    bench.report.print(options.json)
}

async fn run_one(measure: Measure, bench: &mut Bench) -> Result<()> {
    match measure {
        Measure::Switch => switch::measure(bench).await,
        Measure::Requests => requests::measure(bench).await,
        Measure::Memory => memory::measure(bench).await,
        Measure::Start => start::measure(bench).await,
        Measure::Idle => idle::measure_wake_ups(bench).await,
        Measure::Size => idle::measure_size(bench),
    }
}
