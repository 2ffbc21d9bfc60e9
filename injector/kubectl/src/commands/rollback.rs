//! `kubectl nudge rollback`: back to the current version during a rollout, otherwise to the version before.

use clap::Args;
use nudge_api::VersionedConfig;
use nudge_protocol::ConfigName;

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::rollout::switch::switch;
use crate::rollout::wait::Wait;
use crate::session::Session;
use crate::version::stored::{no_current_version, sealed};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge rollback game --wait

During a rollout, and after a failed rollout, rollback returns to the version that is still current. Otherwise it returns to the \
version before. All pods return at once, also where the config is on hold or no pod is healthy.")]
pub(crate) struct Rollback {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// Returns the version to go back to.
fn destination(config: &VersionedConfig) -> Result<&str, Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.as_ref();
    let current = status.and_then(|status| status.current_version.as_deref());
    let requested = config.requested_version();
    match (current, requested) {
        (None, _) => Err(no_current_version(name)),
        (Some(current), Some(requested)) if current != requested => Ok(current),
        _ => status.and_then(|status| status.previous_version.as_deref()).ok_or_else(|| {
            Failure::new(format!(
                "config {name} has no previous version; choose one of kubectl nudge versions {name} with kubectl nudge use"
            ))
        }),
    }
}

pub(crate) async fn run(session: &Session, command: &Rollback) -> Result<(), Failure> {
    let config = session.config(command.config.as_str()).await?;
    let version = destination(&config)?.to_owned();
    sealed(&config, &version)?;
    switch(session, &config, &version, None, command.wait, command.dry.dry_run).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_returns_to_the_current_version_and_a_current_one_to_the_previous() {
        let destination = |requested: Option<&str>, current: Option<&str>, previous: Option<&str>| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": {"version": requested}, "status": {"currentVersion": current, "previousVersion": previous},
            }));
            destination(&config.unwrap()).map(str::to_owned).map_err(|failure| failure.message)
        };
        assert_eq!(destination(Some("3"), Some("2"), Some("1")).as_deref(), Ok("2"));
        assert_eq!(destination(Some("2"), Some("2"), Some("1")).as_deref(), Ok("1"));
        assert_eq!(destination(None, Some("2"), Some("1")).as_deref(), Ok("1"));
        assert!(destination(Some("2"), Some("2"), None).unwrap_err().contains("kubectl nudge use"));
        assert!(destination(Some("2"), None, None).is_err());
    }
}
