//! The events of the index, which queue configs.

use std::sync::Weak;
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_cluster::index::IndexEvent;
use nudge_core::config::is_moved;

use super::unfinished_deletions::UnfinishedDeletions;
use crate::controller::Controller;

/// How long changes of pods are collected before a reconcile. The delay is shorter while a rollout waits for the pods'
/// reports.
const POD_CHANGES_DELAY: Duration = Duration::from_secs(1);
const MOVING_POD_CHANGES_DELAY: Duration = Duration::from_millis(100);

/// Queues the config of an event, and the configs that have waited for it.
pub(super) fn queue_configs(controller: &Weak<Controller>, deleted: &UnfinishedDeletions, event: &IndexEvent) {
    let Some(controller) = controller.upgrade() else { return };
    let queue = &controller.queue;
    match event {
        IndexEvent::Config(key) => {
            queue.add(key.clone(), Duration::ZERO);
            controller.move_order.queue_waiting(key);
        }
        IndexEvent::Pods { config: key, harmed } => {
            let config = controller.index.config(key);
            let wait = pod_event_wait(config.as_deref(), controller.index.count_users(key));
            if *harmed && config.is_some_and(|config| is_moved(&config)) {
                queue.add_urgent(key.clone(), wait);
            } else {
                queue.add(key.clone(), wait);
            }
        }
        IndexEvent::ConfigGone(key, config) => {
            controller.move_order.queue_waiting(key);
            deleted.add(key, config);
            // A reconcile deletes its versions.
            queue.add(key.clone(), Duration::ZERO);
        }
    }
}

/// Returns how long changes of a config's pods are collected: a reconcile with many pods takes longer, and one pod of
/// ten thousand says less.
fn pod_event_wait(config: Option<&VersionedConfig>, pods: usize) -> Duration {
    let moves = config.and_then(|config| config.status.as_ref()).is_some_and(|status| status.rollout.stage.is_some());
    let shortest = if moves { MOVING_POD_CHANGES_DELAY } else { POD_CHANGES_DELAY };
    let by_pods = Duration::from_micros(u64::try_from(pods).unwrap_or(u64::MAX).saturating_mul(100));
    shortest.max(by_pods).min(POD_CHANGES_DELAY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(stage: Option<&str>) -> VersionedConfig {
        let config = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {},
            "status": {"currentVersion": "2", "rollout": {"stage": stage}},
        });
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn changes_of_many_pods_are_collected_for_a_second() {
        let (moving, still) = (config(Some("Moving")), config(None));
        let wait = |config, pods| pod_event_wait(Some(config), pods).as_millis();
        assert_eq!(
            [0, 10, 1000, 5000, 10_000, 12_000].map(|pods| wait(&moving, pods)),
            [100, 100, 100, 500, 1000, 1000]
        );
        assert_eq!([0, 10_000].map(|pods| wait(&still, pods)), [1000, 1000]);
        assert_eq!(pod_event_wait(None, 0), POD_CHANGES_DELAY);
    }
}
