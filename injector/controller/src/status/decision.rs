//! The write of the status that a reconcile has decided: at once if it moves something, in turn if it brings
//! numbers alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConditionType, Explanation, PodCounts, VersionedConfig, VersionedConfigStatus, find_condition};
use nudge_cluster::call::CallError;
use nudge_core::config::Decision;
use nudge_core::keys::ConfigKey;

use super::audit;
use crate::controller::Controller;
use crate::memory::{MoveRight, NumberWrites, StatusRefusal};

impl Controller {
    /// Writes the decided status, if it differs. Returns the config after the write, and when to write the numbers that
    /// were left out. `right` is held until the status is written.
    pub(crate) async fn write_decision(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
        decision: &Decision,
        right: Option<MoveRight<'_>>,
    ) -> Result<(Arc<VersionedConfig>, Option<Duration>), CallError> {
        if config.status.as_ref() == Some(&decision.status) {
            return Ok((config, None));
        }
        let before = config.status.clone().unwrap_or_default();
        let reduced = self.reduced_status(key, &before, &decision.status);
        if reduced.as_ref() == Some(&before) {
            return Ok((config, Some(StatusRefusal::RETRY_INTERVAL)));
        }
        // Each reconcile decides again about the parts that a reduced status leaves out, with their Events.
        if (reduced.is_some() || decision.events.is_empty())
            && !differs_in_more_than_numbers(&before, reduced.as_ref().unwrap_or(&decision.status))
            && let Err(wait) = self
                .memories
                .change(key, |memory| memory.number_writes.plan(&mut self.number_writes_free_at.lock(), Instant::now()))
        {
            return Ok((config, Some(wait)));
        }
        let Some(written) = Box::pin(self.write_status(key, &config, &decision.status)).await? else {
            return Ok((config, Some(StatusRefusal::RETRY_INTERVAL)));
        };
        drop(right);
        self.memories.change(key, |memory| memory.number_writes = NumberWrites::after_write(Instant::now()));
        let after = written.status.as_ref().unwrap_or(&before);
        self.metrics.count_change(&before, after);
        audit::write_lines(key, &before, after);
        let is_reduced = find_condition(&after.conditions, ConditionType::StatusComplete).is_some();
        if !is_reduced || differs_in_more_than_numbers(&before, after) {
            for event in &decision.events {
                let Explanation { reason, message } = &event.explanation;
                tracing::info!(config = %key, %reason, message, "status written");
            }
            self.record_events(key, &written, &decision.events);
        }
        Ok((Arc::new(written), is_reduced.then_some(StatusRefusal::RETRY_INTERVAL)))
    }
}

/// Returns whether the status differs in more than numbers of pods, so that its write must not wait for other writes.
fn differs_in_more_than_numbers(before: &VersionedConfigStatus, after: &VersionedConfigStatus) -> bool {
    let without_numbers = |status: &VersionedConfigStatus| {
        let mut status = status.clone();
        (status.pods, status.rollout.evidence) = (PodCounts::default(), None);
        for condition in &mut status.conditions {
            condition.message.clear();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        status
    };
    without_numbers(before) != without_numbers(after)
}

#[cfg(test)]
mod tests {
    use nudge_api::{BackgroundStatus, EvidenceStatus, RolloutStage};
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_alone_move_nothing() {
        let condition = |status: &str, message: &str| {
            json!([{"type": "Ready", "status": status, "reason": "Progressing", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let mut before =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        before.conditions = serde_json::from_value(condition("False", "3 of 40 pods")).unwrap();
        let mut numbers = before.clone();
        numbers.pods = PodCounts { total: 40, on_target: 4, ..PodCounts::default() };
        numbers.rollout.evidence = Some(EvidenceStatus { assigned: 4, ..EvidenceStatus::default() });
        numbers.conditions = serde_json::from_value(condition("False", "4 of 40 pods")).unwrap();
        assert!(!differs_in_more_than_numbers(&before, &numbers) && !differs_in_more_than_numbers(&before, &before));
        let more: [fn(&mut VersionedConfigStatus); 7] = [
            |status| status.target_version = Some("2".to_owned()),
            |status| status.internal.revision = 1,
            |status| status.rollout.stage = Some(RolloutStage::RollingBack),
            |status| status.internal.yields = true,
            |status| status.observed_generation = Some(2),
            |status| status.conditions[0].status = "True".to_owned(),
            |status| {
                let start_time = Time(Timestamp::UNIX_EPOCH);
                status.internal.background = Some(BackgroundStatus { start_time, pod_seconds: 3600, harmed: 0 });
            },
        ];
        for change in more {
            let mut changed = numbers.clone();
            change(&mut changed);
            assert!(differs_in_more_than_numbers(&before, &changed), "{changed:?}");
        }
    }
}
