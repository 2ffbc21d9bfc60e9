//! The acts of a source: writes of its config and versions, and the pause after a failed write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use nudge_api::Reason;
use nudge_core::sources::Act;
use nudge_protocol::error_chain::chain;
use nudge_protocol::{ConfigName, VersionName};
use tokio::time::Instant;

use super::kept_draft::KeptDraft;
use super::{API_BACKOFF, ContentState, KnownConfig, Pause, Task, invalid_name, later};
use crate::writes::WriteError;

impl Task {
    pub(super) fn record_failure(&mut self, error: WriteError) {
        self.failures = self.failures.saturating_add(1);
        let until = later(API_BACKOFF.jittered_wait(self.failures, rand::random()));
        let (namespace, source) = (&self.namespace, self.source.name_any());
        let refusal = match error {
            WriteError::Refused(explanation) => {
                tracing::info!(namespace, source, reason = %explanation.reason, "source refused");
                Some(explanation)
            }
            WriteError::Call(error) => {
                tracing::warn!(namespace, source, error = chain(&error), "write of a source failed; retrying");
                None
            }
        };
        self.pause = Some(Pause { until, refusal });
    }

    pub(super) async fn act(&mut self, act: Act) -> Result<(), WriteError> {
        let name = self.source.config().to_owned();
        let (namespace, source) = (self.namespace.clone(), self.source.name_any());
        match act {
            Act::CreateConfig => {
                if let Some(config) = self.writes.create_config(&name).await? {
                    tracing::info!(namespace, config = name, "config created");
                    self.observe_config(Some(config));
                } else {
                    // The config exists, and the watch shows it soon.
                    self.config = KnownConfig::Unknown;
                }
            }
            Act::Make => {
                let ContentState::Read { draft, newest } = &self.content else { return Ok(()) };
                let Some(KeptDraft { draft, .. }) = draft else {
                    self.reread_at = Some(Instant::now());
                    return Ok(());
                };
                let version = newest.version.clone();
                let refuse_name = |error| WriteError::Refused(invalid_name(&error));
                let config = ConfigName::new(&name).map_err(refuse_name)?;
                let label = VersionName::new(&version).map_err(refuse_name)?;
                let existing = self.writes.create_version(&self.source, &config, &label, draft).await?;
                if let Some(existing) = existing.filter(|_| self.is_last(&version)) {
                    let message = format!(
                        "{existing} exists already, and version {version} is not sealed; see kubectl nudge status {name}, and \
                         delete {existing} if something else has made it"
                    );
                    return Err(WriteError::Refused(Reason::Conflict.explained(message)));
                }
                tracing::info!(namespace, source, version, "version made");
                self.record_version(version);
            }
            Act::Activate(version) => {
                let Some(config) = self.config() else { return Ok(()) };
                let config = self.writes.activate(&self.source, config, &version).await?;
                tracing::info!(namespace, source, version, "version set in spec.version");
                self.set_config(config);
                if !self.is_last(&version) {
                    self.record_version(version);
                }
            }
            Act::Retry(version) => {
                let config = self.writes.retry(&name).await?;
                tracing::info!(namespace, source, version, "version tried again");
                self.set_config(config);
            }
            Act::KeepOnly(last) => {
                let Some((config, seals)) = self.config().zip(self.seals().ok()) else { return Ok(()) };
                let notice = last.as_ref().map(|last| seals.source_gone_notice(config, last, Timestamp::now()));
                let config = self.writes.keep_only(&name, notice).await?;
                tracing::info!(namespace, config = name, last, "decided whether older Secret versions stay");
                self.set_config(config);
            }
        }
        self.failures = 0;
        Ok(())
    }

    /// Returns whether this is the version that the source made or chose last.
    fn is_last(&self, version: &str) -> bool {
        self.source.status.as_ref().is_some_and(|status| status.version.as_deref() == Some(version))
    }

    fn record_version(&mut self, version: String) {
        let status = self.source.status.get_or_insert_default();
        status.version = Some(version);
        status.make_time = Some(Time(Timestamp::now()));
    }
}
