//! Writes of the status of a config, which is where the assignment of pods stands: all of it, or as much as the API server takes.

use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use nudge_api::{Reason, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::{CallError, call};
use nudge_cluster::lenient::Lenient;
use nudge_core::event_record::EventRecord;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::reduced;
use nudge_protocol::bounded_text::one_line;

use super::controller::{Controller, written_by_us};
use super::memories::ConfigMemory;
use super::refused::Refused;

/// How much of the API server's answer is said.
const CAUSE_BYTES: usize = 320;

impl Controller {
    fn refused(&self, key: &ConfigKey) -> Option<Refused> {
        let refused = self.memories.known(key, |memory| memory.refused.clone()).flatten();
        refused.filter(|refused| refused.holds(Instant::now()))
    }

    /// What of the decided status is written now, where the API server has refused the whole one.
    pub(super) fn reduced(
        &self,
        key: &ConfigKey,
        stored: &VersionedConfigStatus,
        decided: &VersionedConfigStatus,
    ) -> Option<VersionedConfigStatus> {
        let Refused { extent, cause, .. } = self.refused(key)?;
        Some(reduced(extent, stored, decided, &cause, &Time(Timestamp::now())))
    }

    /// Writes the decided status, unless the object has changed since: all of it, or as much as the API server takes. Returns `None` where that
    /// is no more than it holds.
    pub(super) async fn write(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        decided: &VersionedConfigStatus,
    ) -> Result<Option<VersionedConfig>, CallError> {
        let stored = config.status.clone().unwrap_or_default();
        let tries_whole = self.refused(key).is_none();
        loop {
            let status = self.reduced(key, &stored, decided).unwrap_or_else(|| decided.clone());
            if config.status.as_ref() == Some(&status) {
                return Ok(None);
            }
            let next = VersionedConfig { status: Some(status), ..config.clone() };
            let error = match self.replace_status(key, &next).await {
                Ok(written) => {
                    let ended =
                        |memory: &mut ConfigMemory| memory.refused.take_if(|refused| !refused.holds(Instant::now()));
                    if self.memories.known(key, ended).flatten().is_some() {
                        // What was left out of its conditions is found out again.
                        self.forget_published(key);
                    }
                    return Ok(Some(written).filter(|written| written.status != config.status));
                }
                Err(error) => error,
            };
            let Some(cause) = error.refusal().map(|answer| one_line(answer, CAUSE_BYTES)) else { return Err(error) };
            let Some(refused) = Refused::again(self.refused(key).as_ref(), cause.clone(), Instant::now()) else {
                if tries_whole {
                    let message =
                        format!("what pods run stays as it is, because the API server refuses each status: {cause}");
                    self.events.record(config, &[EventRecord::new(Reason::StatusRefused, message)]);
                }
                return Err(error);
            };
            tracing::error!(config = %key, cause, written = ?refused.extent, "status refused; writing less of it");
            self.memories.change(key, |memory| memory.refused = Some(refused));
        }
    }

    /// Writes the status. The index has it at once.
    async fn replace_status(&self, key: &ConfigKey, next: &VersionedConfig) -> Result<VersionedConfig, CallError> {
        let api: Api<Lenient<VersionedConfig>> = Api::namespaced(self.client.clone(), &key.namespace);
        let writing = || format!("writing the status of VersionedConfig {key}");
        let Lenient(written) =
            call(writing, api.replace_status(key.name.as_str(), &written_by_us(), &Lenient(next.clone()))).await?;
        self.index.put_written_config(written.clone());
        Ok(written)
    }
}
