//! The part of a decided status that is written if the API server refuses the whole status.
//!
//! The status holds the assignment of pods, so neither a text that somebody wrote nor an admission policy of the
//! cluster may keep pods from leaving a bad version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ConditionType, InternalStatus, Reason, Release, RolloutFailure, RolloutStatus, VersionStatus,
    VersionedConfigStatus, condition, find_condition, set_condition,
};

use crate::versions::MAX_RETIRED_VERSIONS;

/// The text in place of an omitted text.
const OMITTED_TEXT: &str = "left out; see the condition StatusComplete";

/// The part of a decided status that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusExtent {
    /// The whole decided status.
    #[default]
    Whole,
    /// The assignment of pods, the failure, the conditions, the versions that are in use, and releases without details.
    Short,
    /// The short status without reports of pods, names of objects in messages, and names of users. Texts of the spec
    /// stay.
    Plain,
}

impl StatusExtent {
    /// Returns the extent to try after this one is refused.
    pub fn smaller(self) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Short),
            Self::Short => Some(Self::Plain),
            Self::Plain => None,
        }
    }
}

/// Reduces the `decided` status to this extent, and adds a condition with the `cause`. Omitted parts stay as in
/// `stored`, the status that the API server has.
pub fn reduce_status(
    extent: StatusExtent,
    stored: &VersionedConfigStatus,
    decided: &VersionedConfigStatus,
    cause: &str,
    now: &Time,
) -> VersionedConfigStatus {
    let is_plain = match extent {
        StatusExtent::Whole => return decided.clone(),
        StatusExtent::Short => false,
        StatusExtent::Plain => true,
    };
    let mut status = shorten(stored, decided);
    let message = if is_plain {
        remove_texts(&mut status);
        // An answer may repeat the text that was refused. Its beginning names the refuser.
        let who = cause.split(": ").next().unwrap_or_default();
        format!(
            "messages, users, details of releases and unused versions are left out, because the API server refuses \
             them: {who}; see the log of the controller"
        )
    } else {
        format!(
            "details of releases, unused versions and numbers are left out, because the API server refuses the whole \
             status: {cause}"
        )
    };
    let generation = status.observed_generation;
    // The condition keeps its transition time.
    status.conditions.extend(find_condition(&stored.conditions, ConditionType::StatusComplete).cloned());
    set_condition(
        &mut status.conditions,
        condition(ConditionType::StatusComplete, false, Reason::StatusRefused, message, generation, now),
    );
    status
}

fn shorten(stored: &VersionedConfigStatus, decided: &VersionedConfigStatus) -> VersionedConfigStatus {
    let is_kept = |version: &VersionStatus| {
        let name = &version.version;
        decided.holds(name) || decided.desired_version.as_ref() == Some(name) || stored.version(name).is_some()
    };
    let (versions, left_out): (Vec<_>, Vec<_>) = decided.versions.iter().cloned().partition(is_kept);
    // A deleted version that came back and is left out stays retired: otherwise it could come back with other content.
    let returned = |name: &str| left_out.iter().any(|version| version.version == name);
    let mut retired = decided.internal.retired.clone();
    retired.extend(stored.internal.retired.iter().filter(|retired| returned(&retired.version)).cloned());
    retired.drain(..retired.len().saturating_sub(MAX_RETIRED_VERSIONS));
    let release = |release: &Release| {
        if stored.releases.contains(release) { release.clone() } else { without_details(release) }
    };
    VersionedConfigStatus {
        versions,
        invalid: stored.invalid.clone(),
        releases: decided.releases.iter().map(release).collect(),
        rollout: RolloutStatus { watch: None, evidence: None, ..decided.rollout.clone() },
        internal: InternalStatus {
            retired,
            background: stored.internal.background.clone(),
            ..decided.internal.clone()
        },
        ..decided.clone()
    }
}

fn remove_texts(status: &mut VersionedConfigStatus) {
    status.invalid.clear();
    status.releases = status.releases.iter().map(without_details).collect();
    for condition in &mut status.conditions {
        OMITTED_TEXT.clone_into(&mut condition.message);
    }
    if let Some(RolloutFailure { message, .. }) = &mut status.rollout.failure {
        OMITTED_TEXT.clone_into(message);
    }
}

