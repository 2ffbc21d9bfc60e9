//! The control plane that a benchmark measures: its released program, installed on a cluster of its own.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, Installation, ReplicaOptions, binary};

use crate::progress;

/// Which program is measured.
#[derive(Args)]
pub(crate) struct ControlPlane {
    /// The control plane's program, instead of building its release
    #[arg(long)]
    injector: Option<PathBuf>,
}

impl ControlPlane {
    /// Returns the control plane of a program that exists.
    #[cfg(test)]
    pub(crate) fn of(program: &std::path::Path) -> Self {
        Self { injector: Some(program.to_owned()) }
    }

    /// Replicas as users have them: what is logged for debugging costs time and memory.
    pub(crate) fn replica_options(&self) -> Result<ReplicaOptions> {
        let program = if let Some(program) = &self.injector {
            program.clone()
        } else {
            progress("building the control plane, unless it is up to date");
            binary::release_injector()?
        };
        Ok(ReplicaOptions { binary: Some(program), ..ReplicaOptions::with(&["--log-level=info"]) })
    }
}

/// Returns a cluster, without which nothing can be measured.
pub(crate) async fn cluster() -> Result<Cluster> {
    Cluster::start(&Options::default()).await?.context("no Kubernetes; run tests/run first")
}

/// Nudge's objects in it.
pub(crate) async fn install(cluster: &Cluster) -> Result<Installation<'_>> {
    Installation::apply(cluster).await?.context("kubectl is missing")
}
