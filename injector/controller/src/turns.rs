//! What a config waits for, by its spec and its status alone.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_core::rollout::ALL;

/// How long changes of pods are collected before a reconcile, at least: the same for each pod of a rollout, which waits for their reports.
const PODS: Duration = Duration::from_secs(1);
const MOVING_PODS: Duration = Duration::from_millis(100);

/// Whether it may begin to move now.
pub(super) fn may_begin(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let requested = config.spec.version.as_ref();
    status.rollout.stage.is_none()
        && status.current_version.is_some()
        && requested.is_some()
        && requested != status.current_version.as_ref()
}

/// Whether its pods are to return, or all of them are to get a version now: a brake, which needs nothing to be known but the config.
pub(super) fn is_brake(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let (requested, rollout) = (config.spec.version.as_ref(), &status.rollout);
    let forward = matches!(rollout.stage, Some(RolloutStage::Moving | RolloutStage::Baking | RolloutStage::Restarting));
    let overridden = config.spec.rollout.overridden.as_ref().zip(requested);
    let now = overridden.is_some_and(|(it, requested)| it.assigns(requested, Timestamp::now()));
    let steps = rollout.stage == Some(RolloutStage::Moving) && status.internal.threshold < ALL;
    (requested.is_some() && requested == status.previous_version.as_ref())
        || (forward && requested != status.target_version.as_ref())
        || (now && (may_begin(config) || steps))
}

/// Whether it goes before all others: its pods are to return, or do.
pub(super) fn goes_first(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(goes_back) || is_brake(config)
}

/// Whether its pods return to another version.
pub(super) fn goes_back(status: &VersionedConfigStatus) -> bool {
    matches!(status.rollout.stage, Some(RolloutStage::RollingBack | RolloutStage::Leaving | RolloutStage::Returning))
}

/// Whether its move lets others pass, and may go on now.
pub(super) fn yields(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.internal.yields)
}

/// Whether it is being moved, or may begin to move now.
pub(super) fn is_moved(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) || may_begin(config)
}

/// Whether it is being moved, and holds others up.
pub(super) fn moves_now(status: &VersionedConfigStatus) -> bool {
    status.rollout.stage.is_some() && !status.internal.yields
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::SignedDuration;
    use nudge_api::Override;
    use serde_json::json;

    use super::*;

    fn config(stage: Option<&str>, requested: &str) -> VersionedConfig {
        let target = stage.map(|_| "3");
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"version": requested},
            "status": {
                "currentVersion": "2", "previousVersion": "1", "targetVersion": target, "rollout": {"stage": stage}},
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
            (Some("Returning"), "3", true),
        ] {
            assert_eq!(goes_first(&config(stage, requested)), first, "{stage:?} {requested}");
        }
        let now = |until: Timestamp| {
            let (version, reason) = ("3".to_owned(), "it is urgent".to_owned());
            let mut config = config(None, "3");
            config.spec.rollout.overridden = Some(Override { version, reason, until_time: Time(until) });
            config
        };
        let hour = SignedDuration::from_hours(1);
        assert!(goes_first(&now(Timestamp::now() + hour)));
        assert!(!goes_first(&now(Timestamp::now() - hour)), "it has expired");
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
