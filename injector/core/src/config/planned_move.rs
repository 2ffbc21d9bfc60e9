//! The move of a config's pods to a version, as far as it can be foreseen.

use nudge_api::VersionedConfig;

use super::gated_version::override_reason;
use crate::rollout::{Now, PlannedStep, Subject, planned_at_once, planned_steps};

/// The move of pods to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedMove {
    /// The version is current, and no pod moves.
    Nothing,
    /// The version is the first one, so it is current at once.
    First,
    /// Pods go back to the version that was current before, or leave another version for the current one: all at once,
    /// and nothing judges that.
    Return,
    /// An override assigns the version to all pods at once.
    AtOnce(PlannedStep),
    /// Pods move in steps.
    Steps(Vec<PlannedStep>),
}

impl PlannedMove {
    /// Returns the move to the version if it begins now.
    pub fn of(config: &VersionedConfig, version: &str, pods: &[Subject], now: Now<'_>) -> Self {
        let Some(status) = &config.status else { return Self::First };
        let (spec, second) = (&config.spec.rollout, now.time.0.as_second());
        match status.current_version.as_deref() {
            None => Self::First,
            Some(current) if current == version && status.rollout.stage.is_none() => Self::Nothing,
            Some(current) if current == version || status.previous_version.as_deref() == Some(version) => Self::Return,
            Some(_) if override_reason(config, version, now).is_some() => {
                Self::AtOnce(planned_at_once(spec, pods, second))
            }
            Some(_) => Self::Steps(planned_steps(spec, pods, second)),
        }
    }

    /// Returns the steps of the move; none if all pods go back, or none moves.
    pub fn steps(&self) -> &[PlannedStep] {
        match self {
            Self::Nothing | Self::First | Self::Return => &[],
            Self::AtOnce(step) => std::slice::from_ref(step),
            Self::Steps(steps) => steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::rollout::SteadyTime;

    fn planned(spec: &Value, status: &Value, version: &str) -> PlannedMove {
        let config = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": spec, "status": status,
        }));
        let time = Time(Timestamp::from_second(1000).unwrap());
        PlannedMove::of(&config.unwrap(), version, &[], Now { time: &time, steady: SteadyTime(0) })
    }

    #[test]
    fn a_move_is_what_the_rollout_would_do() {
        let at_rest = json!({"currentVersion": "2", "previousVersion": "1"});
        let moving = json!({"currentVersion": "2", "targetVersion": "3", "rollout": {"stage": "Moving"}});
        let plain = json!({});
        assert_eq!(planned(&plain, &Value::Null, "1"), PlannedMove::First);
        assert_eq!(planned(&plain, &at_rest, "2"), PlannedMove::Nothing);
        assert_eq!(planned(&plain, &at_rest, "1"), PlannedMove::Return);
        assert_eq!(planned(&plain, &moving, "2"), PlannedMove::Return, "pods leave version 3");
        assert_eq!(planned(&plain, &at_rest, "3").steps().len(), 4);
        let until = Timestamp::from_second(2000).unwrap().to_string();
        let overridden = json!({"version": "3", "reason": "leaked key", "untilTime": until});
        let at_once = json!({"version": "3", "rollout": {"override": overridden}});
        assert!(matches!(planned(&at_once, &at_rest, "3"), PlannedMove::AtOnce(_)));
        assert!(matches!(planned(&at_once, &at_rest, "4"), PlannedMove::Steps(_)));
    }
}
