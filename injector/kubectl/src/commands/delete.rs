//! `kubectl nudge delete`: deletes a version, or a config with all its versions.

use clap::Args;
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::versions::object_name;
use nudge_protocol::{ConfigName, VersionName, labels};
use serde_json::json;

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, deleting};
use crate::version::stored::objects;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge delete game 1.0.0
  kubectl nudge delete game

A version is not deleted while it is current, the target of a rollout, or the version to roll back to, or while a pod \
template names it. A config with pods is not deleted without --force. A config that the label nudge.dev/baseline of its namespace \
made comes back while the label stands, if its ConfigMap or Secret is wanted.")]
pub(crate) struct Delete {
    /// The config
    pub(crate) config: ConfigName,
    /// The version; without a version, the config and all its versions are deleted
    pub(crate) version: Option<VersionName>,
    /// Delete the config although pods use it; the pods keep their content until they end
    #[arg(long, conflicts_with = "version")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

pub(crate) async fn run(session: &Session, command: &Delete) -> Result<(), Failure> {
    let name = command.config.as_str();
    match &command.version {
        Some(version) => delete_version(session, name, version.as_str(), command.dry.dry_run).await,
        None => delete_config(session, name, command.force, command.dry.dry_run).await,
    }
}

/// Returns why the version can't be deleted, if it can't.
fn refusal(config: &VersionedConfig, version: &str) -> Option<String> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let status = config.status.as_ref()?;
    let is_named = |name: &Option<String>| name.as_deref() == Some(version);
    let (state, action) = if is_named(&status.current_version) {
        ("is current", "make another version current first")
    } else if is_named(&status.target_version) {
        ("is the target of a rollout", "wait for the end of the rollout, or roll it back first")
    } else if is_named(&status.previous_version) {
        ("is the version to roll back to", "make another version current first")
    } else {
        return None;
    };
    Some(format!("version {version} of config {name} {state}; {action}"))
}

async fn delete_version(session: &Session, name: &str, version: &str, dry: DryRun) -> Result<(), Failure> {
    let config = session.find_config(name).await?;
    if let Some(refusal) = config.as_ref().and_then(|config| refusal(config, version)) {
        return Err(Failure::new(refusal));
    }
    let (objects, secrets_listed) = objects(session, name, Some(version)).await?;
    let sealed = config.as_ref().and_then(|config| config.status.as_ref()?.version(version));
    let has_secrets = sealed.is_some_and(|sealed| sealed.parts.iter().any(|part| part.kind == PartKind::Secret));
    if has_secrets && !secrets_listed {
        let message = format!(
            "version {version} of config {name} has Secrets, which you may not list; ask the namespace's admin for that right"
        );
        return Err(Failure::new(message));
    }
    if objects.is_empty() && config.is_none() {
        return session.config(name).await.map(drop);
    }
    if objects.is_empty() {
        return Err(Failure::new(format!(
            "there is no version {version} of config {name}; see kubectl nudge versions {name}"
        )));
    }
    // A server dry run comes first, so that the refusal of one object leaves all of them.
    let rounds: &[DryRun] = match dry {
        DryRun::None => &[DryRun::Server, DryRun::None],
        DryRun::Server => &[DryRun::Server],
        DryRun::Client => &[],
    };
    for round in rounds {
        for (kind, meta) in &objects {
            let object = meta.name.as_deref().unwrap_or_default();
            match session.parts(*kind).delete(object, &deleting(*round)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => _ = result.map_err(doing(format!("deleting {}", object_name(*kind, object))))?,
            }
        }
    }
    session.out.line(&format!("version {version} of config {name} deleted{}", dry.suffix()))
}

async fn delete_config(session: &Session, name: &str, force: bool, dry: DryRun) -> Result<(), Failure> {
    let config = session.config(name).await?;
    if force && dry == DryRun::None {
        let patch = json!({"metadata": {"annotations": {labels::FORCE_DELETE: "true"}}});
        session.merge::<VersionedConfig>(name, &patch, dry, format!("annotating config {name}")).await?;
    }
    if dry != DryRun::Client {
        session.api::<VersionedConfig>().delete(name, &deleting(dry)).await.map_err(|error| {
            let mut failure = Failure::of(&format!("deleting config {name}"), &error);
            if failure.message.contains(labels::FORCE_DELETE) {
                failure.message += "; kubectl nudge delete --force does that";
            }
            failure
        })?;
    }
    let count = config.status.map_or(0, |status| status.versions.len());
    let suffix = dry.suffix();
    session.out.line(&format!("config {name} deleted{suffix}; the control plane now deletes its versions ({count})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_use_are_kept() {
        let config: VersionedConfig = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {},
            "status": {"currentVersion": "2", "targetVersion": "3", "previousVersion": "1"},
        }))
        .unwrap();
        for (version, state) in [("1", "roll back to"), ("2", "is current"), ("3", "target of a rollout")] {
            assert!(refusal(&config, version).unwrap().contains(state), "{version}");
        }
        assert_eq!(refusal(&config, "0"), None);
    }
}
