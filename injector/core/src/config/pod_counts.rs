//! The number of pods that run the version that the config moves to.

use nudge_api::{PodCounts, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::VersionName;

use crate::rollout::{Subjects, Thresholds, version_to_publish};

/// Counts the pods of a config.
pub(super) fn pod_counts(config: &VersionedConfig, status: &VersionedConfigStatus, pods: &Subjects) -> PodCounts {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let thresholds = status.target_version.as_deref().map(|target| (target, Thresholds::from_status(&status.internal)));
    let current = status.current_version.as_deref();
    let published = version_to_publish(status);
    let goal = final_version(status);
    let mut counts = PodCounts::default();
    let mut count = |assigned: Option<&str>, running: Option<&str>, ready: bool, failed: bool| {
        counts.total += 1;
        counts.on_target += u32::from(goal.is_some() && running == goal);
        counts.ready += u32::from(ready && assigned.is_some() && running == assigned);
        counts.failed += u32::from(failed);
    };
    for pod in pods.by_steps() {
        let target = thresholds.as_ref().filter(|(_, thresholds)| thresholds.is_assigned(pod));
        let assigned = target.map(|(target, _)| *target).or(current);
        count(assigned, pod.runs.as_deref(), pod.is_ready(), pod.failure.is_some());
    }
    for pod in pods.by_restart() {
        count(published, pod.runs(name).map(VersionName::as_str), pod.is_ready(), pod.failure(name).is_some());
    }
    counts.summary = format!("{}/{}", counts.on_target, counts.total);
    counts
}

/// Returns the version that pods should run in the end: the target, or the current version if nothing moves or pods
/// leave the target.
fn final_version(status: &VersionedConfigStatus) -> Option<&str> {
    let leaves_target = matches!(
        status.rollout.stage,
        Some(RolloutStage::Leaving | RolloutStage::Returning | RolloutStage::RollingBack)
    );
    let target = status.target_version.as_deref().filter(|_| !leaves_target);
    target.or(status.current_version.as_deref())
}
