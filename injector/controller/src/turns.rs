//! What a config waits for, by its spec and its status alone.

use std::time::Duration;

use nudge_api::{RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_core::rollout::ALL;

/// How long changes of pods are collected before a reconcile, at least: the same for each pod of a rollout, which waits for their reports.
const PODS: Duration = Duration::from_secs(1);
const MOVING_PODS: Duration = Duration::from_millis(100);

/// Whether it may begin to move now.
pub(super) fn may_begin(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let requested = config.spec.current.as_ref();
    status.rollout.stage.is_none()
        && status.current.is_some()
        && requested.is_some()
        && requested != status.current.as_ref()
}

/// Whether its pods are to return, or all of them are to get a version now: a brake, which needs nothing to be known but the config.
pub(super) fn is_brake(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let (requested, rollout) = (config.spec.current.as_ref(), &status.rollout);
    let forward = matches!(rollout.stage, Some(RolloutStage::Moving | RolloutStage::Baking | RolloutStage::Restarting));
    let now = config.spec.rollout.overridden.as_ref().is_some_and(|now| Some(&now.version) == requested);
    let steps = rollout.stage == Some(RolloutStage::Moving) && rollout.threshold < ALL;
    (requested.is_some() && requested == status.previous.as_ref())
        || (forward && requested != status.target.as_ref())
        || (now && (may_begin(config) || steps))
}

/// Whether it goes before all others: its pods are to return, or do.
pub(super) fn goes_first(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(goes_back) || is_brake(config)
}

/// Whether its pods return to another version.
pub(super) fn goes_back(status: &VersionedConfigStatus) -> bool {
    matches!(status.rollout.stage, Some(RolloutStage::RollingBack | RolloutStage::Leaving))
}

/// Whether its move lets others pass, and may go on now.
pub(super) fn yields(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.yields)
}

/// Whether it is being moved, or may begin to move now.
pub(super) fn is_moved(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) || may_begin(config)
}

/// Whether it is being moved, and holds others up.
pub(super) fn moves_now(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage.is_some() && !status.rollout.yields
}

/// How long changes of its pods are collected: a look at many of them takes longer, and a pod of ten thousand says less.
pub(super) fn collects(config: Option<&VersionedConfig>, pods: usize) -> Duration {
    let moves = config.and_then(|config| config.status.as_ref()).is_some_and(|status| status.rollout.stage.is_some());
    let least = if moves { MOVING_PODS } else { PODS };
    let each = Duration::from_micros(u64::try_from(pods).unwrap_or(u64::MAX).saturating_mul(100));
    least.max(each).min(PODS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(stage: Option<&str>, requested: &str) -> VersionedConfig {
        let target = stage.map(|_| "3");
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"current": requested},
            "status": {"current": "2", "previous": "1", "target": target, "rollout": {"stage": stage}},
        }))
        .unwrap()
    }

    #[test]
    fn what_goes_back_goes_first() {
        for (stage, requested, first) in [
            (None, "2", false),
            (None, "3", false),
            (None, "1", true),
            (Some("Moving"), "3", false),
            (Some("Baking"), "3", false),
            (Some("Restarting"), "3", false),
            (Some("Moving"), "2", true),
            (Some("Restarting"), "1", true),
            (Some("RollingBack"), "3", true),
            (Some("Leaving"), "2", true),
        ] {
            assert_eq!(goes_first(&config(stage, requested)), first, "{stage:?} {requested}");
        }
        let mut now = config(None, "3");
        now.spec.rollout.overridden =
            serde_json::from_value(json!({"version": "3", "reason": "it is urgent"})).unwrap();
        assert!(goes_first(&now));
        assert!(!goes_first(&VersionedConfig::new("new", nudge_api::VersionedConfigSpec::default())));
    }

    #[test]
    fn many_pods_are_looked_at_once_a_second() {
        let (moving, still) = (config(Some("Moving"), "3"), config(None, "2"));
        let wait = |config, pods| collects(Some(config), pods).as_millis();
        assert_eq!(
            [0, 10, 1000, 5000, 10_000, 12_000].map(|pods| wait(&moving, pods)),
            [100, 100, 100, 500, 1000, 1000]
        );
        assert_eq!([0, 10_000].map(|pods| wait(&still, pods)), [1000, 1000]);
        assert_eq!(collects(None, 0), PODS);
    }
}
