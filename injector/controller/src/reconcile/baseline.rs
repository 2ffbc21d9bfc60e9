//! The baseline: a ConfigMap with the label `nudge.dev/baseline` that an opted-in pod uses gets a config of its name,
//! which follows its text.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use nudge_api::{Reason, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{
    BaselineLabel, FIRST_VERSION, MAX_NAMESPACE_CONFIGS, baseline_label, baseline_refusal, first_config, is_of_text,
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
        if others.iter().any(|part| part.version != FIRST_VERSION && !is_of_text(&part.version)) {
            // A user who creates versions by hand has to create the config, too.
            return Ok(NextReconcile::OnChange);
        }
        let map: Option<ConfigMap> = self.read_object(namespace, config).await?;
        let Some(map) = map else { return Ok(NextReconcile::OnChange) };
        let of_namespace = self.index.namespace_label(namespace, labels::BASELINE);
        let Some(label) = baseline_label(&map, of_namespace.as_deref()) else {
            tracing::debug!(label = labels::BASELINE, "ConfigMap not taken over: it does not have the label");
            // Nobody watches ConfigMaps that are neither parts nor published.
            return Ok(NextReconcile::Within(LABEL_CHECK_INTERVAL));
        };
        if label == BaselineLabel::Namespace && self.index.count_configs(namespace) >= MAX_NAMESPACE_CONFIGS {
            tracing::info!("ConfigMap not taken over: its namespace has {MAX_NAMESPACE_CONFIGS} configs");
            return Ok(NextReconcile::Within(LABEL_CHECK_INTERVAL));
        }
        if let Some(reason) = baseline_refusal(&map) {
            tracing::info!(reason, "ConfigMap not taken over");
            return Ok(NextReconcile::OnChange);
        }
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), namespace);
        let creating = || format!("creating VersionedConfig {key}");
        match call(creating, configs.create(&written_by_us(), &first_config(config, label))).await {
            Ok(created) => {
                let message = format!("ConfigMap {config} got a config, because a pod uses it");
                self.events.record(&created, &[EventRecord::new(Reason::Baseline, message)]);
                tracing::info!("a config was made for a ConfigMap");
                Ok(NextReconcile::OnChange)
            }
            Err(error) if error.is_conflict() => Ok(NextReconcile::OnChange),
            Err(error) => Err(error),
        }
    }
}
