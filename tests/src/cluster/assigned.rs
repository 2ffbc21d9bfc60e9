//! The version that a pod is assigned, read from the config's status as ARCHITECTURE.md ("Rollout") describes it.

use std::collections::BTreeMap;

use nudge_api::VersionedConfigStatus;
use ring::digest::{SHA256, digest};

/// The threshold below which every pod is.
pub const ALL: u64 = 1 << 32;

/// Returns the number that the thresholds are compared with: the first 32 bits of SHA-256(identity ‖ pod uid). The
/// identity is written like the uid of a config that was not restored, and is that uid.
pub fn pod_number(config_uid: &str, pod_uid: &str) -> u32 {
    let hash = digest(&SHA256, [config_uid, pod_uid].concat().as_bytes());
    hash.as_ref().iter().take(4).fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Returns the target for a pod below the threshold of its workload, or below that of a selector that matches its
/// labels; otherwise the current version. A workload without its own threshold has that of the config.
pub fn assigned<'a>(
    status: &'a VersionedConfigStatus,
    config_uid: &str,
    pod_uid: &str,
    workload: &str,
    labels: &BTreeMap<String, String>,
) -> Option<&'a str> {
    let (internal, number) = (&status.internal, u64::from(pod_number(config_uid, pod_uid)));
    let workload_threshold =
        internal.workloads.iter().find(|workload_threshold| workload_threshold.workload == workload);
    let selected = internal.selectors.iter().any(|one| {
        number < one.threshold && one.selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    });
    let below = selected
        || number < workload_threshold.map_or(internal.threshold, |workload_threshold| workload_threshold.threshold);
    status.target_version.as_deref().filter(|_| below).or(status.current_version.as_deref())
}
