//! How many pods run the version that is assigned to them.

use std::sync::Arc;

use nudge_api::{PodCounts, VersionedConfig, VersionedConfigStatus};
use nudge_protocol::VersionName;

use crate::identity::Identity;
use crate::pods::PodState;
use crate::rollout::assigned_version;

/// Counts the pods of a config.
pub(super) fn pod_counts(
    config: &VersionedConfig,
    status: &VersionedConfigStatus,
    pods: &[Arc<PodState>],
) -> PodCounts {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let identity = Identity::of(config);
    let mut counts = PodCounts::default();
    for pod in pods.iter().filter(|pod| !pod.terminating && !pod.finished) {
        counts.total += 1;
        let assigned = assigned_version(status, identity, pod);
        if assigned.is_some() && pod.runs(name).map(VersionName::as_str) == assigned {
            counts.updated += 1;
            counts.ready += u32::from(pod.ready);
        }
        counts.failed += u32::from(pod.failure().is_some());
    }
    counts.summary = format!("{}/{}", counts.updated, counts.total);
    counts
}
