//! The groups of a user who has decided about a version, as admission saw them: a [note](crate::signed_notes) of the
//! `VersionApproval` about the whole content of the object.
//!
//! The right of the user is reviewed again whenever approvals are counted, and it may be the right of a group. An
//! object without this annotation does not count, because admission has not seen it. An object whose note is older than
//! itself does not count either: somebody has kept the note of an earlier object, and stored it without admission. The
//! note does not contain the object's name, which the API server may generate after admission.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{VersionApproval, VersionApprovalSpec};
use nudge_protocol::labels::APPROVER_GROUPS;

use crate::derived_keys::NoteKey;
use crate::signed_notes::{self, Clock};

/// The maximum size of the annotation.
pub const MAX_APPROVER_GROUPS_BYTES: usize = 16 * 1024;

/// Signs the annotation of an approval that a user of these groups creates now. Returns `None` if there are too many
/// groups.
pub fn sign_approver_groups(
    key: &NoteKey,
    namespace: &str,
    approval: &VersionApprovalSpec,
    groups: &[String],
    now: Timestamp,
) -> Option<String> {
    let groups = serde_json::to_string(groups).ok()?;
    let annotation = signed_notes::sign(&key.0, APPROVER_GROUPS, &signed_subject(namespace, approval), &groups, now);
    (annotation.len() <= MAX_APPROVER_GROUPS_BYTES).then_some(annotation)
}

/// Reads the groups of the user who has decided, if admission has seen the decision.
pub fn read_approver_groups(key: &NoteKey, approval: &VersionApproval) -> Option<Vec<String>> {
    let ObjectMeta { namespace, annotations, creation_timestamp, .. } = &approval.metadata;
    let (namespace, annotation) =
        (namespace.as_deref().unwrap_or_default(), annotations.as_ref()?.get(APPROVER_GROUPS)?);
    let clock = Clock::Creation(creation_timestamp.as_ref());
    let note =
        signed_notes::read(&key.0, APPROVER_GROUPS, &signed_subject(namespace, &approval.spec), annotation, clock)?;
    serde_json::from_str(&note.value).ok()
}

fn signed_subject<'a>(namespace: &'a str, approval: &'a VersionApprovalSpec) -> [&'a str; 7] {
    let VersionApprovalSpec { config_name, version, digest, decision, reason, approver } = approval;
    [namespace, config_name, version, digest, decision.as_str(), reason, approver]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use nudge_api::ApprovalDecision;

    use super::*;
    use crate::signed_notes::tests::note_key;

    type Change = fn(&mut VersionApproval);

    const SIGNED: i64 = 1_790_000_000;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn spec() -> VersionApprovalSpec {
        VersionApprovalSpec {
            config_name: "shop".to_owned(),
            version: "2".to_owned(),
            digest: "sha256:00".to_owned(),
            decision: ApprovalDecision::Approve,
            reason: "read it".to_owned(),
            approver: "bob".to_owned(),
        }
    }

    /// Returns the approval that is stored in second `at`, with a note of these groups.
    fn stored(groups: &[String], at: i64) -> VersionApproval {
        let mut approval = VersionApproval::new("one", spec());
        let note = sign_approver_groups(&note_key(1), "team", &spec(), groups, second(SIGNED));
        approval.metadata.namespace = Some("team".to_owned());
        approval.metadata.annotations = note.map(|note| [(APPROVER_GROUPS.to_owned(), note)].into());
        approval.metadata.creation_timestamp = Some(Time(second(at)));
        approval
    }

    #[test]
    fn what_admission_saw_is_read_for_that_decision_alone() {
        let groups = ["reviewers".to_owned(), "a \"b\"".to_owned()];
        let approval = stored(&groups, SIGNED);
        assert_eq!(read_approver_groups(&note_key(1), &approval).unwrap(), groups);
        assert_eq!(read_approver_groups(&note_key(1), &stored(&[], SIGNED)), Some(Vec::new()));
        assert_eq!(read_approver_groups(&note_key(2), &approval), None);
        let changes: [Change; 8] = [
            |other| other.metadata.namespace = Some("other".into()),
            |other| other.spec.config_name = "other".into(),
            |other| other.spec.version = "3".into(),
            |other| other.spec.digest = "sha256:01".into(),
            |other| other.spec.decision = ApprovalDecision::Deny,
            |other| other.spec.approver = "alice".into(),
            |other| other.spec.reason = "another".into(),
            |other| {
                let note = other.metadata.annotations.as_mut().unwrap().get_mut(APPROVER_GROUPS).unwrap();
                *note = note.replace("reviewers", "system:masters");
            },
        ];
        for change in changes {
            let mut other = approval.clone();
            change(&mut other);
            assert_eq!(read_approver_groups(&note_key(1), &other), None, "{other:?}");
        }
    }

    #[test]
    fn a_note_that_was_kept_counts_for_no_approval_that_is_stored_later() {
        let counts = |at: i64| read_approver_groups(&note_key(1), &stored(&[], SIGNED + at)).is_some();
        assert!(counts(-300) && counts(300) && !counts(-301) && !counts(301));
        let tried = VersionApproval {
            metadata: ObjectMeta { creation_timestamp: None, ..stored(&[], SIGNED).metadata },
            ..stored(&[], SIGNED)
        };
        assert_eq!(read_approver_groups(&note_key(1), &tried), None);
    }

    #[test]
    fn more_groups_than_can_be_kept_are_refused() {
        let many = vec!["x".repeat(100); MAX_APPROVER_GROUPS_BYTES / 100];
        assert_eq!(sign_approver_groups(&note_key(1), "team", &spec(), &many, second(SIGNED)), None);
    }
}
