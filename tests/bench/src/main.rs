//! Benchmarks: the cost of Nudge, compared with a floor or a peer measured in the same run.
//!
//! `bench local` measures an agent on this machine, `bench hub` the hub with very many agents, `bench activation` the
//! way through a real API server, `bench text` the same from an edit of a ConfigMap, `bench sources` the memory of the
//! role sources, `bench admission` the injection of pods, `bench crowd` the control plane's memory, `bench namespaces`
//! its cost of many enabled namespaces, `bench fleet` whole rollouts to very many pods and configs, `bench judgement`
//! which versions are rolled back in simulated clusters. The other commands are the processes that they start.

mod activation;
mod admission;
mod bench;
mod contestant;
mod control_plane;
mod crowd;
mod exchange;
mod fleet;
mod floor;
mod hub;
mod idle;
mod judgement;
mod load;
mod local;
mod memory;
mod namespaces;
mod nginx;
mod open_files;
mod payload;
mod report;
mod requests;
mod row;
mod samples;
mod sources;
mod start;
mod subscriber;
mod switch;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use nudge_tests::clock::Monotonic;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Measures what Nudge costs, beside a floor or a peer in the same run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the agent in local mode
    Local(local::Options),
    /// Measures one replica of the hub with 1,000 and 10,000 agents
    Hub(hub::Options),
    /// Measures a change's way through a real API server
    Activation(activation::Options),
    /// Measures the way of an edit of a ConfigMap that a config follows
    Text(text::Options),
    /// Measures the memory of the role sources at its bounds
    Sources(sources::Options),
    /// Measures the injection of pods through a real API server
    Admission(admission::Options),
    /// Measures the control plane's memory in a full cluster
    Crowd(crowd::Options),
    /// Measures what many enabled namespaces cost each role of the control plane
    Namespaces(namespaces::Options),
    /// Measures rollouts to very many pods and configs, until the last acknowledgement is known
    Fleet(fleet::Options),
    /// Simulates rollouts of good and bad versions in all weathers
    Judgement(judgement::Options),
    /// Catches SIGUSR1 and reports to a pipe when; ends when nobody reads it
    #[command(name = subscriber::NAME, hide = true)]
    Subscriber { pipe: PathBuf },
    /// Watches a folder and signals a subscriber, with nothing in between
    #[command(name = floor::NAME, hide = true)]
    Floor { folder: PathBuf, pipe: PathBuf },
}

fn main() -> ExitCode {
    // Read first: for the subscriber this is the moment at which it runs.
    let started = Monotonic::now();
    match run(started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(started: Monotonic) -> Result<()> {
    match Arguments::parse().command {
        Command::Subscriber { pipe } => subscriber::run(&pipe, started),
        Command::Floor { folder, pipe } => floor::run(&folder, &pipe),
        Command::Judgement(options) => judgement::run(&options),
        Command::Hub(options) => {
            let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(until_interrupted(hub::run(options)))
        }
        Command::Activation(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(activation::run(options)))
        }
        Command::Text(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(text::run(options)))
        }
        Command::Sources(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(sources::run(options)))
        }
        Command::Admission(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(admission::run(options)))
        }
        Command::Crowd(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(crowd::run(options)))
        }
        Command::Namespaces(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(namespaces::run(options)))
        }
        Command::Fleet(options) => {
            let runtime = runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(fleet::run(options)))
        }
        Command::Local(options) => {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(until_interrupted(local::run(options)))
        }
    }
}

/// Drops what runs when the user gives up, and with it every process and folder that it guards.
async fn until_interrupted(run: impl Future<Output = Result<()>>) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("can't catch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("can't catch SIGTERM")?;
    tokio::select! {
        result = run => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

/// Shows the user how far it is, apart from the results on stdout.
fn progress(text: &str) {
    // Nobody may be looking any more, which is no reason to stop.
    let _ = writeln!(io::stderr(), "bench: {text}");
}
