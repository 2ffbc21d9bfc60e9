//! The baseline: a ConfigMap with the label `nudge.dev/baseline` that an opted-in pod uses becomes version `1.0.0` of a
//! config of its name.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{PartKind, Reason, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{
    FIRST_VERSION, baseline_refusal, contents_of, first_config, first_names, first_version, is_first_version, mark,
    wants_baseline,
};
use nudge_protocol::{VersionName, labels};

use super::next_reconcile::NextReconcile;
use crate::controller::{Controller, written_by_us};

/// The time between two reads of a ConfigMap that lacks the label while pods wait for their config.
const LABEL_CHECK_INTERVAL: Duration = Duration::from_mins(1);

impl Controller {
    /// Creates the config, if pods use a ConfigMap of its name and it has no versions yet.
    pub(super) async fn baseline(&self, key: &ConfigKey) -> Result<NextReconcile, CallError> {
        if self.index.subscribers(key).iter().all(|pod| !pod.is_live()) {
            return Ok(NextReconcile::OnChange);
        }
        // A label holds 63 characters, a name 253.
        if VersionName::new(key.name.as_str()).is_err() {
            tracing::info!("ConfigMap not taken over: its name is too long for a label, so it can't have versions");
            return Ok(NextReconcile::OnChange);
        }
        let (namespace, config) = (&key.namespace, key.name.as_str());
        let others = self.index.parts(key);
        if others.iter().any(|part| part.version != FIRST_VERSION) {
            // A user who creates versions by hand has to create the config, too.
            return Ok(NextReconcile::OnChange);
        }
        let map: Option<ConfigMap> = self.read_object(namespace, config).await?;
        let Some(map) = map else { return Ok(NextReconcile::OnChange) };
        if !wants_baseline(&map) {
            tracing::debug!(label = labels::BASELINE, "ConfigMap not taken over: it does not have the label");
            // Nobody watches ConfigMaps that are neither parts nor published.
            return Ok(NextReconcile::Within(LABEL_CHECK_INTERVAL));
        }
        if let Some(reason) = baseline_refusal(&map) {
            tracing::info!(reason, "ConfigMap not taken over");
            return Ok(NextReconcile::OnChange);
        }
        if !self.create_first(key, map).await? {
            tracing::warn!("ConfigMap not taken over: other objects have the names of its first version");
            return Ok(NextReconcile::OnChange);
        }
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), namespace);
        let creating = || format!("creating VersionedConfig {key}");
        match call(creating, configs.create(&written_by_us(), &first_config(config))).await {
            Ok(created) => {
                let message = format!("ConfigMap {config} became version {FIRST_VERSION}, because a pod uses it");
                self.events.record(&created, &[EventRecord::new(Reason::Baseline, message)]);
                tracing::info!(version = FIRST_VERSION, "ConfigMap taken over as the first version of a config");
                Ok(NextReconcile::OnChange)
            }
            Err(error) if error.is_conflict() => Ok(NextReconcile::OnChange),
            Err(error) => Err(error),
        }
    }

    /// Creates the first version from the ConfigMap. Returns whether the version exists.
    async fn create_first(&self, key: &ConfigKey, map: ConfigMap) -> Result<bool, CallError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let content = contents_of(map.data.clone(), map.binary_data.clone());
        for name in first_names(&map, key.name.as_str()) {
            let mut object = first_version(map.clone(), key.name.as_str(), &name);
            // This check is not left to the webhook, which may be away. The content is that of the ConfigMap, so it may
            // become current.
            let kind = (PartKind::ConfigMap, &*key.namespace);
            if let Some(mark) = mark(&self.keys.note, kind, &object.metadata, &content, Timestamp::now()) {
                object.metadata.annotations.get_or_insert_default().insert(labels::MAY_ACTIVATE.to_owned(), mark);
            }
            let creating = || format!("creating ConfigMap {}/{name}", key.namespace);
            match call(creating, maps.create(&written_by_us(), &object)).await {
                Ok(_) => return Ok(true),
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
            let existing: Option<ConfigMap> = self.read_object(&key.namespace, &name).await?;
            if existing.is_some_and(|existing| is_first_version(&existing, &object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
