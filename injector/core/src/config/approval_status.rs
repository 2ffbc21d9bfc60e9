//! The status of a `VersionApproval`: whether the decision counts, with the reason. The status is for people, and no
//! decision follows from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ApprovalDecision, ConditionType, Explanation, Reason, VersionApproval, VersionApprovalSpec, VersionApprovalStatus,
    VersionedConfig, condition, find_condition, set_condition,
};

use super::gated_version::{Provenance, gated_version};
use crate::governance::{Policies, UserDecision, approval_faults, decision_command, explain_approval, sealed_digest};
use crate::requester::bounded_user;
use crate::rollout::Now;

/// The config whose version a user has decided about, and the facts about it.
pub struct ApprovalContext<'a> {
    /// The config, as the index has it.
    pub config: &'a VersionedConfig,
    /// The makers of its versions.
    pub provenance: Provenance<'a>,
    /// The policies of the namespace.
    pub policies: &'a Policies,
    /// The reason why approvals of the desired version can't be counted.
    pub incomplete: Option<&'a str>,
    /// The present time.
    pub now: Now<'a>,
}

/// Returns the next status of the approval. It is the present one if nothing has changed or the facts are not known
/// yet. `given` is the decision with the user's right; `None` if admission has not signed it. `context` is `None` if
/// the config does not exist.
pub fn approval_status(
    approval: &VersionApproval,
    given: Option<&UserDecision>,
    context: Option<&ApprovalContext<'_>>,
    now: &Time,
) -> VersionApprovalStatus {
    let mut status = approval.status.clone().unwrap_or_default();
    let fault = approval_faults(&approval.spec).into_iter().next();
    let verdict = if let Some(fault) = fault {
        Some((false, fault))
    } else if let Some(context) = context {
        verdict(approval, given, context)
    } else {
        let message = format!("config {} does not exist", approval.spec.config_name);
        Some((false, Reason::NoConfig.explained(message)))
    };
    if let Some((counts, Explanation { reason, message })) = verdict {
        let generation = approval.metadata.generation;
        status.observed_generation = generation;
        let counted = condition(ConditionType::Counted, counts, reason, message, generation, now);
        set_condition(&mut status.conditions, counted);
    }
    status
}

