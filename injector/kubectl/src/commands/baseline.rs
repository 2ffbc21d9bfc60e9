//! `kubectl nudge baseline`: creates configs that follow the text of existing ConfigMaps.

use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::PartKind;
use nudge_api::VersionedConfig;
use nudge_cluster::call::is_conflict;
use nudge_core::baseline::{BaselineLabel, BaselineObject, FIRST_VERSION, baseline_refusal, first_config};
use nudge_protocol::labels;

use crate::dry_run::{Dry, DryRun};
use crate::failure::{Failure, doing};
use crate::session::{Session, creating};
use crate::version::stored::{label, objects};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  kubectl nudge baseline game
  kubectl nudge baseline --all

ConfigMaps of Kubernetes, immutable ConfigMaps, and objects of versions are left alone.")]
pub(crate) struct Baseline {
    /// The ConfigMap
    #[arg(required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// All ConfigMaps of the namespace
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// Returns why the ConfigMap is left alone, if it is.
fn refusal(map: &ConfigMap) -> Option<&'static str> {
    baseline_refusal(&BaselineObject::from(map))
}

pub(crate) async fn run(session: &Session, command: &Baseline) -> Result<(), Failure> {
    let dry = command.dry.dry_run;
    let maps = session.api::<ConfigMap>();
    if let Some(name) = &command.name {
        let map = maps.get_opt(name).await.map_err(doing(format!("reading ConfigMap {name}")))?;
        let not_found = || {
            Failure::new(format!(
                "there is no ConfigMap {name} in namespace {}; see kubectl get configmaps",
                session.namespace
            ))
        };
        let map = map.ok_or_else(not_found)?;
        // A published ConfigMap is refused only if its config is gone.
        let config_exists = session.find_config(name).await?.is_some();
        if let Some(reason) = refusal(&map).filter(|_| !config_exists) {
            return Err(Failure::new(format!("ConfigMap {name} can't become a version: {reason}")));
        }
        if !make_baseline(session, name, dry).await? {
            return session.out.line(&format!("config {name} exists already"));
        }
        return Ok(());
    }
    let mut failures: Vec<String> = Vec::new();
    let all_maps = session.list::<ConfigMap>("ConfigMaps").await?;
    if all_maps.is_empty() {
        return Err(Failure::new(format!("there are no ConfigMaps in namespace {}", session.namespace)));
    }
    let configs = session.list::<VersionedConfig>("configs").await?;
    let config_names: Vec<String> = configs.into_iter().filter_map(|config| config.metadata.name).collect();
    for map in all_maps.into_iter().filter(|map| label(&map.metadata, labels::VERSION).is_empty()) {
        let name = map.metadata.name.clone().unwrap_or_default();
        match refusal(&map).filter(|_| !config_names.contains(&name)) {
            Some(reason) => session.out.line(&format!("configmap/{name} left alone: {reason}"))?,
            None => match make_baseline(session, &name, dry).await {
                Ok(true) => {}
                Ok(false) => session.out.line(&format!("configmap/{name} left alone: it has a config"))?,
                // One failure does not stop the other ConfigMaps.
                Err(failure) => failures.push(failure.message),
            },
        }
    }
    let Some(last) = failures.pop() else { return Ok(()) };
    for message in &failures {
        session.out.error(message);
    }
    Err(Failure::new(last))
}

/// Creates the config. Returns false if the config exists already.
async fn make_baseline(session: &Session, name: &str, dry: DryRun) -> Result<bool, Failure> {
    if session.find_config(name).await?.is_some() {
        return Ok(false);
    }
    let (objects, _) = objects(session, name, None).await?;
    if objects.iter().any(|(_, meta)| label(meta, labels::VERSION) != FIRST_VERSION) {
        return Err(Failure::new(format!(
            "ConfigMap {name} can't become a version: objects of other versions of config {name} exist without the config; create the \
             config instead"
        )));
    }
    let config = first_config(name, BaselineLabel::Object, &[PartKind::ConfigMap]);
    if dry != DryRun::Client {
        match session.api::<VersionedConfig>().create(&creating(dry), &config).await {
            Ok(_) => {}
            // The control plane creates a config that pods use.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(Failure::of(&format!("creating config {name}"), &error)),
        }
    }
    session.out.line(&format!("config {name} follows configmap/{name}{}", dry.suffix()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_maps_of_others_are_left_alone() {
        let map = |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            map
        };
        assert_eq!(refusal(&map("shop")), None);
        assert!(refusal(&map("kube-root-ca.crt")).is_some());
        assert!(refusal(&map(&"a.".repeat(40))).unwrap().contains("can't be a label"));
    }
}
