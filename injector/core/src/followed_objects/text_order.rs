//! The order of texts that change together: their configs are moved in the order in which their pods name them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_api::{ConditionType, Reason, VersionedConfig, VersionedConfigStatus, find_condition};
use nudge_protocol::ConfigName;

use super::text_version::TEXT_DEBOUNCE;

/// The maximum difference of the times at which texts settle that change together. Stored times are whole seconds.
const MAX_DIFFERENCE: SignedDuration = SignedDuration::from_secs(TEXT_DEBOUNCE.as_secs().cast_signed() + 1);
/// The maximum time that a config waits for another one to begin. The other may never be able to.
const MAX_WAIT: SignedDuration = SignedDuration::from_secs(10);
/// The time between two looks at a config that is about to begin.
pub const BEGINNING_INTERVAL: Duration = Duration::from_millis(250);

/// Another config of some pods of a config.
pub struct NeighbourConfig {
    /// The name of the config.
    pub name: ConfigName,
    /// The config.
    pub config: Arc<VersionedConfig>,
    /// The time at which its text settles, while the status does not record the version of this text.
    pub settle_time: Option<Timestamp>,
    /// Whether all pods that have both configs name it first.
    pub is_named_first: bool,
}

/// Returns the config whose text has changed together with that of this config, and which is about to move pods before
/// it.
pub fn text_to_go_first<'a>(
    config: &VersionedConfig,
    neighbours: &'a [NeighbourConfig],
    now: Timestamp,
) -> Option<&'a ConfigName> {
    let settle_time = text_settle_time(config)?;
    let last_end = |neighbour: &NeighbourConfig| {
        let release = neighbour.config.status.as_ref()?.releases.last()?;
        Some(release.end_time.as_ref()?.0)
    };
    // Until then, the text had not settled, or another config was moved.
    let free_time = neighbours.iter().filter_map(last_end).fold(settle_time, Timestamp::max);
    if now.duration_since(free_time) > MAX_WAIT {
        return None;
    }
    let is_together = |time: Timestamp| time.duration_since(settle_time).abs() <= MAX_DIFFERENCE;
    let is_about_to_move = |neighbour: &&NeighbourConfig| match neighbour.settle_time {
        Some(time) => is_together(time),
        None => text_settle_time(&neighbour.config).is_some_and(is_together) && is_about_to_begin(&neighbour.config),
    };
    let first = neighbours.iter().filter(|neighbour| neighbour.is_named_first).find(is_about_to_move);
    first.map(|neighbour| &neighbour.name)
}

/// Returns when the text settled, if the config follows it and should move pods to it.
fn text_settle_time(config: &VersionedConfig) -> Option<Timestamp> {
    let status = config.status.as_ref().filter(|status| status.rollout.stage.is_none())?;
    let text = status.internal.text.as_ref().filter(|_| config.spec.follows_text())?;
    let is_wish = config.requested_version() == Some(&*text.version);
    let is_new = status.current_version.as_ref().is_some_and(|current| *current != text.version);
    (is_wish && is_new).then_some(text.settle_time.0)
}

