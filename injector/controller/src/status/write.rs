//! The write of a config's status, or of as much of it as the API server takes.

use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{Reason, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient_object::Lenient;
use nudge_core::config::reduce_status;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_protocol::bounded_text::one_line;

use crate::controller::{Controller, written_by_us};
use crate::memory::{PublishAttempts, StatusRefusal};

/// The maximum size of the part of the API server's answer that a condition has.
const MAX_CAUSE_BYTES: usize = 320;

impl Controller {
    fn status_refusal(&self, key: &ConfigKey) -> Option<StatusRefusal> {
        let refusal = self.memories.get(key, |memory| memory.refusal.clone()).flatten();
        refusal.filter(|refusal| refusal.is_recent(Instant::now()))
    }

    /// Returns the part of the decided status that is written now, if the API server has refused the whole status.
    pub(super) fn reduced_status(
        &self,
        key: &ConfigKey,
        stored: &VersionedConfigStatus,
        decided: &VersionedConfigStatus,
    ) -> Option<VersionedConfigStatus> {
        let StatusRefusal { extent, cause, .. } = self.status_refusal(key)?;
        Some(reduce_status(extent, stored, decided, &cause, &Time(Timestamp::now())))
    }

    /// Writes the decided status, or as much of it as the API server takes, unless the object has changed since.
    /// Returns `None` if the write changes nothing.
    pub(crate) async fn write_status(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        decided: &VersionedConfigStatus,
    ) -> Result<Option<VersionedConfig>, CallError> {
        let stored = config.status.clone().unwrap_or_default();
        let tries_whole = self.status_refusal(key).is_none();
        loop {
            let status = self.reduced_status(key, &stored, decided).unwrap_or_else(|| decided.clone());
            if config.status.as_ref() == Some(&status) {
                return Ok(None);
            }
            let next = VersionedConfig { status: Some(status), ..config.clone() };
            let error = match self.replace_status(key, &next).await {
                Ok(written) => {
                    self.memories.get(key, |memory| {
                        if memory.refusal.take_if(|refusal| !refusal.is_recent(Instant::now())).is_some() {
                            // The conditions that were left out are decided again.
                            memory.publish = PublishAttempts::default();
                        }
                    });
                    return Ok(Some(written).filter(|written| written.status != config.status));
                }
                Err(error) => error,
            };
            let Some(cause) = error.refusal().map(|answer| one_line(answer, MAX_CAUSE_BYTES)) else {
                return Err(error);
            };
            let Some(refusal) = StatusRefusal::next(self.status_refusal(key).as_ref(), cause.clone(), Instant::now())
            else {
                if tries_whole {
                    let message =
                        format!("what pods run stays as it is, because the API server refuses each status: {cause}");
                    self.events.record(config, &[EventRecord::new(Reason::StatusRefused, message)]);
                }
                return Err(error);
            };
            tracing::error!(config = %key, cause, written = ?refusal.extent, "status refused; writing less of it");
            self.memories.change(key, |memory| memory.refusal = Some(refusal));
        }
    }

    /// Writes the status, and adds it to the index at once.
    async fn replace_status(&self, key: &ConfigKey, next: &VersionedConfig) -> Result<VersionedConfig, CallError> {
        let api: Api<Lenient<VersionedConfig>> = Api::namespaced(self.client.clone(), &key.namespace);
        let writing = || format!("writing the status of VersionedConfig {key}");
        let Lenient(written) =
            call(writing, api.replace_status(key.name.as_str(), &written_by_us(), &Lenient(next.clone()))).await?;
        self.index.put_written_config(written.clone());
        Ok(written)
    }
}
