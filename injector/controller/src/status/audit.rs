//! The audit trail of releases: lines with target `audit`, which no log level switches off. Admission writes the
//! requests.

use nudge_api::{Reason, Release, ReleaseOutcome, VersionedConfigStatus};
use nudge_core::keys::ConfigKey;
use nudge_core::rollout::{new_releases, newly_ended_releases};

/// Writes one line for each release that begins or ends with this change of the status.
pub(super) fn write_lines(key: &ConfigKey, before: &VersionedConfigStatus, after: &VersionedConfigStatus) {
    for release in new_releases(&before.releases, &after.releases) {
        let Release { version, from_version, requested_by, request_time, unverified_managers, .. } = release;
        tracing::info!(
            target: "audit",
            namespace = key.namespace,
            config = %key.name,
            version,
            from = from_version.as_deref(),
            requested_by = requested_by.as_deref(),
            requested_at = request_time.as_ref().map(|time| time.0.to_string()),
            unverified_managers = (!unverified_managers.is_empty()).then(|| unverified_managers.join(", ")),
            "release began"
        );
    }
    for release in newly_ended_releases(&before.releases, &after.releases) {
        let Release { version, from_version, requested_by, outcome, reason, start_time, overridden, .. } = release;
        let overridden = overridden.as_ref();
        tracing::info!(
            target: "audit",
            namespace = key.namespace,
            config = %key.name,
            version,
            from = from_version.as_deref(),
            requested_by = requested_by.as_deref(),
            overridden_by = overridden.and_then(|overridden| overridden.requested_by.as_deref()),
            override_reason = overridden.map(|overridden| overridden.reason.as_str()),
            outcome = outcome.map(ReleaseOutcome::as_str),
            reason = reason.map(Reason::as_str),
            began_at = %start_time.0,
            "release ended"
        );
    }
}
