//! What a pod is told to run, and is counted for. Most pods are moved by the batches. Those whose processes take another version by a restart
//! alone are not: they are to run what workloads are restarted with, which is the current version until the end of the bake, and nothing but
//! a new pod brings it to them. Pure.

use nudge_api::VersionedConfigStatus;

use super::{assigned, to_publish};
use crate::pods::PodState;

/// The version that the pod is to run.
pub fn told<'a>(status: &'a VersionedConfigStatus, config_uid: &str, pod: &PodState) -> Option<&'a str> {
    if pod.by_restart { to_publish(status) } else { assigned(status, config_uid, pod.uid.as_str(), &pod.workload) }
}

/// Whether a process that was born with one of these versions has what it would have with the other.
pub fn is_same(status: &VersionedConfigStatus, one: &str, other: &str) -> bool {
    let digests = |version: &str| {
        let parts = &status.version(version)?.parts;
        Some(parts.iter().map(|part| (part.kind, part.digest.as_str())).collect::<Vec<_>>())
    };
    one == other || digests(one).is_some_and(|one| Some(one) == digests(other))
}

#[cfg(test)]
mod tests {
    use nudge_api::RolloutStage;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_takes_versions_by_restarts_is_told_the_target_when_workloads_are_restarted() {
        let mut status: VersionedConfigStatus = serde_json::from_value(json!({
            "current": "1", "target": "2", "rollout": {"groups": [{"workload": "Deployment/web", "threshold": 1_u64 << 32}]},
        }))
        .unwrap();
        let moved = PodState { workload: "Deployment/web".to_owned(), ..PodState::default() };
        let by_restart = PodState { by_restart: true, ..moved.clone() };
        for (stage, version) in [
            (RolloutStage::Moving, "1"),
            (RolloutStage::Baking, "1"),
            (RolloutStage::Restarting, "2"),
            (RolloutStage::RollingBack, "1"),
        ] {
            status.rollout.stage = Some(stage);
            assert_eq!(told(&status, "uid", &by_restart), Some(version), "{stage:?}");
            assert_eq!(told(&status, "uid", &moved), Some("2"));
        }
    }

    #[test]
    fn the_same_parts_are_the_same() {
        let version = |name: &str, kind: &str, digest: &str| {
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1,
                "parts": [{"kind": kind, "name": format!("shop-{name}"), "uid": name, "digest": digest}]})
        };
        let versions = [
            version("1", "ConfigMap", "a"),
            version("2", "ConfigMap", "a"),
            version("3", "ConfigMap", "b"),
            version("4", "Secret", "a"),
        ];
        let status: VersionedConfigStatus = serde_json::from_value(json!({"versions": versions})).unwrap();
        let same = ["1", "2", "3", "4", "gone"].map(|other| is_same(&status, "1", other));
        assert_eq!(same, [true, true, false, false, false]);
        assert!(is_same(&status, "gone", "gone") && !is_same(&status, "gone", "away"));
    }
}
