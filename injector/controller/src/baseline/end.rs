//! The end of a config that the label of its namespace made.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use nudge_api::VersionedConfig;
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient_object::Lenient;
use nudge_core::baseline::{is_adopted, is_untouched};
use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;

use crate::controller::Controller;

/// The time between two attempts to delete a config.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

impl Controller {
    /// Deletes the config, if the label of its namespace made it, its objects are gone, and no pod has used it for a
    /// while. Returns when to look again.
    pub(crate) async fn end_baseline(&self, key: &ConfigKey, config: &VersionedConfig) -> Option<Duration> {
        let is_of_baseline = is_untouched(config);
        let has_readers = || self.index.users(key).is_none_or(|pods| pods.iter().any(|pod| pod.is_live()));
        let wait = self.memories.change(key, |memory| {
            let is_needed = !is_of_baseline || !memory.text.is_missing() || has_readers();
            memory.unused.note(is_needed, Instant::now(), self.max_unused_time)
        })?;
        if !wait.is_zero() {
            return Some(wait);
        }
        if !self.may_delete_in(&key.namespace) {
            return Some(RETRY_INTERVAL);
        }
        match self.delete_unused(key, config).await {
            Ok(true) => {
                tracing::info!(config = %key, "config deleted: its objects are gone, and no pod uses it");
                None
            }
            Ok(false) => {
                self.memories.change(key, |memory| memory.unused.note(true, Instant::now(), self.max_unused_time));
                Some(RETRY_INTERVAL)
            }
            Err(error) => {
                tracing::warn!(config = %key, error = chain(&error), "unused config not deleted; retrying");
                Some(RETRY_INTERVAL)
            }
        }
    }

    /// Deletes the config, unless its objects exist or somebody has adopted it. Returns whether it is deleted.
    async fn delete_unused(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<bool, CallError> {
        let (namespace, name) = (&key.namespace, key.name.as_str());
        for kind in &config.spec.objects {
            let reading = || format!("reading {kind} {namespace}/{name}");
            if call(reading, self.parts(namespace, *kind).get_metadata_opt(name)).await?.is_some() {
                return Ok(false);
            }
        }
        let configs: Api<Lenient<VersionedConfig>> = Api::namespaced(self.client.clone(), namespace);
        let stored = call(|| format!("reading VersionedConfig {key}"), configs.get_opt(name)).await?;
        let Some(Lenient(stored)) = stored.filter(|Lenient(stored)| stored.metadata.uid == config.metadata.uid) else {
            return Ok(false);
        };
        if !is_untouched(&stored) || is_adopted(&stored.metadata) {
            return Ok(false);
        }
        let preconditions =
            Preconditions { uid: stored.metadata.uid, resource_version: stored.metadata.resource_version };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        call(|| format!("deleting VersionedConfig {key}"), configs.delete(name, &params)).await.map(|_| true)
    }
}
