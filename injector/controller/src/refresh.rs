//! Refreshes the volumes of pods that ask for it: the kubelet syncs a pod that changes at once, with its volumes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nudge_api::{Reason, VersionedConfig};
use nudge_cluster::call::CallError;
use nudge_cluster::listing::each;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::restart::{REFRESHED, refreshed_for};
use nudge_protocol::error_chain::chain;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::controller::Controller;
use super::restart::refusal;

/// Pause between two pods, for the sake of kubelets and the API server.
const BETWEEN: Duration = Duration::from_millis(10);

impl Controller {
    /// Touches the pods whose volumes have the published ConfigMap, after `version` was published. Otherwise the kubelet takes about a
    /// minute, so a failure becomes an Event and is not retried.
    pub(super) async fn refresh(&self, key: &ConfigKey, config: &VersionedConfig, version: &str) {
        match self.touch(key, version).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(version, pods = count, "volumes of pods refreshed"),
            Err(error) => {
                let message =
                    refusal(&error, "a pod", "refreshed", false).map_or_else(|| error.to_string(), |it| it.why.message);
                tracing::warn!(version, error = chain(&error), "refreshing the volumes of pods failed");
                let message = format!("volumes of pods are not refreshed at once: {message}");
                self.events.record(config, &[EventRecord::new(Reason::NotRefreshed, message)]).await;
            }
        }
    }

    async fn touch(&self, key: &ConfigKey, version: &str) -> Result<usize, CallError> {
        let mut names = Vec::new();
        each::<Pod>(&self.client, &key.namespace, |pod| {
            let terminating = pod.metadata.deletion_timestamp.is_some();
            let asks = pod.spec.as_ref().is_some_and(|spec| refreshed_for(&pod.metadata, spec, key.name.as_str()));
            if asks && !terminating {
                names.extend(pod.metadata.name);
            }
        })
        .await?;
        let patch = json!({"metadata": {"annotations": {REFRESHED: version}}});
        let mut turns = interval(BETWEEN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for name in &names {
            turns.tick().await;
            match self.patched::<Pod, _>(key, name, &patch, |_| Some(())).await {
                Ok(_) => self.metrics.refreshed("done"),
                Err(error) => {
                    self.metrics.refreshed("failed");
                    return Err(error);
                }
            }
        }
        Ok(names.len())
    }
}
