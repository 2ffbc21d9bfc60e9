//! `kubectl nudge pause` and `resume`.

use kube::api::Patch;
use nudge_api::VersionedConfig;
use serde_json::json;

use super::arguments::{Change, DryRun};
use super::failure::{Failure, doing};
use super::session::{Session, patching};

pub(super) async fn run(session: &Session, command: &Change, paused: bool) -> Result<(), Failure> {
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    let word = if paused { "paused" } else { "resumed" };
    if config.spec.rollout.paused == paused {
        return session.out.line(&format!("config {name} is {} already", if paused { "paused" } else { "not paused" }));
    }
    if dry != DryRun::Client {
        let patch = json!({"spec": {"rollout": {"paused": paused}}});
        let patched = session.api::<VersionedConfig>().patch(name, &patching(dry), &Patch::Merge(&patch)).await;
        patched.map_err(doing(format!("setting spec.rollout.paused of config {name}")))?;
    }
    session.out.line(&format!("config {name} {word}{}", dry.suffix()))
}
