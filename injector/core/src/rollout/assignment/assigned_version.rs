//! The version that a pod should run: a function of the config's status and the pod's identity. Every replica computes
//! the same version, and no list of pods is stored.
//!
//! Steps move most pods. Pods whose processes take another version only by a restart should run the version that
//! workloads are restarted with: the current version until the end of the bake. Only a new pod brings another version.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nudge_api::{RolloutStage, VersionedConfigStatus};

use super::subject::pod_number;
use super::thresholds::{ALL, PodPlace, is_below};
use crate::identity::Identity;
use crate::injection::is_updated_by_rollout;
use crate::keys::PodUid;
use crate::owners::WorkloadId;
use crate::pods::PodState;

/// Returns the version that the pod should run.
pub fn assigned_version<'a>(status: &'a VersionedConfigStatus, identity: Identity, pod: &PodState) -> Option<&'a str> {
    if pod.is_by_restart() {
        version_to_publish(status)
    } else {
        version_by_number(status, identity, &pod.uid, pod.workload.as_ref(), &pod.labels)
    }
}

/// Returns the version that steps assign to the pod: the target if the pod's number is below its threshold, and else
/// the current version.
pub fn version_by_number<'a>(
    status: &'a VersionedConfigStatus,
    identity: Identity,
    pod_uid: &PodUid,
    workload: Option<&WorkloadId>,
    labels: &BTreeMap<String, String>,
) -> Option<&'a str> {
    // Most of the time nothing moves.
    if status.target_version.is_none() {
        return status.current_version.as_deref();
    }
    version_of_place(status, PodPlace { number: pod_number(identity, pod_uid), workload, labels })
}

/// Returns the version for the pod with this place in the order.
pub(in crate::rollout) fn version_of_place<'a>(
    status: &'a VersionedConfigStatus,
    place: PodPlace<'_>,
) -> Option<&'a str> {
    let moved = is_below(&status.internal, place);
    status.target_version.as_deref().filter(|_| moved).or(status.current_version.as_deref())
}

/// Returns the version that the published ConfigMap should hold: the current version, and from the end of the bake on
/// the target.
pub fn version_to_publish(status: &VersionedConfigStatus) -> Option<&str> {
    match (status.rollout.stage, &status.target_version) {
        (Some(RolloutStage::Restarting), Some(target)) => Some(target),
        _ => status.current_version.as_deref(),
    }
}

/// Returns the version that the hub will assign to a pod that is being admitted. The pod's uid is not always known by
/// then. Without a uid, the pod gets the target only if all pods of its workload have it, since only the current
/// version is proven.
pub fn version_for_new_pod<'a>(
    status: &'a VersionedConfigStatus,
    identity: Identity,
    pod: &ObjectMeta,
) -> Option<&'a str> {
    if is_updated_by_rollout(pod) {
        return version_to_publish(status);
    }
    let workload = WorkloadId::of(pod);
    let workload = workload.as_ref();
    let labels = pod.labels.clone().unwrap_or_default();
    if let Some(uid) = pod.uid.as_deref().and_then(PodUid::new) {
        return version_by_number(status, identity, &uid, workload, &labels);
    }
    let last = u32::try_from(ALL - 1).unwrap_or(u32::MAX);
    version_of_place(status, PodPlace { number: last, workload, labels: &labels })
}

#[cfg(test)]
mod tests {
    use nudge_api::{InternalStatus, RolloutStage, WorkloadThreshold};
    use serde_json::json;

    use super::*;
    use crate::pods::{PodState, UpdateMode};

    fn config() -> Identity {
        Identity::of_uid("uid")
    }

    fn uid(uid: &str) -> PodUid {
        PodUid::new(uid).unwrap()
    }

    fn status(target: Option<&str>, threshold: u64) -> VersionedConfigStatus {
        VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            target_version: target.map(str::to_owned),
            internal: InternalStatus { revision: 1, threshold, ..InternalStatus::default() },
            ..VersionedConfigStatus::default()
        }
    }

    #[test]
    fn the_threshold_divides_the_pods() {
        let share = |status: &VersionedConfigStatus, workload: &str| {
            (0..1000)
                .filter(|n| {
                    version_by_number(
                        status,
                        config(),
                        &uid(&format!("pod-{n}")),
                        Some(&workload.into()),
                        &BTreeMap::new(),
                    ) == Some("2")
                })
                .count()
        };
        assert_eq!(share(&status(Some("2"), 0), "Deployment/web"), 0);
        assert_eq!(share(&status(Some("2"), ALL), "Deployment/web"), 1000);
        let mut quarter = status(Some("2"), 1 << 30);
        assert!((200..300).contains(&share(&quarter, "Deployment/web")));
        quarter.internal.workloads = vec![WorkloadThreshold { workload: "Deployment/api".to_owned(), threshold: 0 }];
        assert!((200..300).contains(&share(&quarter, "Deployment/web")) && share(&quarter, "Deployment/api") == 0);
    }

    #[test]
    fn without_a_target_all_run_the_current_version() {
        let none = status(None, ALL);
        assert_eq!(
            version_by_number(&none, config(), &uid("pod"), Some(&"Deployment/web".into()), &BTreeMap::new()),
            Some("1")
        );
    }

    #[test]
    fn a_newborn_gets_the_target_when_it_would_be_assigned_to_it() {
        let pod = |uid: Option<&str>| -> ObjectMeta {
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d", "uid": "r", "controller": true});
            let labels = json!({"pod-template-hash": "7d"});
            serde_json::from_value(json!({"uid": uid, "labels": labels, "ownerReferences": [owner]})).unwrap()
        };
        let version = |threshold, uid: Option<&str>| {
            version_for_new_pod(&status(Some("2"), threshold), config(), &pod(uid)).map(str::to_owned)
        };
        assert_eq!(version(1 << 31, None).as_deref(), Some("1"));
        assert_eq!(version(ALL - 1, None).as_deref(), Some("1"));
        assert_eq!(version(ALL, None).as_deref(), Some("2"));
        for uid in (0..100).map(|number| format!("pod-{number}")) {
            let status = status(Some("2"), 1 << 31);
            let labels = pod(None).labels.unwrap();
            let expected =
                version_by_number(&status, config(), &self::uid(&uid), Some(&"Deployment/web".into()), &labels);
            assert_eq!(version(1 << 31, Some(&uid)).as_deref(), expected);
        }
    }

    #[test]
    fn a_pod_that_takes_versions_by_restarts_is_assigned_the_target_when_workloads_are_restarted() {
        let mut status = status(Some("2"), ALL);
        let moved = PodState { workload: Some("Deployment/web".into()), ..PodState::default() };
        let by_restart = PodState { update_mode: UpdateMode::ByRestart, ..moved.clone() };
        for (stage, version) in [
            (RolloutStage::Moving, "1"),
            (RolloutStage::Baking, "1"),
            (RolloutStage::Restarting, "2"),
            (RolloutStage::RollingBack, "1"),
        ] {
            status.rollout.stage = Some(stage);
            assert_eq!(assigned_version(&status, config(), &by_restart), Some(version), "{stage:?}");
            assert_eq!(assigned_version(&status, config(), &moved), Some("2"));
        }
    }
}
