//! The smallest status that carries a decision, for the case that the API server refuses the whole one.
//!
//! The status is where the assignment of pods stands, so a text that somebody wrote, or an admission policy of the cluster, must not keep a
//! bad version from its way back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, InternalStatus, Reason, RolloutStatus, VersionedConfigStatus, condition, find_condition,
    set_condition,
};

/// What `decided` changes of `stored`, which the API server has accepted: what pods are assigned, which versions are in use, and the conditions,
/// one of which says why the rest is missing. All else stays as it is stored.
pub fn smallest(
    stored: &VersionedConfigStatus,
    decided: &VersionedConfigStatus,
    cause: &str,
    now: &Time,
) -> VersionedConfigStatus {
    let mut versions = decided.versions.clone();
    versions.retain(|version| decided.holds(&version.version) || stored.version(&version.version).is_some());
    let mut status = VersionedConfigStatus {
        versions,
        invalid: stored.invalid.clone(),
        releases: stored.releases.clone(),
        rollout: RolloutStatus { watch: None, evidence: None, ..decided.rollout.clone() },
        internal: InternalStatus {
            retired: stored.internal.retired.clone(),
            background: stored.internal.background.clone(),
            ..decided.internal.clone()
        },
        ..decided.clone()
    };
    let message = format!(
        "releases, versions that are not in use and other details are left out, because the API server refused them: {cause}"
    );
    let generation = status.observed_generation;
    // It keeps its time.
    status.conditions.extend(find_condition(&stored.conditions, ConditionType::StatusComplete).cloned());
    set_condition(
        &mut status.conditions,
        condition(ConditionType::StatusComplete, false, Reason::StatusRefused, message, generation, now),
    );
    status
}

#[cfg(test)]
mod tests {
    use nudge_api::{Release, RetiredVersion, VersionState, VersionStatus};

    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    fn version(name: &str) -> VersionStatus {
        let (version, state, parts) = (name.to_owned(), VersionState::Available, Vec::new());
        VersionStatus {
            version,
            state,
            digest: String::new(),
            parts,
            keys: 1,
            bytes: 1,
            seal_time: None,
            consent: None,
        }
    }

    #[test]
    fn it_assigns_what_was_decided_and_leaves_the_rest() {
        let stored = VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            versions: vec![version("1"), version("old")],
            releases: vec![Release::new("1", None, at(1))],
            ..VersionedConfigStatus::default()
        };
        let mut decided = VersionedConfigStatus {
            target_version: Some("2".to_owned()),
            versions: vec![version("1"), version("old"), version("2"), version("unused")],
            ..stored.clone()
        };
        (decided.internal.revision, decided.internal.threshold) = (7, 1 << 31);
        decided.releases.push(Release::new("2", Some("1".to_owned()), at(2)));
        let written = smallest(&stored, &decided, "a policy", &at(3));
        let names: Vec<_> = written.versions.iter().map(|version| &*version.version).collect();
        assert_eq!(names, ["1", "old", "2"]);
        assert_eq!((&written.rollout, &written.target_version), (&decided.rollout, &decided.target_version));
        assert_eq!(written.releases, stored.releases);
        let said = find_condition(&written.conditions, ConditionType::StatusComplete).unwrap();
        assert!(said.status == "False" && said.message.ends_with("refused them: a policy"), "{}", said.message);
        // The same decision once more changes nothing.
        assert_eq!(smallest(&written, &decided, "a policy", &at(9)), written);
    }

    fn retired(name: &str) -> RetiredVersion {
        RetiredVersion { version: name.to_owned(), digests: vec!["sha256:x".to_owned()] }
    }

    #[test]
    fn no_version_is_forgotten() {
        let mut stored =
            VersionedConfigStatus { versions: vec![version("1"), version("gone")], ..VersionedConfigStatus::default() };
        stored.internal.retired = vec![retired("back"), retired("old")];
        let mut decided = VersionedConfigStatus {
            current_version: Some("1".to_owned()),
            desired_version: Some("asked".to_owned()),
            versions: vec![version("1"), version("back"), version("asked")],
            ..VersionedConfigStatus::default()
        };
        decided.internal.retired = vec![retired("old"), retired("gone")];
        let written = smallest(&stored, &decided, "a policy", &at(3));
        let names: Vec<_> = written.versions.iter().map(|version| &*version.version).collect();
        assert_eq!(names, ["1", "asked"], "approvals are about what is asked for");
        let mut names: Vec<_> = written.internal.retired.iter().map(|version| &*version.version).collect();
        names.sort_unstable();
        assert_eq!(names, ["back", "gone", "old"], "they come back with the same content only");
        assert_eq!(smallest(&written, &decided, "a policy", &at(9)), written);
    }
}
