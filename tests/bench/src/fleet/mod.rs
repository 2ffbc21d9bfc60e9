//! `bench fleet`: rollouts to very many pods of one config, and of very many configs, through a real API server, until
//! the last acknowledgement is in the condition of its pod; compared with a bare loop of the same patches in the same
//! run.

mod agent;
mod agents;
mod analysis;
mod counters;
mod curves;
mod floor;
mod journal;
mod many;
mod memory;
mod one;
mod pods;
mod rows;
mod scene;
mod soak;
#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
mod watches;

use std::path::PathBuf;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use nudge_api::RolloutSpec;
use nudge_tests::ReplicaOptions;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::open_files;
use crate::report::Report;

/// Pods of each config if there are many.
const PODS_EACH: usize = 10;

#[derive(Args)]
pub(crate) struct Options {
    /// Pods of the one config
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Configs of 10 pods each that are pushed at once
    #[arg(long, default_value_t = 1000)]
    configs: usize,
    /// Namespaces that these are in
    #[arg(long, default_value_t = 100)]
    namespaces: usize,
    /// How long each step is watched (minReadySeconds; the pods have no probes), in seconds
    #[arg(long, default_value_t = 3)]
    dwell: u32,
    /// How long all pods run a version before it is current (bakeSeconds), in seconds
    #[arg(long, default_value_t = 3)]
    bake: u32,
    /// Only this part
    #[arg(long)]
    only: Option<Part>,
    /// In place of all that: for this many minutes an activation every 10 s, and whether memory, descriptors and tasks
    /// grow
    #[arg(long, conflicts_with = "only")]
    soak: Option<u64>,
    /// 200 pods and 20 configs: to see that it works, not to compare
    #[arg(long)]
    small: bool,
    /// With which rights the control plane reads
    #[arg(long, default_value = "cluster", value_parser = ["cluster", "namespaces"])]
    reads: String,
    /// Folder for the cluster's data, such as /dev/shm
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    control_plane: ControlPlane,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file; tests/bench/plot-fleet draws it
    #[arg(long)]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All pods use one config
    One,
    /// Many configs are pushed at once
    Many,
}

impl Options {
    /// Returns the rollout of all configs: but for the times, the default.
    fn spec(&self) -> RolloutSpec {
        RolloutSpec { min_ready_seconds: self.dwell, bake_seconds: self.bake, ..RolloutSpec::default() }
    }

    fn rollout(&self) -> Value {
        json!(self.spec())
    }

    fn replica_options(&self) -> Result<ReplicaOptions> {
        let reads = format!("--reads={}", self.reads);
        let quick: &[&str] = if self.small { &["--drain-seconds=1"] } else { &[] };
        Ok(self.control_plane.replica_options()?.with_more(&[&*reads]).with_more(quick))
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let (json, save) = (options.json, options.save.clone());
    let report = Box::pin(measure(options)).await?;
    if let Some(path) = save {
        std::fs::write(&path, report.json()?).with_context(|| format!("can't write {}", path.display()))?;
    }
    report.print(json)
}

async fn measure(mut options: Options) -> Result<Report> {
    open_files::raise()?;
    if options.small {
        (options.pods, options.configs, options.namespaces) = (200, 20, 4);
        (options.dwell, options.bake) = (1, 1);
    }
    let mut report = Report::default();
    settings(&options, &mut report);
    if let Some(minutes) = options.soak {
        Box::pin(soak::measure(&options, minutes, &mut report)).await?;
        return Ok(report);
    }
    if options.only != Some(Part::Many) {
        Box::pin(one::measure(&options, &mut report)).await?;
    }
    if options.only != Some(Part::One) {
        Box::pin(many::measure(&options, &mut report)).await?;
    }
    Ok(report)
}

/// Reports the settings of the run.
fn settings(options: &Options, report: &mut Report) {
    let RolloutSpec { steps, ack_timeout_seconds, progress_deadline_seconds, .. } = options.spec();
    let steps: Vec<String> = steps.iter().map(|step| json!(step.pods).to_string().replace('"', "")).collect();
    report.remark(format!(
        "rollouts: steps of {} pods, minReadySeconds {} (pods without probes: the time for which a step is watched), bakeSeconds {}, \
         ackTimeoutSeconds {ack_timeout_seconds} and progressDeadlineSeconds {progress_deadline_seconds} (the defaults)",
        steps.join(", "),
        options.dwell,
        options.bake,
    ));
    report.remark(format!(
        "two replicas of each role as processes with --reads={}; agents in the benchmark's process, over TLS, {} on a node's address, which \
         acknowledge after {} ms",
        options.reads,
        agents::PODS_PER_NODE,
        agent::ACKNOWLEDGEMENT_DELAY.as_millis(),
    ));
    let folder =
        options.folder.as_ref().map_or("the folder for temporary files".into(), |folder| folder.to_string_lossy());
    report.remark(format!(
        "all on one machine with {} processors; etcd with fsync, its data in {folder}",
        available_parallelism().map_or(0, usize::from)
    ));
    report.remark(format!(
        "the floor: a bare loop of the same patches of as many pods, {} at a time, after the rollout; the control plane is there, with its \
         agents at rest",
        floor::MAX_CONCURRENT_REQUESTS
    ));
}
