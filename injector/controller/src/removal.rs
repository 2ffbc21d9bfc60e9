//! Rule 4: when a config is deleted its versions are deleted too, unless its CRD or namespace is terminating: removing Nudge must
//! not delete all configuration.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ObjectMeta, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResourceExt, Resource};
use nudge_api::{PartKind, PartStatus, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::keys::ConfigKey;
use serde::de::DeserializeOwned;

use super::controller::Controller;

impl Controller {
    /// Deletes the sealed versions of a deleted config.
    pub(super) async fn remove(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<(), CallError> {
        if !self.index.is_enabled(&key.namespace) {
            return Ok(());
        }
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = VersionedConfig::crd_name();
        let crd = call(|| format!("reading CustomResourceDefinition {name}"), crds.get_metadata_opt(name)).await?;
        if !is_of(crd.as_ref().map(|crd| &crd.metadata), &config.metadata) {
            tracing::info!("config deleted with its CRD, so the versions stay");
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let reading = || format!("reading Namespace {}", key.namespace);
        let namespace = call(reading, namespaces.get_metadata_opt(&key.namespace)).await?;
        if namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            return Ok(());
        }
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), &key.namespace);
        let versions = config.status.iter().flat_map(|status| &status.versions);
        for part in versions.flat_map(|version| &version.parts) {
            // Read from the API server each time: a config that is deleted to be created again may come back at any moment.
            let reading = || format!("reading VersionedConfig {key}");
            if call(reading, configs.get_metadata_opt(key.name.as_str())).await?.is_some() {
                tracing::info!("config created again, so its versions stay");
                return Ok(());
            }
            self.delete_part(&key.namespace, part).await?;
        }
        tracing::info!("versions of the deleted config deleted");
        Ok(())
    }

    /// Deletes exactly this object; another one that has its name by now stays.
    pub(super) async fn delete_part(&self, namespace: &str, part: &PartStatus) -> Result<(), CallError> {
        match part.kind {
            PartKind::ConfigMap => self.delete::<ConfigMap>(namespace, part).await,
            PartKind::Secret => self.delete::<Secret>(namespace, part).await,
        }
    }

    async fn delete<K>(&self, namespace: &str, part: &PartStatus) -> Result<(), CallError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let preconditions = Preconditions { uid: Some(part.uid.clone()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleting = || format!("deleting {} {namespace}/{}", part.kind, part.name);
        match call(deleting, api.delete(&part.name, &params)).await {
            Ok(_) => Ok(()),
            // Deleted already, or another object of the name.
            Err(error) if matches!(error.code(), 404 | 409) && error.refusal().is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether the config was an object of this very CRD, which is not terminating: a CRD that was deleted and created again is younger
/// than the configs deleted with the first.
fn is_of(crd: Option<&ObjectMeta>, config: &ObjectMeta) -> bool {
    crd.is_some_and(|crd| {
        crd.deletion_timestamp.is_none()
            && matches!((&crd.creation_timestamp, &config.creation_timestamp), (Some(crd), Some(config)) if crd.0 < config.0)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_config_deleted_with_its_crd_is_recognized() {
        let at = |second| Some(Time(Timestamp::from_second(second).unwrap()));
        let made = |second| ObjectMeta { creation_timestamp: at(second), ..ObjectMeta::default() };
        assert!(is_of(Some(&made(1)), &made(2)));
        assert!(!is_of(None, &made(2)));
        assert!(!is_of(Some(&made(2)), &made(2)), "not known, so the versions stay");
        assert!(!is_of(Some(&made(3)), &made(2)), "the CRD was created again");
        assert!(!is_of(Some(&ObjectMeta { deletion_timestamp: at(4), ..made(1) }), &made(2)));
    }
}