/// Returns whether the decision counts, with the reason; `None` if the last status stays.
fn verdict(
    approval: &VersionApproval,
    given: Option<&UserDecision>,
    context: &ApprovalContext<'_>,
) -> Option<(bool, Explanation)> {
    let ApprovalContext { config, provenance, policies, incomplete, now } = *context;
    let VersionApprovalSpec { config_name, version, digest, decision, approver, .. } = &approval.spec;
    let approver = bounded_user(approver);
    let refuse = |reason: Reason, message: String| Some((false, reason.explained(message)));
    let sealed = config.status.as_ref().and_then(|status| Some((status, status.version(version)?)));
    let Some((status, sealed)) = sealed else {
        return refuse(
            Reason::NoVersion,
            format!("version {version} of config {config_name} does not exist, or is not complete"),
        );
    };
    let content = sealed_digest(sealed);
    let command = decision_command(*decision, config_name, version, &content);
    if content != *digest {
        return refuse(
            Reason::OtherContent,
            format!(
                "version {version} has other content than what was decided about; read it (kubectl nudge diff {config_name} current \
                 {version}), and decide again: {command}"
            ),
        );
    }
    let Some(given) = given else {
        return refuse(
            Reason::NotSigned,
            format!(
                "admission has not signed the groups of {approver} for this decision; delete this and decide again: {command}"
            ),
        );
    };
    let aim = config.requested_version().or(status.desired_version.as_deref()).filter(|aim| *aim == version);
    let gated = aim.and_then(|aim| gated_version(aim, config, status, provenance, policies, now));
    if *decision == ApprovalDecision::Deny {
        if given.right.was_refused() {
            let right = format!("the right to approve versions of VersionedConfig {config_name}");
            return refuse(
                Reason::NoRight,
                format!("{approver} may not deny version {version} any more; this needs {right}"),
            );
        }
        let remedy = format!("kubectl nudge deny {config_name} {version} --undo");
        let effect = if gated.is_some() {
            "which holds the version until the denial is withdrawn"
        } else {
            "which holds the version, if a rule requires approvals, until the denial is withdrawn"
        };
        return refuse(Reason::Denied, format!("{approver} denies version {version}, {effect} ({remedy})"));
    }
    if let Some(gated) = gated {
        return explain_approval(&gated.needed, gated.candidate(), given, incomplete, now.time.0);
    }
    if status.releases.iter().any(|release| given.is_recorded(release)) {
        return Some((true, Reason::Counted.explained(format!("version {version} continued with this approval"))));
    }
    // The record of the release may have been forgotten. While the version is in use, it keeps the condition from the
    // time when it continued.
    let before = approval.status.as_ref().and_then(|status| find_condition(&status.conditions, ConditionType::Counted));
    let continued = before.is_some_and(|before| before.status == "True") && status.holds(version);
    // An unknown policy may require approvals.
    if continued || matches!(policies, Policies::Unknown(_)) {
        return None;
    }
    refuse(
        Reason::NotAwaited,
        format!(
            "version {version} waits for no approvals now; this one counts when the config requests the version and a rule requires approvals"
        ),
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::Approval;
    use serde_json::json;

    use super::super::decide_tests::{Fixture, at};
    use super::*;
    use crate::governance::Right;
    use crate::requester::Requester;
    use crate::rollout::SteadyTime;
    use crate::versions::seals;

    /// A config at version 1 whose version 2, made by alice and requested by dora, needs an approval.
    fn guarded() -> Fixture {
        let mut fixture = Fixture::new(Some("1")).with("1").with("2");
        fixture.step();
        fixture.config.spec.rollout.approval = Some(Approval::default());
        fixture.requesters.current = Some(Requester::new("dora", Timestamp::from_second(1).unwrap()));
        fixture.config.spec.version = Some("2".to_owned());
        fixture.step();
        fixture
    }

    #[test]
    fn no_version_has_the_name_current() {
        let fixture = guarded();
        let (mut approval, _) = decided(&fixture, "bob", "2", "Approve");
        approval.spec.version = "current".to_owned();
        let counted = &approval_status(&approval, None, None, &at(1)).conditions[0];
        assert_eq!((counted.status.as_str(), counted.reason.as_str()), ("False", "InvalidSpec"));
        assert!(counted.message.starts_with("spec.version: version \"current\" is not allowed"), "{}", counted.message);
    }

    /// Returns the user's decision about a version in its present state.
    fn decided(fixture: &Fixture, user: &str, version: &str, decision: &str) -> (VersionApproval, UserDecision) {
        let digest = sealed_digest(fixture.config.status.as_ref().unwrap().version(version).unwrap());
        let approval: VersionApproval = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": {"name": "one", "generation": 1},
            "spec": {
                "configName": "shop", "version": version, "digest": digest, "decision": decision, "reason": "read it", "approver": user
            },
        }))
        .unwrap();
        let given = UserDecision {
            version: version.to_owned(),
            digest,
            user: user.to_owned(),
            decision: approval.spec.decision,
            reason: "read it".to_owned(),
            at: at(7),
            right: Right::Granted,
        };
        (approval, given)
    }

    /// Returns the condition ApprovalCount, as status and reason; empty if the condition is missing.
    fn said(fixture: &Fixture, approval: &VersionApproval, given: Option<&UserDecision>) -> (String, String) {
        counted(fixture, approval, given).map(|condition| (condition.status, condition.reason)).unwrap_or_default()
    }

    fn message(fixture: &Fixture, approval: &VersionApproval, given: Option<&UserDecision>) -> String {
        counted(fixture, approval, given).map(|condition| condition.message).unwrap_or_default()
    }

    fn counted(fixture: &Fixture, approval: &VersionApproval, given: Option<&UserDecision>) -> Option<Condition> {
        let seals = seals();
        let (time, policies) = (at(fixture.now), Policies::default());
        let provenance =
            Provenance { parts: &fixture.parts, facts: &fixture.facts, seals: &seals, requesters: &fixture.requesters };
        let now = Now { time: &time, steady: SteadyTime(0) };
        let scene = ApprovalContext { config: &fixture.config, provenance, policies: &policies, incomplete: None, now };
        let status = approval_status(approval, given, Some(&scene), &time);
        find_condition(&status.conditions, ConditionType::Counted).cloned()
    }

    fn is(status: &str, reason: &str) -> (String, String) {
        (status.to_owned(), reason.to_owned())
    }

    #[test]
    fn an_approval_counts_or_says_why_not() {
        let fixture = guarded();
        for (user, expected) in
            [("bob", is("True", "Counted")), ("alice", is("False", "IsAuthor")), ("dora", is("False", "IsAuthor"))]
        {
            let (approval, given) = decided(&fixture, user, "2", "Approve");
            assert_eq!(said(&fixture, &approval, Some(&given)), expected, "{user}");
        }
        let (approval, given) = decided(&fixture, "bob", "2", "Approve");
        assert_eq!(said(&fixture, &approval, None), is("False", "NotSigned"));
        let gone = UserDecision { right: Right::Refused, ..given.clone() };
        assert_eq!(said(&fixture, &approval, Some(&gone)), is("False", "NoRight"));
        let unanswered = UserDecision { right: Right::Unanswered { last: None }, ..given.clone() };
        assert_eq!(said(&fixture, &approval, Some(&unanswered)), is("", ""), "nothing is known yet");
        let mut other = approval.clone();
        other.spec.digest = format!("sha256:{}", "0".repeat(48));
        assert_eq!(said(&fixture, &other, Some(&given)), is("False", "OtherContent"));
        let command = format!("kubectl nudge approve shop 2 --digest={} --reason=TEXT", &given.digest[7..39]);
        for (approval, given) in [(&other, Some(&given)), (&approval, None)] {
            assert!(message(&fixture, approval, given).contains(&command));
        }
        let (denial, _) = decided(&fixture, "bob", "2", "Deny");
        assert!(message(&fixture, &denial, None).contains("kubectl nudge deny shop 2 --reason=TEXT"));
        other.spec.version = "9".to_owned();
        assert_eq!(said(&fixture, &other, Some(&given)), is("False", "NoVersion"));
        let nowhere = approval_status(&approval, Some(&given), None, &at(1));
        assert_eq!(nowhere.conditions[0].reason, "NoConfig");
        let (approval, given) = decided(&fixture, "bob", "1", "Approve");
        assert_eq!(said(&fixture, &approval, Some(&given)), is("False", "NotAwaited"), "it is current");
    }

    #[test]
    fn an_approval_that_has_run_out_says_how_to_approve_again() {
        let mut fixture = guarded();
        let (approval, given) = decided(&fixture, "bob", "2", "Approve");
        fixture.now = 7 + 30 * 24 * 3600 - 1;
        assert_eq!(said(&fixture, &approval, Some(&given)), is("True", "Counted"));
        fixture.now += 1;
        assert_eq!(said(&fixture, &approval, Some(&given)), is("False", "RanOut"));
        let message = message(&fixture, &approval, Some(&given));
        let expected = "version 2: bob approved it, but the approval has run out (validSeconds): approvals count for 2592000 s; approve it again: kubectl \
                        nudge approve shop 2 --digest=";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn who_is_not_known_approves_nothing() {
        let mut fixture = guarded();
        let (approval, given) = decided(&fixture, "bob", "2", "Approve");
        fixture.requesters.current = None;
        assert_eq!(said(&fixture, &approval, Some(&given)), is("False", "AuthorUnknown"));
        fixture.facts.clear();
        assert_eq!(said(&fixture, &approval, Some(&given)), is("", ""), "its parts are to be read first");
    }

    #[test]
    fn a_denial_counts_for_no_version() {
        let fixture = guarded();
        let (denial, given) = decided(&fixture, "alice", "2", "Deny");
        assert_eq!(said(&fixture, &denial, Some(&given)), is("False", "Denied"));
        let gone = UserDecision { right: Right::Refused, ..given };
        assert_eq!(said(&fixture, &denial, Some(&gone)), is("False", "NoRight"));
    }

    #[test]
    fn what_counted_stays_so_when_the_version_has_continued() {
        let mut fixture = guarded();
        let (mut approval, given) = decided(&fixture, "bob", "2", "Approve");
        fixture.approvals.decisions.push(given.clone());
        for _ in 0..5 {
            fixture.now += 100;
            fixture.step();
        }
        let status = fixture.config.status.as_mut().unwrap();
        assert_eq!(status.current_version.as_deref(), Some("2"));
        let releases = std::mem::take(&mut status.releases);
        assert_eq!(said(&fixture, &approval, Some(&given)), is("False", "NotAwaited"), "nothing says so");
        fixture.config.status.as_mut().unwrap().releases = releases;
        assert_eq!(said(&fixture, &approval, Some(&given)), is("True", "Counted"));
        // The record of the release is gone, and the status of the approval is there.
        let counted = condition(ConditionType::Counted, true, Reason::Counted, "it counts", Some(1), &at(3));
        approval.status = Some(VersionApprovalStatus { observed_generation: Some(1), conditions: vec![counted] });
        fixture.config.status.as_mut().unwrap().releases.clear();
        assert_eq!(said(&fixture, &approval, Some(&given)), is("True", "Counted"));
    }

    #[test]
    fn at_rest_it_stays_as_it_is() {
        let mut approval = decided(&guarded(), "bob", "2", "Approve").0;
        let first = approval_status(&approval, None, None, &at(1));
        approval.status = Some(first.clone());
        assert_eq!(approval_status(&approval, None, None, &at(99)), first);
    }
}
