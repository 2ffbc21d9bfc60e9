//! The status of a config in an export, and how a new object takes it over.
//!
//! An export keeps every field that decides which version a pod has: current, previous and target version, and
//! `status.internal` (identity, thresholds and revision). It drops the fields that follow from the state of the cluster
//! (conditions, numbers of pods).

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{PartKind, PodCounts, VersionedConfigStatus};
use nudge_core::config::importing_status;

/// Uids of objects by kind and name.
pub(crate) type Uids = HashMap<(PartKind, String), String>;

/// Returns the status as an export has it.
pub(crate) fn exported_status(mut status: VersionedConfigStatus) -> VersionedConfigStatus {
    status.conditions.clear();
    status.invalid.clear();
    status.pods = PodCounts::default();
    status.observed_generation = None;
    status
}

/// Returns the status for an object of this `generation`. `uids` are the uids of the objects of its versions.
pub(crate) fn restored_status(
    mut status: VersionedConfigStatus,
    generation: Option<i64>,
    uids: &Uids,
    now: &Time,
) -> VersionedConfigStatus {
    for part in status.versions.iter_mut().flat_map(|version| &mut version.parts) {
        if let Some(uid) = uids.get(&(part.kind, part.name.clone())) {
            part.uid.clone_from(uid);
        }
    }
    importing_status(status, generation, now)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn status() -> VersionedConfigStatus {
        serde_json::from_value(json!({
            "currentVersion": "1", "previousVersion": "0", "targetVersion": "2",
            "pods": {"total": 4, "onTarget": 2, "ready": 2, "failed": 0, "summary": "2/4"}, "observedGeneration": 7,
            "versions": [{
                "version": "1", "state": "Current", "keys": 1, "bytes": 1,
                "parts": [{"kind": "ConfigMap", "name": "shop-1", "uid": "old", "digest": "sha256:1"},
                          {"kind": "Secret", "name": "shop-1", "uid": "old", "digest": "seal:1"}],
            }],
            "rollout": {
                "stage": "Moving", "step": 2,
                "failure": {"version": "2", "digest": "sha256:0", "reason": "PodNotReady", "message": "m"},
            },
            "conditions": [{"type": "Ready", "status": "False", "reason": "Progressing", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "internal": {
                "identity": "0af7651cd43b41d58e2f0123456789ab", "revision": 9, "threshold": 4096,
                "retired": [{"version": "0.9", "digests": ["sha256:0"]}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_says_which_pod_has_which_version_is_kept() {
        let before = status();
        let exported = exported_status(before.clone());
        assert_eq!((exported.conditions.len(), exported.pods.total, exported.observed_generation), (0, 0, None));
        let uids: Uids = [((PartKind::ConfigMap, "shop-1".to_owned()), "new".to_owned())].into();
        let now = Time(Timestamp::UNIX_EPOCH);
        let restored = restored_status(exported, Some(1), &uids, &now);
        assert_eq!(
            (
                &restored.internal,
                &restored.current_version,
                &restored.previous_version,
                &restored.target_version,
                &restored.rollout
            ),
            (
                &before.internal,
                &before.current_version,
                &before.previous_version,
                &before.target_version,
                &before.rollout
            )
        );
        let parts = &restored.versions[0].parts;
        assert_eq!((parts[0].uid.as_str(), parts[1].uid.as_str()), ("new", "old"));
        assert!(restored.conditions.iter().all(|condition| condition.reason == "Importing"));
    }
}