fn without_details(release: &Release) -> Release {
    let Release { version, from_version, request_time, start_time, end_time, outcome, reason, .. } = release.clone();
    Release { request_time, end_time, outcome, reason, ..Release::new(version, from_version, start_time) }
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
        let written = reduce_status(StatusExtent::Short, &stored, &decided, "a policy", &at(3));
        let names: Vec<_> = written.versions.iter().map(|version| &*version.version).collect();
        assert_eq!(names, ["1", "old", "2"]);
        assert_eq!((&written.rollout, &written.target_version), (&decided.rollout, &decided.target_version));
        assert_eq!(written.releases, decided.releases, "it has no details");
        let said = find_condition(&written.conditions, ConditionType::StatusComplete).unwrap();
        assert!(
            said.status == "False" && said.message.ends_with("refuses the whole status: a policy"),
            "{}",
            said.message
        );
        // The same decision once more changes nothing.
        assert_eq!(reduce_status(StatusExtent::Short, &written, &decided, "a policy", &at(9)), written);
    }

    #[test]
    fn a_plain_one_has_no_text_but_that_of_the_spec() {
        const TEXT: &str = "hunter2";
        let mut stored =
            VersionedConfigStatus { current_version: Some("1".to_owned()), ..VersionedConfigStatus::default() };
        let mut release = Release::new("2", Some("1".to_owned()), at(1));
        (release.requested_by, release.message) = (Some(TEXT.to_owned()), Some(TEXT.to_owned()));
        stored.releases.push(release.clone());
        let mut decided = stored.clone();
        release.end_time = Some(at(2));
        decided.releases[0] = release;
        for kind in [ConditionType::Ready, ConditionType::Conflict, ConditionType::Suspect] {
            decided.conditions.push(condition(kind, false, Reason::Failed, TEXT, None, &at(2)));
        }
        let invalid =
            serde_json::json!([{"version": "3", "reason": "Invalid", "message": TEXT, "rules": "", "content": ""}]);
        decided.invalid = serde_json::from_value(invalid).unwrap();
        let failure =
            serde_json::json!({"version": "2", "reason": "CheckRefused", "message": TEXT, "override": "a reason"});
        decided.rollout.failure = serde_json::from_value(failure).unwrap();
        let cause = format!("webhook w denied the request: there is a password: {TEXT}");
        assert!(
            serde_json::to_string(&reduce_status(StatusExtent::Short, &stored, &decided, &cause, &at(3)))
                .unwrap()
                .contains(TEXT)
        );
        let written = reduce_status(StatusExtent::Plain, &stored, &decided, &cause, &at(3));
        let json = serde_json::to_string(&written).unwrap();
        assert!(!json.contains(TEXT), "{json}");
        let failure = written.rollout.failure.as_ref().unwrap();
        assert_eq!((failure.reason, failure.overridden.as_deref()), (Reason::CheckRefused, Some("a reason")));
        assert_eq!(written.releases[0].end_time, Some(at(2)), "a release ends in it");
        assert_eq!(written.conditions.len(), 4);
        let said = find_condition(&written.conditions, ConditionType::StatusComplete).unwrap();
        assert!(said.message.contains(": webhook w denied the request; "), "{}", said.message);
        assert_eq!(reduce_status(StatusExtent::Plain, &written, &decided, &cause, &at(9)), written);
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
        let written = reduce_status(StatusExtent::Short, &stored, &decided, "a policy", &at(3));
        let names: Vec<_> = written.versions.iter().map(|version| &*version.version).collect();
        assert_eq!(names, ["1", "asked"], "approvals are about what is requested");
        let mut names: Vec<_> = written.internal.retired.iter().map(|version| &*version.version).collect();
        names.sort_unstable();
        assert_eq!(names, ["back", "gone", "old"], "they come back with the same content only");
        assert_eq!(reduce_status(StatusExtent::Short, &written, &decided, "a policy", &at(9)), written);
    }
}