/// Returns whether nothing but another config keeps the text from going out, as far as is known.
fn is_about_to_begin(config: &VersionedConfig) -> bool {
    let is_decided = |status: &&VersionedConfigStatus| status.desired_version.as_deref() == config.requested_version();
    let Some(status) = config.status.as_ref().filter(is_decided) else { return true };
    let ready = find_condition(&status.conditions, ConditionType::Ready);
    // The parts of a version are read one after the other.
    let passing = [Reason::WaitingFor, Reason::VersionIncomplete, Reason::VersionMissing];
    ready.is_none_or(|ready| passing.iter().any(|reason| reason.as_str() == ready.reason))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn name(name: &str) -> ConfigName {
        ConfigName::new(name).unwrap()
    }

    /// A config whose text settled at this second, and which says this about it.
    fn config(settle_second: i64, reason: &str, change: &Value) -> VersionedConfig {
        let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut status = json!({"currentVersion": "1", "desiredVersion": "2", "conditions": [ready],
            "internal": {"text": {"version": "2", "settleTime": at(settle_second).to_string()}}});
        status.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": {"objects": ["ConfigMap"]}, "status": status,
        }))
        .unwrap()
    }

    /// Returns whether a config whose text settled at second 1000 waits for an earlier one.
    fn waits(earlier: VersionedConfig, settle_second: Option<i64>, second: i64) -> bool {
        let first = NeighbourConfig { settle_time: settle_second.map(at), ..neighbour("first", earlier) };
        text_to_go_first(&config(1000, "WaitingFor", &json!({})), &[first], at(second)).is_some()
    }

    fn neighbour(title: &str, config: VersionedConfig) -> NeighbourConfig {
        NeighbourConfig { name: name(title), config: Arc::new(config), settle_time: None, is_named_first: true }
    }

    #[test]
    fn texts_that_settle_together_go_in_the_order_of_the_pods() {
        for (settled, expected) in [(997, true), (1003, true), (996, false), (1004, false)] {
            assert_eq!(waits(config(settled, "WaitingFor", &json!({})), None, 1000), expected, "{settled}");
            let resting = config(1, "Current", &json!({"currentVersion": "2"}));
            assert_eq!(waits(resting, Some(settled), 1000), expected, "{settled}: it has not settled yet");
        }
    }

    #[test]
    fn a_text_that_may_not_begin_lets_others_pass() {
        for (reason, change, expected) in [
            ("WaitingFor", json!({}), true),
            ("VersionIncomplete", json!({}), true),
            ("Current", json!({"desiredVersion": "1"}), true),
            ("AwaitingApproval", json!({}), false),
            ("Unsettled", json!({}), false),
            ("VersionInvalid", json!({}), false),
            ("Failed", json!({}), false),
            ("WaitingFor", json!({"currentVersion": "2"}), false),
            ("WaitingFor", json!({"currentVersion": null}), false),
            ("Progressing", json!({"targetVersion": "2", "rollout": {"stage": "Moving"}}), false),
        ] {
            assert_eq!(waits(config(1000, reason, &change), None, 1000), expected, "{reason} {change}");
        }
        let mut named = config(1000, "WaitingFor", &json!({}));
        named.spec.version = Some("2".to_owned());
        assert!(!waits(named, None, 1000), "a version that is named is no text");
    }

    #[test]
    fn nothing_waits_for_long_after_nothing_moves() {
        assert!(waits(config(1000, "WaitingFor", &json!({})), None, 1010));
        assert!(!waits(config(1000, "WaitingFor", &json!({})), None, 1011));
        let release = |end: i64| json!({"releases": [{"version": "1", "startTime": at(900).to_string(), "endTime": at(end).to_string()}]});
        let moved = config(1000, "WaitingFor", &release(1300));
        assert!(waits(moved.clone(), None, 1310) && !waits(moved, None, 1311));
        // The one that was moved may come later in the order.
        let later =
            NeighbourConfig { is_named_first: false, ..neighbour("later", config(1, "Current", &release(1300))) };
        let neighbours = [later, neighbour("first", config(1000, "WaitingFor", &json!({})))];
        let own = config(1000, "WaitingFor", &json!({}));
        let is_waiting = |second| text_to_go_first(&own, &neighbours, at(second)).is_some();
        assert!(is_waiting(1310) && !is_waiting(1311));
        let open = config(1000, "WaitingFor", &json!({"releases": [{"version": "1", "startTime": at(1).to_string()}]}));
        assert!(!waits(open, None, 1011));
    }

    #[test]
    fn the_first_one_of_several_is_waited_for_and_a_version_that_is_named_waits_for_none() {
        let neighbours =
            [("later", "WaitingFor"), ("held", "OnHold"), ("first", "WaitingFor"), ("second", "WaitingFor")]
                .map(|(title, reason)| neighbour(title, config(1000, reason, &json!({}))));
        let [later, others @ ..] = neighbours;
        let neighbours: Vec<NeighbourConfig> =
            others.into_iter().chain([NeighbourConfig { is_named_first: false, ..later }]).collect();
        let mut own = config(1000, "WaitingFor", &json!({}));
        assert_eq!(text_to_go_first(&own, &neighbours, at(1000)), Some(&name("first")));
        own.spec.version = Some("2".to_owned());
        assert_eq!(text_to_go_first(&own, &neighbours, at(1000)), None);
    }
}
