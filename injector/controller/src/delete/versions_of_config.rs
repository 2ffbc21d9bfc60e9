//! Deletions of the versions of a deleted config. They are kept if its CRD or namespace is terminating: removing Nudge
//! must not delete all configuration. If no leader saw a config's deletion, the config is found by its parts, which say
//! that they were created for a config.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ObjectMeta, Preconditions};
use kube::core::DynamicObject;
use kube::{Api, CustomResourceExt, ResourceExt as _};
use nudge_api::{PartKind, PartStatus, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::object_referrers::object_referrers;
use nudge_cluster::part_objects::part_resource;
use nudge_core::keys::{ConfigKey, PartMeta};
use nudge_core::versions::made_for_a_config;
use nudge_protocol::labels;

use crate::controller::Controller;

impl Controller {
    /// Deletes the sealed versions of a deleted config.
    pub(crate) async fn delete_versions(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<(), CallError> {
        let versions = config.status.iter().flat_map(|status| &status.versions);
        let parts = versions.flat_map(|version| &version.parts);
        if self.may_delete(key, config.metadata.creation_timestamp.as_ref().map(|created| created.0)).await? {
            self.delete_parts(key, parts).await?;
        }
        Ok(())
    }

    /// Deletes the parts that were created for a config of this name, if there is none.
    pub(crate) async fn delete_orphans(&self, key: &ConfigKey) -> Result<(), CallError> {
        // Pods would lose their version. While pods are left out, their configs are unknown.
        let is_used = self.index.users(key).is_none_or(|users| !users.is_empty());
        if self.index.config(key).is_some() || self.index.is_left_out(key) || is_used {
            return Ok(());
        }
        let (mut parts, mut first) = (Vec::new(), None);
        for part in self.index.parts(key) {
            let meta = self.part_metadata(key, &part).await?;
            let created = meta.and_then(|meta| made_for_a_config(&self.keys.note, part.kind, &meta));
            if let Some(created) = created {
                let (kind, name, uid) = (part.kind, part.name.clone(), part.uid.clone());
                parts.push(PartStatus { kind, name, uid, digest: String::new() });
                first = first.into_iter().chain([created]).min();
            }
        }
        if !parts.is_empty() && self.may_delete(key, first).await? {
            self.delete_parts(key, parts.iter()).await?;
        }
        Ok(())
    }

    /// Reads the metadata of a part; `None` if it is gone, or another object has its name by now.
    async fn part_metadata(&self, key: &ConfigKey, part: &PartMeta) -> Result<Option<ObjectMeta>, CallError> {
        let api = self.parts(&key.namespace, part.kind);
        let reading = || format!("reading {} {}/{}", part.kind, key.namespace, part.name);
        let object = call(reading, api.get_metadata_opt(&part.name)).await?;
        Ok(object.map(|object| object.metadata).filter(|meta| meta.uid.as_ref() == Some(&part.uid)))
    }

    /// Returns whether the parts of a deleted config, which existed at this time, may be deleted.
    async fn may_delete(&self, key: &ConfigKey, existed: Option<Timestamp>) -> Result<bool, CallError> {
        if !self.index.is_enabled(&key.namespace) {
            return Ok(false);
        }
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = VersionedConfig::crd_name();
        let crd = call(|| format!("reading CustomResourceDefinition {name}"), crds.get_metadata_opt(name)).await?;
        if !is_object_of(crd.as_ref().map(|crd| &crd.metadata), existed) {
            tracing::info!("config deleted with its CRD, so the versions stay");
            return Ok(false);
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let reading = || format!("reading Namespace {}", key.namespace);
        let namespace = call(reading, namespaces.get_metadata_opt(&key.namespace)).await?;
        Ok(namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none()))
    }

    /// Deletes the parts while there is no config of the name. What the template of a workload, or a pod without an
    /// agent, names stays.
    async fn delete_parts(&self, key: &ConfigKey, parts: impl Iterator<Item = &PartStatus>) -> Result<(), CallError> {
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), &key.namespace);
        let holders =
            object_referrers(&self.client, &key.namespace, |pod| !pod.labels().contains_key(labels::AGENT)).await?;
        for part in parts {
            if let Some(holder) = holders.get(&(part.kind, part.name.clone())) {
                tracing::info!(
                    part = part.name,
                    holder,
                    "part of a deleted config stays, because a template or pod names it"
                );
                continue;
            }
            // The API server is asked each time: a config that is deleted to be created again may come back at any
            // moment.
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

    /// Returns the API of the objects of a kind, whatever they hold.
    pub(crate) fn parts(&self, namespace: &str, kind: PartKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &part_resource(kind))
    }

    /// Deletes exactly this object, and not another one that has its name by now.
    pub(super) async fn delete_part(&self, namespace: &str, part: &PartStatus) -> Result<(), CallError> {
        let api = self.parts(namespace, part.kind);
        let preconditions = Preconditions { uid: Some(part.uid.clone()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let deleting = || format!("deleting {} {namespace}/{}", part.kind, part.name);
        match call(deleting, api.delete(&part.name, &params)).await {
            Ok(_) => Ok(()),
            // The object is deleted already, or another one has its name.
            Err(error) if matches!(error.code(), Some(404 | 409)) && error.refusal().is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether a config that existed at this time belonged to this very CRD, and the CRD is not terminating. A CRD
/// that was deleted and created again is younger than the configs that were deleted with the first CRD.
fn is_object_of(crd: Option<&ObjectMeta>, existed: Option<Timestamp>) -> bool {
    crd.is_some_and(|crd| {
        crd.deletion_timestamp.is_none()
            && matches!((&crd.creation_timestamp, existed), (Some(crd), Some(existed)) if crd.0 < existed)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_config_deleted_with_its_crd_is_recognized() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let made = |second| ObjectMeta { creation_timestamp: at(second).map(Time), ..ObjectMeta::default() };
        assert!(is_object_of(Some(&made(1)), at(2)));
        assert!(!is_object_of(None, at(2)) && !is_object_of(Some(&made(1)), None));
        assert!(!is_object_of(Some(&made(2)), at(2)), "not known, so the versions stay");
        assert!(!is_object_of(Some(&made(3)), at(2)), "the CRD was created again");
        assert!(!is_object_of(Some(&ObjectMeta { deletion_timestamp: at(4).map(Time), ..made(1) }), at(2)));
    }
}
