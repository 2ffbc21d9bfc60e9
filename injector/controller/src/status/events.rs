//! The Events of a config, also on its objects and on the workloads that read them.

use nudge_api::VersionedConfig;
use nudge_core::event_record::EventRecord;
use nudge_core::followed_objects::{event_workloads, object_events};
use nudge_core::keys::ConfigKey;

use crate::controller::Controller;

impl Controller {
    /// Queues Events on a config. If pods get the text of its objects, these have the most important ones, too.
    pub(crate) fn record_events(&self, key: &ConfigKey, config: &VersionedConfig, events: &[EventRecord]) {
        self.events.record(config, events);
        let events = object_events(key.name.as_str(), events);
        if events.is_empty() || !config.spec.follows_text() {
            return;
        }
        for kind in &config.spec.objects {
            self.events.record_on_object(*kind, key, &events);
        }
        let pods = self.index.subscribers(key);
        for (kind, name) in event_workloads(pods.iter().map(|pod| &**pod)) {
            self.events.record_on_workload(kind, &key.namespace, name, &events);
        }
    }
}
