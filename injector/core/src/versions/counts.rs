//! How many pods run the version that is assigned to them.

use nudge_api::{PodCounts, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::VersionName;

use crate::rollout::{Subjects, Thresholds, to_publish};

/// Counts the pods of a config.
pub(super) fn pod_counts(config: &VersionedConfig, status: &VersionedConfigStatus, pods: &Subjects) -> PodCounts {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let thresholds = status.target.as_deref().map(|target| (target, Thresholds::stored(&status.rollout)));
    let (current, published) = (status.current.as_deref(), to_publish(status));
    let mut counts = PodCounts::default();
    let mut count = |assigned: Option<&str>, runs: Option<&str>, ready: bool, failed: bool| {
        counts.total += 1;
        if assigned.is_some() && runs == assigned {
            counts.updated += 1;
            counts.ready += u32::from(ready);
        }
        counts.failed += u32::from(failed);
    };
    for pod in pods.moved() {
        let target = thresholds.as_ref().filter(|(_, thresholds)| thresholds.is_assigned(pod));
        let assigned = target.map(|(target, _)| *target).or(current);
        count(assigned, pod.runs.as_deref(), pod.ready, pod.failure.is_some());
    }
    for pod in pods.by_restart() {
        count(published, pod.runs(name).map(VersionName::as_str), pod.ready, pod.failure().is_some());
    }
    counts.summary = format!("{}/{}", counts.updated, counts.total);
    counts
}
