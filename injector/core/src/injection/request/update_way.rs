//! The ways for a container to take another version, as `notify` says: its agent notifies the container, or a rolling
//! update of the workload brings the version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_protocol::expectation::Expectation;
use nudge_protocol::{KeyPattern, Notify};

use super::annotations::{KEYS, NOTIFY, VARIABLES, VERIFY, WEBHOOK, of_container};
use crate::injection::annotation_values;

/// The value for pods that take another version only by a rolling update of their workload.
pub(super) const ROLLOUT: &str = "rollout";

/// The way for a container to take another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateWay {
    /// The agent brings the version: by a signal or a webhook, by a restart in place, or not at all.
    Agent(Notify),
    /// A rolling update of the workload brings the version, to all containers of the pod.
    Rollout,
}

/// Reads the annotation's value.
pub(super) fn parse_way(text: &str) -> Result<UpdateWay, String> {
    if text == ROLLOUT {
        return Ok(UpdateWay::Rollout);
    }
    text.parse().map(UpdateWay::Agent).map_err(|_| format!("choose one of {}, {ROLLOUT}", Notify::ALLOWED))
}

/// Returns whether pods with this metadata take another version only by a rolling update of the workload: one container
/// that requests this decides for its whole pod.
pub fn is_updated_by_rollout(meta: &ObjectMeta) -> bool {
    let is_notify = |name: &str| name == NOTIFY || of_container(name, NOTIFY).is_some();
    meta.annotations.iter().flatten().any(|(name, value)| value == ROLLOUT && is_notify(name))
}

/// Returns how a container takes another version, as the annotations of its pod say; `None` if they do not say it.
pub fn stated_way(meta: &ObjectMeta, container: &str) -> Option<UpdateWay> {
    let annotations = meta.annotations.as_ref()?;
    let of_container = |base: &str| annotations.get(&format!("{base}.{container}"));
    // A container with a webhook is notified by it, and a container with variables from a config is restarted in place.
    if of_container(WEBHOOK).is_some() {
        return Some(UpdateWay::Agent(Notify::Webhook));
    }
    if of_container(VARIABLES).is_some() {
        return Some(UpdateWay::Agent(Notify::InPlace));
    }
    of_container(NOTIFY).or_else(|| annotations.get(NOTIFY)).and_then(|text| parse_way(text).ok())
}

/// Returns the keys that a container is notified of, as the annotations of its pod say; `None` if it is notified of
/// all.
pub fn stated_keys(meta: &ObjectMeta, container: &str) -> Option<Vec<KeyPattern>> {
    annotation_values::key_patterns(meta.annotations.as_ref()?.get(&format!("{KEYS}.{container}"))?).ok()
}

/// Returns what a container must show after its notification, as the annotations of its pod say.
pub(in crate::injection) fn stated_expectation(meta: &ObjectMeta, container: &str) -> Option<Expectation> {
    meta.annotations.as_ref()?.get(&format!("{VERIFY}.{container}"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use nudge_protocol::NotifySignal;

    use super::*;

    #[test]
    fn the_values_are_those_of_the_agent_and_rollout() {
        assert_eq!(parse_way("rollout"), Ok(UpdateWay::Rollout));
        for (text, notify) in [
            ("none", Notify::None),
            ("in-place", Notify::InPlace),
            ("webhook", Notify::Webhook),
            ("SIGHUP", Notify::Signal(NotifySignal::Hup)),
        ] {
            assert_eq!(parse_way(text), Ok(UpdateWay::Agent(notify)));
        }
        for bad in ["", "restart", "true", "Rollout", "SIGKILL"] {
            let allowed = parse_way(bad).unwrap_err();
            assert_eq!(allowed, "choose one of SIGUSR1, SIGUSR2, SIGHUP, webhook, in-place, none, rollout", "{bad}");
        }
    }

    #[test]
    fn one_container_decides_for_its_pod() {
        let of = |annotations: &[(&str, &str)]| {
            let annotations =
                annotations.iter().map(|(name, value)| (format!("nudge.dev/{name}"), (*value).to_owned()));
            is_updated_by_rollout(&ObjectMeta { annotations: Some(annotations.collect()), ..ObjectMeta::default() })
        };
        assert!(of(&[("notify", "rollout")]) && of(&[("notify.app", "rollout")]));
        assert!(
            of(&[("notify", "none"), ("notify.app", "rollout")])
                && of(&[("notify", "rollout"), ("notify.app", "none")])
        );
        assert!(
            !is_updated_by_rollout(&ObjectMeta::default())
                && !of(&[])
                && !of(&[("notify", "in-place"), ("notify.app", "none")])
        );
        assert!(
            !of(&[("notify.nudge-agent", "rollout")]) && !of(&[("notifyx", "rollout")]) && !of(&[("ack", "rollout")])
        );
    }
}
