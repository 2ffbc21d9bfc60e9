//! The groups of a user who has decided about a version, as admission saw them: an annotation of the `VersionApproval` with an HMAC under a key
//! that only Nudge has, over the groups and all that the object says.
//!
//! The right of the user is asked for again whenever approvals are counted, and it may be that of a group. An object without this annotation was
//! not seen by admission, so it counts for nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nudge_api::VersionApprovalSpec;
use ring::hmac;

/// What separates these from marks and others, which the same key makes.
const PURPOSE: &[u8] = b"nudge.dev/approver-groups";
/// Longest annotation.
pub const APPROVER_GROUPS_BYTES: usize = 16 * 1024;

/// The annotation of an approval by a user of these groups. `None` where they are too many.
pub fn approver_groups(
    key: &hmac::Key,
    namespace: &str,
    approval: &VersionApprovalSpec,
    groups: &[String],
) -> Option<String> {
    let groups = serde_json::to_string(groups).ok()?;
    let tag = hmac::sign(&own_key(key), &message(namespace, approval, &groups));
    let annotation = format!("{} {groups}", STANDARD.encode(tag));
    (annotation.len() <= APPROVER_GROUPS_BYTES).then_some(annotation)
}

/// The groups of the user who has decided, where admission has seen that.
pub fn groups_of(
    key: &hmac::Key,
    namespace: &str,
    approval: &VersionApprovalSpec,
    annotation: &str,
) -> Option<Vec<String>> {
    let (tag, groups) = annotation.split_once(' ')?;
    hmac::verify(&own_key(key), &message(namespace, approval, groups), &STANDARD.decode(tag).ok()?).ok()?;
    serde_json::from_str(groups).ok()
}

fn own_key(key: &hmac::Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(key, PURPOSE).as_ref())
}

fn message(namespace: &str, approval: &VersionApprovalSpec, groups: &str) -> Vec<u8> {
    let VersionApprovalSpec { config_name, version, digest, decision, reason, approver } = approval;
    let mut message = Vec::new();
    for text in [namespace, config_name, version, digest, decision.as_str(), reason, approver, groups] {
        message.extend((text.len() as u64).to_be_bytes());
        message.extend(text.as_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use nudge_api::ApprovalDecision;
    use proptest::prelude::*;

    use super::*;

    type Change = fn(&mut VersionApprovalSpec);

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    fn approval() -> VersionApprovalSpec {
        VersionApprovalSpec {
            config_name: "shop".to_owned(),
            version: "2".to_owned(),
            digest: "sha256:00".to_owned(),
            decision: ApprovalDecision::Approve,
            reason: "read it".to_owned(),
            approver: "bob".to_owned(),
        }
    }

    #[test]
    fn what_admission_saw_is_read_for_that_decision_alone() {
        let groups = ["reviewers".to_owned(), "a \"b\"".to_owned()];
        let written = approver_groups(&key(1), "team", &approval(), &groups).unwrap();
        assert_eq!(groups_of(&key(1), "team", &approval(), &written).unwrap(), groups);
        let none = approver_groups(&key(1), "team", &approval(), &[]).unwrap();
        assert_eq!(groups_of(&key(1), "team", &approval(), &none), Some(Vec::new()));
        assert_eq!(groups_of(&key(1), "other", &approval(), &written), None);
        assert_eq!(groups_of(&key(2), "team", &approval(), &written), None);
        let changes: [Change; 6] = [
            |it| it.config_name = "other".into(),
            |it| it.version = "3".into(),
            |it| it.digest = "sha256:01".into(),
            |it| it.decision = ApprovalDecision::Deny,
            |it| it.approver = "alice".into(),
            |it| it.reason = "another".into(),
        ];
        for change in changes {
            let mut other = approval();
            change(&mut other);
            assert_eq!(groups_of(&key(1), "team", &other, &written), None, "{other:?}");
        }
        let forged = written.replace("reviewers", "system:masters");
        assert_eq!(groups_of(&key(1), "team", &approval(), &forged), None);
    }

    #[test]
    fn more_groups_than_can_be_kept_are_refused() {
        let many = vec!["x".repeat(100); APPROVER_GROUPS_BYTES / 100];
        assert_eq!(approver_groups(&key(1), "team", &approval(), &many), None);
    }

    proptest! {
        #[test]
        fn nothing_that_a_user_writes_counts(tag in "\\PC{0,60}", group in "[a-z]{1,9}") {
            for note in [tag.clone(), format!("{} [\"{group}\"]", STANDARD.encode(&tag))] {
                prop_assert_eq!(groups_of(&key(1), "team", &approval(), &note), None);
            }
        }
    }
}
