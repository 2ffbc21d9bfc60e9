//! The search for workloads that read the objects of a config themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_core::followed_objects::{WriteBack, direct_readers, record_readers};
use nudge_core::keys::ConfigKey;

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::SideCall;

/// The maximum age of a list of pods, for all configs of a namespace that look at the same time.
const MAX_LIST_AGE: Duration = Duration::from_mins(1);
/// The same if a text gives way to the current version, unless nobody reads it.
const MAX_PENDING_LIST_AGE: Duration = Duration::from_secs(1);

impl Controller {
    /// Looks for the workloads that read the config's objects themselves, if that is due, and writes them into the
    /// status. Returns the config after that. Only writes of its status can fail.
    pub(crate) async fn observe_readers(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<Arc<VersionedConfig>, CallError> {
        let text = config.status.as_ref().and_then(|status| status.internal.text.as_ref());
        let Some(text) = text.filter(|_| config.spec.follows_text()) else { return Ok(config) };
        let is_pending = WriteBack::pending(&config).is_some();
        let (subject, now) = ((text.version.clone(), is_pending), Instant::now());
        let is_due = self.memories.change(key, |memory| memory.text.readers_are_due(&subject, now));
        if !is_due || !self.memories.side_call_is_due(key, SideCall::Readers) {
            return Ok(config);
        }
        let max_age = if is_pending { MAX_PENDING_LIST_AGE } else { MAX_LIST_AGE };
        let listed = match self.workload_lists.readers(&key.namespace, max_age).await {
            Ok(listed) => listed,
            Err(error) => {
                let what = "pods that read the config's objects themselves can't be listed";
                self.memories.side_call_failed(key, SideCall::Readers, what, FailureCause::of(&error));
                return Ok(config);
            }
        };
        self.memories.side_call_succeeded(key, SideCall::Readers);
        let readers = direct_readers(&config, &listed);
        let (status, event) = record_readers(&config, readers, &Time(Timestamp::now()));
        let mut written = config;
        if written.status.as_ref() != Some(&status) {
            match Box::pin(self.write_status(key, &written, &status)).await? {
                Some(stored) => written = Arc::new(stored),
                None => return Ok(written),
            }
            self.events.record(&written, event.as_slice());
        }
        self.memories.change(key, |memory| memory.text.note_readers(subject, now));
        Ok(written)
    }
}
