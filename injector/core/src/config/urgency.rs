//! The decision about which configs overtake all others, because their pods are to return, or all are to get a version
//! now.

use k8s_openapi::jiff::Timestamp;
use nudge_api::{RolloutStage, VersionedConfig};

use super::move_predicates::may_begin;
use crate::rollout::ALL;

/// Returns whether the config is a brake: its pods must return, or all of them must get a version now. This follows
/// from the config and the time alone.
pub fn is_brake(config: &VersionedConfig, now: Timestamp) -> bool {
    let Some(status) = &config.status else { return false };
    let (requested, rollout) = (config.requested_version(), &status.rollout);
    let overridden = config.spec.rollout.overridden.as_ref().zip(requested);
    let assigns_all = overridden.is_some_and(|(overridden, requested)| overridden.assigns(requested, now));
    let has_steps_left = rollout.stage == Some(RolloutStage::Moving) && status.internal.threshold < ALL;
    (requested.is_some() && requested == status.previous_version.as_deref())
        || (rollout.is_forward() && requested != status.target_version.as_deref())
        || (assigns_all && (may_begin(config) || has_steps_left))
}

/// Returns whether the config overtakes all others: its pods return, or a brake is due.
pub fn is_urgent(config: &VersionedConfig, now: Timestamp) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.is_return()) || is_brake(config, now)
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
    fn what_goes_back_is_urgent() {
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
            assert_eq!(is_urgent(&config(stage, requested), Timestamp::UNIX_EPOCH), first, "{stage:?} {requested}");
        }
        let overridden = |until: Timestamp| {
            let (version, reason) = ("3".to_owned(), "it is urgent".to_owned());
            let mut config = config(None, "3");
            config.spec.rollout.overridden = Some(Override { version, reason, until_time: Time(until) });
            config
        };
        let hour = SignedDuration::from_hours(1);
        assert!(is_urgent(&overridden(Timestamp::UNIX_EPOCH + hour), Timestamp::UNIX_EPOCH));
        assert!(!is_urgent(&overridden(Timestamp::UNIX_EPOCH - hour), Timestamp::UNIX_EPOCH), "it has expired");
        let new = VersionedConfig::new("new", nudge_api::VersionedConfigSpec::default());
        assert!(!is_urgent(&new, Timestamp::UNIX_EPOCH));
    }
}
