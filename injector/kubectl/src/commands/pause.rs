//! `kubectl nudge pause`: pauses the rollouts of a config.

use clap::Args;
use kube::api::Patch;
use nudge_api::VersionedConfig;
use nudge_protocol::ConfigName;
use serde_json::json;

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, patching};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge pause game")]
pub(crate) struct Pause {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Pause) -> Result<(), Failure> {
    set_paused(session, command.config.as_str(), true, command.dry.dry_run).await
}

/// Sets `spec.rollout.paused`.
pub(crate) async fn set_paused(session: &Session, name: &str, paused: bool, dry: DryRun) -> Result<(), Failure> {
    let config = session.config(name).await?;
    if config.spec.rollout.paused == paused {
        let state = if paused { "already paused" } else { "not paused" };
        return session.out.line(&format!("config {name} is {state}"));
    }
    if dry != DryRun::Client {
        let patch = json!({"spec": {"rollout": {"paused": paused}}});
        let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
        patched.map_err(doing(format!("setting spec.rollout.paused of config {name}")))?;
    }
    let result = if paused { "paused" } else { "resumed" };
    session.out.line(&format!("config {name} {result}{}", dry.suffix()))
}
