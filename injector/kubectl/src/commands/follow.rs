//! `kubectl nudge follow`: lets a config follow the text of its objects again.

use clap::Args;
use nudge_api::VersionedConfig;
use nudge_protocol::ConfigName;

use crate::dry_run::Dry;
use crate::failure::Failure;
use crate::followed_objects::describe;
use crate::rollout::switch::unset_version;
use crate::session::Session;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  kubectl nudge follow game

A config with spec.objects follows the text of its ConfigMap, its Secret, or both, while spec.version is not set: \
each edit of them is a version. use and rollback set spec.version, and end that. This command removes spec.version, and \
spec.rollout.override with it. If the text is not the version that is current, pods are moved to it, in steps.")]
pub(crate) struct Follow {
    /// The config
    pub(crate) config: ConfigName,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// Refuses a config without objects, which has no text.
fn check_objects(config: &VersionedConfig) -> Result<(), Failure> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if !config.spec.objects.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "config {name} has no objects whose text it could follow; for the ConfigMap of its name, set spec.objects: [ConfigMap] with \
         kubectl edit vcfg {name}"
    )))
}

pub(crate) async fn run(session: &Session, command: &Follow) -> Result<(), Failure> {
    let (name, dry) = (command.config.as_str(), command.dry.dry_run);
    let config = session.config(name).await?;
    check_objects(&config)?;
    let text = describe(session, &config).await?;
    let clause = text.map(|text| format!("; {text}")).unwrap_or_default();
    if config.spec.version.is_none() && config.spec.rollout.overridden.is_none() {
        return session.out.line(&format!("config {name} follows its text already{clause}"));
    }
    unset_version(session, &config, dry).await?;
    session.out.line(&format!("config {name} follows its text{}{clause}", dry.suffix()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_without_objects_has_no_text() {
        let refusal = |objects: &[&str]| {
            let config = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
                "spec": {"version": "1", "objects": objects},
            }));
            check_objects(&config.unwrap()).err().map(|failure| failure.message)
        };
        assert_eq!(refusal(&["ConfigMap"]), None);
        assert!(refusal(&[]).unwrap().contains("kubectl edit vcfg shop"));
    }
}
