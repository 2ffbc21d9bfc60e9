//! The config of an object that an opted-in pod reads, or that its namespace wants. It follows the text of the object.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use nudge_api::{PartKind, Reason, VersionedConfig};
use nudge_cluster::call::{CallError, call};
use nudge_core::baseline::{FIRST_VERSION, NAMESPACE_FULL, NamespaceBaseline, first_config};
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::pods::{PodState, read_kinds};
use nudge_core::versions::{is_of_text, object_name};
use nudge_protocol::VersionName;

use super::kinds::ObjectVerdicts;
use crate::controller::{Controller, written_by_us};

/// The time between two reads of an object that lacks the label while pods wait for their config.
const LABEL_CHECK_INTERVAL: Duration = Duration::from_mins(1);

impl Controller {
    fn live_readers(&self, key: &ConfigKey) -> Vec<Arc<PodState>> {
        let mut pods = self.index.subscribers(key);
        pods.retain(|pod| pod.is_live());
        pods
    }

    /// Returns whether a user has made versions by hand, who has to create the config, too.
    pub(super) fn has_made_versions(&self, key: &ConfigKey) -> bool {
        self.index.parts(key).iter().any(|part| part.version != FIRST_VERSION && !is_of_text(&part.version))
    }

    /// Creates the config, if an object of its name becomes one and it has no versions yet. Returns when to look again.
    pub(crate) async fn make_baseline(&self, key: &ConfigKey) -> Result<Option<Duration>, CallError> {
        let (namespace, readers) = (self.baseline_namespace(&key.namespace), self.live_readers(key));
        let takes_all = namespace.baseline == NamespaceBaseline::All;
        // A label holds 63 characters, a name 253.
        if (readers.is_empty() && !takes_all) || VersionName::new(key.name.as_str()).is_err() {
            return Ok(None);
        }
        if self.has_made_versions(key) {
            return Ok(None);
        }
        let mut kinds = read_kinds(key.name.as_str(), readers.iter().map(|pod| &**pod));
        if takes_all {
            kinds.insert(PartKind::ConfigMap);
        }
        let kinds: Vec<PartKind> = kinds.into_iter().collect();
        let verdicts = self.object_verdicts(key, &kinds, namespace).await?;
        let Some(label) = verdicts.label() else { return Ok(self.leave_ordinary(key, &verdicts)) };
        let kinds = verdicts.config_kinds();
        let configs: Api<VersionedConfig> = Api::namespaced(self.client.clone(), &key.namespace);
        let creating = || format!("creating VersionedConfig {key}");
        let config = first_config(key.name.as_str(), label, &kinds);
        match call(creating, configs.create(&written_by_us(), &config)).await {
            Ok(created) => {
                let objects: Vec<String> = kinds.iter().map(|kind| object_name(*kind, key.name.as_str())).collect();
                let cause = if readers.is_empty() { "its namespace wants it" } else { "a pod uses it" };
                let message = format!("{} got a config, because {cause}", objects.join(" and "));
                self.events.record(&created, &[EventRecord::new(Reason::Baseline, message)]);
                tracing::info!("a config was made for an existing object");
                Ok(None)
            }
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says why no object becomes a config. Returns when to look again, since nobody watches ordinary objects.
    fn leave_ordinary(&self, key: &ConfigKey, verdicts: &ObjectVerdicts) -> Option<Duration> {
        for (kind, cause) in verdicts.ordinary() {
            let object = object_name(kind, key.name.as_str());
            tracing::info!(object, cause, "object not taken over");
            if cause == NAMESPACE_FULL {
                let event =
                    EventRecord::new(Reason::BaselineFull, format!("no config is made of {object}, because {cause}"));
                self.events.record_on_object(kind, key, &[event]);
            }
        }
        verdicts.may_change().then_some(LABEL_CHECK_INTERVAL)
    }
}
