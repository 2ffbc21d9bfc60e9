//! The course of a reconcile: reasons to postpone it, a brake before all else, the decision, then publication and
//! pruning.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_cluster::call::CallError;
use nudge_core::config::{importing_status, is_importing, is_moved};
use nudge_core::keys::ConfigKey;

use super::brake::Brake;
use super::next_reconcile::NextReconcile;
use crate::controller::Controller;

/// The time until the next reconcile of a config that was postponed because changes may have been missed.
const MISSED_CHANGES_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Controller {
    /// Reconciles one config. Returns when to do it again.
    pub(crate) async fn reconcile(self: &Arc<Self>, key: &ConfigKey) -> Result<NextReconcile, CallError> {
        if !self.index.is_enabled(&key.namespace) {
            self.memories.forget(key);
            return Ok(NextReconcile::OnChange);
        }
        // A namespace that is listed in part would look complete. The index reports when the list is complete.
        if !self.index.is_complete(&key.namespace) {
            return Ok(NextReconcile::OnChange);
        }
        let Some(config) = self.index.config(key) else {
            self.memories.forget(key);
            let wait = if self.index.is_left_out(key) { None } else { self.make_baseline(key).await? };
            return Ok(wait.map_or(NextReconcile::OnChange, NextReconcile::Within));
        };
        if config.metadata.deletion_timestamp.is_some() {
            return Ok(NextReconcile::OnChange);
        }
        if is_importing(&config) {
            return self.leave_alone(key, &config).await;
        }
        let brake = self.brake(key, &config);
        // Pods may have crashed, and spec may have changed, without being seen.
        if is_moved(&config)
            && brake.is_none()
            && let Some(what) = self.index.doubted_watch(&key.namespace)
        {
            tracing::debug!(config = %key, what, "reconcile postponed: changes may have been missed");
            return Ok(NextReconcile::Within(MISSED_CHANGES_RETRY_DELAY));
        }
        // A hold may have been missed; the first version may need approval.
        let has_no_version = config.status.as_ref().is_none_or(|status| status.current_version.is_none());
        if (is_moved(&config) || has_no_version) && brake.is_none() && self.index.has_doubted_policies() {
            tracing::debug!(config = %key, "reconcile postponed: policies may have been missed");
            return Ok(NextReconcile::Within(MISSED_CHANGES_RETRY_DELAY));
        }
        let (config, mut next) = match brake {
            Some(Brake { decision, evidence, observed_at }) => {
                let (config, _) = self.write_decision(key, config, &decision, None).await?;
                self.keep_evidence(key, evidence, observed_at);
                (config, NextReconcile::Soon)
            }
            None => match self.decide(key, config).await? {
                Some(decided) => decided,
                None => return Ok(NextReconcile::OnChange),
            },
        };
        let config = self.observe_readers(key, config).await?;
        let before = self.publish_attempt(key);
        let config = self.publish(key, config).await?;
        // A rollout may have waited for this.
        if config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some())
            && before != self.publish_attempt(key)
        {
            next = NextReconcile::Soon;
        }
        let followed = self.follow_text(key, Arc::clone(&config)).await?;
        if followed.is_recorded {
            next = NextReconcile::Soon;
        }
        // The version that the text is now must not be pruned by a status that does not name it yet.
        let pruned = if followed.is_recorded { None } else { self.prune(key, &config).await };
        let unused = self.end_baseline(key, &config).await;
        let side_calls = self.memories.get(key, |memory| memory.side_calls.next_reconcile(Instant::now())).flatten();
        Ok(next
            .or_within(self.next_publication(key))
            .or_within(followed.wait)
            .or_within(pruned)
            .or_within(unused)
            .or_within(side_calls))
    }

    /// Writes into the status that the config is being imported, and does nothing else. Earlier observations do not
    /// hold afterwards.
    async fn leave_alone(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<NextReconcile, CallError> {
        self.memories.forget(key);
        let before = config.status.clone().unwrap_or_default();
        let status = importing_status(before, config.metadata.generation, &Time(Timestamp::now()));
        if config.status.as_ref() != Some(&status) && Box::pin(self.write_status(key, config, &status)).await?.is_some()
        {
            tracing::info!("the config is being imported; left alone");
        }
        Ok(NextReconcile::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use nudge_cluster::index::Index;
    use nudge_cluster::watch_health::WatchHealth;
    use nudge_core::rollout::Subjects;

    use super::*;
    use crate::fake_api_server::blind;

    #[tokio::test]
    async fn while_policies_may_have_been_missed_nothing_is_decided() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let health = WatchHealth::new("rolloutpolicies");
        index.expect_policies(health.clone());
        let config = |status: serde_json::Value| {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
                "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": status.to_string()},
                "spec": {"version": "2"}, "status": status,
            }))
            .unwrap()
        };
        let controller = Arc::new(blind(Arc::clone(&index)));
        let shop = ConfigKey::parse("ns", "shop").unwrap();
        for status in [
            serde_json::json!({}),
            serde_json::json!({"currentVersion": "1", "targetVersion": "2", "rollout": {"stage": "Moving"}}),
        ] {
            index.put_config(config(status));
            assert_eq!(
                Box::pin(controller.reconcile(&shop)).await.unwrap(),
                NextReconcile::Within(MISSED_CHANGES_RETRY_DELAY)
            );
        }
    }

    #[tokio::test]
    async fn a_config_that_may_not_begin_is_not_observed() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let config = serde_json::json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            "spec": {"version": "2"}, "status": {"currentVersion": "1"},
        });
        index.put_config(serde_json::from_value(config).unwrap());
        let controller = Arc::new(blind(index));
        let (shop, other) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("ns", "other").unwrap());
        controller.keep_subjects(&shop, Subjects::default());
        let held = controller.move_order.begin(&other);
        assert_eq!(Box::pin(controller.reconcile(&shop)).await.unwrap(), NextReconcile::OnChange);
        let kept = controller.memories.get(&shop, |memory| memory.subjects.is_some());
        assert_eq!(kept, Some(true), "a reconcile takes them");
        drop(held);
        assert_eq!(controller.queue.len(), 1, "it comes back");
    }
}
