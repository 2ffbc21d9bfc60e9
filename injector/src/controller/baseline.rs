//! Rule 6: a plain ConfigMap that an opted-in pod uses becomes version `1.0.0` of a config of its name.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use nudge_protocol::{VersionName, labels};

use super::reconcile::{Controller, written_by_us};
use super::{CallError, call};
use crate::api::{VersionedConfig, VersionedConfigSpec};
use crate::versions::{Note, baseline_refusal, contents_of, part_digest};
use crate::world::ConfigKey;

/// The version that it becomes.
const FIRST: &str = "1.0.0";

/// The version's object. `name` is free.
fn version_of(plain: ConfigMap, config: &str, name: &str) -> ConfigMap {
    let mut version =
        ConfigMap { immutable: Some(true), data: plain.data, binary_data: plain.binary_data, ..ConfigMap::default() };
    version.metadata.name = Some(name.to_owned());
    let pairs = [(labels::CONFIG, config), (labels::VERSION, FIRST)];
    version.metadata.labels = Some(pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).into());
    version
}

impl Controller {
    /// Makes the config, if pods use a plain ConfigMap of its name and there is nothing of it yet.
    pub(super) async fn baseline(&self, key: &ConfigKey) -> Result<(), CallError> {
        if self.world.subscribers(key).iter().all(|pod| pod.going || pod.finished) {
            return Ok(());
        }
        // A label holds 63 characters, a name 253.
        if VersionName::new(&key.name).is_err() {
            tracing::info!(config = %key, "its name can't be a label, so it can't have versions");
            return Ok(());
        }
        let (namespace, config) = (&key.namespace, &key.name);
        let taken = format!("{config}-{FIRST}");
        let others = self.world.parts(key);
        if others.iter().any(|part| part.version != FIRST) {
            // Somebody is making versions by hand; the config is theirs to make as well.
            return Ok(());
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let reading = || format!("reading ConfigMap {key}");
        let Some(plain) = call(reading, maps.get_opt(config)).await? else { return Ok(()) };
        if let Some(reason) = baseline_refusal(&plain) {
            tracing::info!(config = %key, reason, "not taken over");
            return Ok(());
        }
        if !self.create_first(key, &maps, plain, &taken).await? {
            tracing::warn!(config = %key, name = taken, "not taken over: the names for its first version are taken");
            return Ok(());
        }
        let made = VersionedConfig::new(config, VersionedConfigSpec::default());
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), namespace);
        let creating = || format!("creating VersionedConfig {key}");
        match call(creating, configs.create(&written_by_us(), &made)).await {
            Ok(made) => {
                let message = format!("ConfigMap {config} became version {FIRST}, because a pod subscribes to it");
                self.notes.tell(&made, &[Note { warning: false, reason: "Baseline", message }]).await;
                tracing::info!(config = %key, version = FIRST, "a plain ConfigMap became a config with versions");
                Ok(())
            }
            Err(error) if error.code() == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn create_first(
        &self,
        key: &ConfigKey,
        maps: &Api<ConfigMap>,
        plain: ConfigMap,
        name: &str,
    ) -> Result<bool, CallError> {
        // Where the name is taken by something else, the content's digest makes another.
        let digest = part_digest(&contents_of(plain.data.clone(), plain.binary_data.clone()), None);
        let short: String = digest.chars().rev().take(6).collect();
        for name in [name.to_owned(), format!("{name}-{short}")] {
            let object = version_of(plain.clone(), &key.name, &name);
            let creating = || format!("creating ConfigMap {}/{name}", key.namespace);
            match call(creating, maps.create(&written_by_us(), &object)).await {
                Ok(_) => return Ok(true),
                Err(error) if error.code() == 409 => {}
                Err(error) => return Err(error),
            }
            let reading = || format!("reading ConfigMap {}/{name}", key.namespace);
            if let Some(found) = call(reading, maps.get_opt(&name)).await?
                && found.metadata.labels == object.metadata.labels
                && (found.data == object.data && found.binary_data == object.binary_data)
                && found.metadata.deletion_timestamp.is_none()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
