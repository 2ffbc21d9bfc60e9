//! The reasons that will keep a version from continuing, as far as they can be foreseen from the config and the
//! policies.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{
    Approval, ApprovalDecision, ConditionType, Explanation, Override, Reason, TextStatus, VersionApproval,
    VersionedConfig,
};
use nudge_protocol::plural::{agreeing, counted};

use super::config_faults::config_faults;
use super::gated_version::{needed_approval, override_reason};
use crate::followed_objects::pace_gate;
use crate::governance::{Block, EffectiveRules, Policies, RuleOwner, has_run_out};
use crate::requester::{bounded_user, noted_retry_time};
use crate::rollout::{Now, Subject, stops_first_version};

/// A version that may be requested.
#[derive(Clone, Copy, Debug)]
pub struct VersionCandidate<'a> {
    /// The name of the version; empty if it has none yet.
    pub version: &'a str,
    /// The digest of its content, if it is sealed.
    pub digest: Option<&'a str>,
    /// The decisions of users about versions of the namespace.
    pub approvals: &'a [VersionApproval],
}

/// Returns why the version will not begin or continue, with the time when each reason ends by itself. Of the decisions
/// of users, those count of which the controller does not say otherwise.
pub fn foreseen_blocks(
    config: &VersionedConfig,
    candidate: VersionCandidate<'_>,
    pods: &[Subject],
    policies: &Policies,
    now: Now<'_>,
) -> Vec<Block> {
    let faults = config_faults(
        config.metadata.name.as_deref().unwrap_or_default(),
        &config.spec,
        Override::reader_time(now.time.0),
    );
    let mut blocks: Vec<Block> = faults.into_iter().map(|why| Block { why, until: None }).collect();
    if override_reason(config, candidate.version, now).is_some() {
        return blocks;
    }
    blocks.extend(failure(config, candidate).map(|why| Block { why, until: None }));
    // The way back waits for nothing, unless everybody who edits the text could request it.
    let status = config.status.clone().unwrap_or_default();
    let is_return = [&status.current_version, &status.previous_version]
        .into_iter()
        .flatten()
        .any(|version| version == candidate.version);
    if is_return && !config.spec.follows_text() {
        return blocks;
    }
    let approval = needed_approval(candidate.version, config, &status, policies, now);
    let name = config.metadata.name.as_deref().unwrap_or_default();
    blocks.extend(
        approval.and_then(|needed| approval_block(name, candidate, &needed, now)).map(|why| Block { why, until: None }),
    );
    blocks.extend(EffectiveRules::of(&config.spec.rollout, policies).blocks(now.time.0));
    blocks.extend(pace(config, candidate.version, now));
    if status.current_version.is_none() && pods.iter().all(|pod| pod.runs.is_none()) {
        blocks.retain(|block| stops_first_version(block.why.reason));
    }
    blocks
}

/// Returns why a version whose content failed is not tried again.
fn failure(config: &VersionedConfig, candidate: VersionCandidate<'_>) -> Option<Explanation> {
    let failure = config.status.as_ref()?.rollout.failure.as_ref()?;
    let is_same = failure.version == candidate.version && Some(failure.digest.as_str()) == candidate.digest;
    let is_retried = noted_retry_time(config).is_some_and(|retry| failure.retry_time != Some(retry));
    if !is_same || is_retried {
        return None;
    }
    let (name, version) = (config.metadata.name.as_deref().unwrap_or_default(), candidate.version);
    let command = if config.spec.follows_text() { format!("retry {name}") } else { format!("use {name} {version}") };
    Some(Reason::Failed.explained(format!(
        "version {version} failed before ({}): {}; kubectl nudge {command} tries it again",
        failure.reason, failure.message
    )))
}

/// Returns why the decisions of users do not let the version continue.
fn approval_block(
    config: &str,
    candidate: VersionCandidate<'_>,
    (needed, owner): &(Approval, RuleOwner),
    now: Now<'_>,
) -> Option<Explanation> {
    let is_counted = |approval: &&VersionApproval| {
        let spec = &approval.spec;
        let conditions = approval.status.iter().flat_map(|status| &status.conditions);
        let is_refused = conditions
            .into_iter()
            .any(|condition| condition.type_ == ConditionType::Counted.as_str() && condition.status == "False");
        let is_about = spec.config_name == config && spec.version == candidate.version;
        is_about && Some(spec.digest.as_str()) == candidate.digest && !is_refused
    };
    let counted_approvals: Vec<&VersionApproval> = candidate.approvals.iter().filter(is_counted).collect();
    if let Some(denial) = counted_approvals.iter().find(|approval| approval.spec.decision == ApprovalDecision::Deny) {
        let user = bounded_user(&denial.spec.approver);
        let command = format!("kubectl nudge deny {config} {} --undo", candidate.version);
        return Some(Reason::AwaitingApproval.explained(format!("{user} denies it ({command} withdraws that)")));
    }
    let is_over = |approval: &VersionApproval| {
        approval.metadata.creation_timestamp.as_ref().is_some_and(|time| has_run_out(needed, time, now.time.0))
    };
    let valid = counted_approvals.into_iter().filter(|approval| !is_over(approval));
    let approvers: BTreeSet<&str> = valid.map(|approval| approval.spec.approver.as_str()).collect();
    let Approval { required, not_author, .. } = needed;
    let given = u32::try_from(approvers.len()).unwrap_or(u32::MAX);
    if given >= *required {
        return None;
    }
    let users = format!("{} of {}", agreeing(*required, "the approval", "approvals"), counted(*required, "user"));
    let others = if *not_author { ", who must not have made or requested it" } else { "" };
    let so_far = if given == 0 { String::new() } else { format!("; so far there are {given} of {required}") };
    Some(
        Reason::AwaitingApproval.explained(format!("{owner} requires {users}{others}{so_far} (kubectl nudge approve)")),
    )
}

/// Returns the wait of a text for its turn, if the config follows its text.
fn pace(config: &VersionedConfig, version: &str, now: Now<'_>) -> Option<Block> {
    let mut status = config.status.clone()?;
    // The message names the version.
    let version = if version.is_empty() { "of this text" } else { version };
    // A text that is already known has stood since then.
    if status.internal.text.as_ref().is_none_or(|text| text.version != version) {
        let settle_time = Time(Timestamp::from_second(now.time.0.as_second()).unwrap_or(now.time.0));
        let version = version.to_owned();
        let text = TextStatus { version, settle_time, managers: Vec::new(), write_time: None };
        status.internal.text = Some(text);
    }
    let gate = pace_gate(config, &status, noted_retry_time(config).as_ref(), now)?;
    Some(Block { why: gate.why, until: gate.ends_at })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rollout::SteadyTime;

    fn blocks(spec: &Value, status: &Value, version: &str) -> Vec<(Reason, String)> {
        blocks_with(spec, status, version, &[])
    }

    fn blocks_with(
        spec: &Value,
        status: &Value,
        version: &str,
        approvals: &[VersionApproval],
    ) -> Vec<(Reason, String)> {
        let config = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"},
            "spec": spec, "status": status,
        }));
        let time = Time("2026-11-28T12:00:00Z".parse().unwrap());
        let candidate = VersionCandidate { version, digest: Some("sha256:0"), approvals };
        let now = Now { time: &time, steady: SteadyTime(0) };
        let blocks = foreseen_blocks(&config.unwrap(), candidate, &[], &Policies::default(), now);
        blocks.into_iter().map(|block| (block.why.reason, block.why.message)).collect()
    }

    fn reasons(spec: &Value, status: &Value, version: &str) -> Vec<Reason> {
        blocks(spec, status, version).into_iter().map(|(reason, _)| reason).collect()
    }

    #[test]
    fn all_gates_are_named_and_not_the_first_alone() {
        let window = json!({"name": "day", "days": ["Mon"], "from": "09:00", "to": "17:00", "timeZone": "UTC"});
        let rollout = json!({"approval": {"required": 2}, "windows": [window], "hold": {"reason": "the fair"}});
        let status = json!({"currentVersion": "2", "previousVersion": "1"});
        let spec = json!({"version": "2", "rollout": rollout});
        assert_eq!(reasons(&spec, &status, "3"), [Reason::AwaitingApproval, Reason::OnHold, Reason::OutsideWindow]);
        assert_eq!(reasons(&spec, &status, "1"), [], "the way back waits for nothing");
        let text = json!({"objects": ["ConfigMap"], "rollout": rollout});
        assert_eq!(reasons(&text, &status, "1"), [Reason::OnHold, Reason::OutsideWindow], "a text waits for gates");
        assert_eq!(reasons(&spec, &json!({}), "1"), [Reason::AwaitingApproval], "the first version breaks nothing");
        let approval = &blocks(&text, &status, "3")[0].1;
        let expected = "spec.rollout requires approvals of 3 users, who must not have made or requested it (kubectl nudge approve)";
        assert_eq!(approval, expected);
    }

    #[test]
    fn approvals_that_are_given_are_counted_and_a_denial_is_named() {
        let decide = |user: &str, decision: &str, digest: &str, counted: Option<&str>| -> VersionApproval {
            let condition = counted.map(|status| {
                json!({"type": "Counted", "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-11-28T12:00:00Z"})
            });
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": {"name": user},
                "spec": {"configName": "shop", "version": "3", "digest": digest, "decision": decision,
                    "reason": "read", "approver": user},
                "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
            }))
            .unwrap()
        };
        let approve = |user: &str, counted| decide(user, "Approve", "sha256:0", counted);
        let spec = json!({"version": "2", "rollout": {"approval": {"required": 2, "notAuthor": false}}});
        let message = |approvals: &[VersionApproval]| {
            let blocks = blocks_with(&spec, &json!({"currentVersion": "2"}), "3", approvals);
            blocks.into_iter().map(|(_, message)| message).collect::<String>()
        };
        let none = "spec.rollout requires approvals of 2 users (kubectl nudge approve)";
        assert_eq!(message(&[]), none);
        assert_eq!(message(&[approve("ann", Some("False")), decide("ben", "Approve", "sha256:1", None)]), none);
        let one = "spec.rollout requires approvals of 2 users; so far there are 1 of 2 (kubectl nudge approve)";
        assert_eq!(message(&[approve("ann", None), approve("ann", Some("True"))]), one);
        assert_eq!(message(&[approve("ann", None), approve("ben", Some("True"))]), "");
        let aged = |user: &str, decision: &str, time: &str| {
            let mut approval = decide(user, decision, "sha256:0", None);
            approval.metadata.creation_timestamp = Some(Time(time.parse().unwrap()));
            approval
        };
        let (old, young) = ("2026-10-29T12:00:00Z", "2026-10-29T12:00:01Z");
        assert_eq!(message(&[aged("ann", "Approve", young), aged("ben", "Approve", old)]), one, "30 days are over");
        assert_eq!(message(&[aged("ann", "Approve", young), aged("ben", "Approve", young)]), "");
        assert!(message(&[aged("eve", "Deny", old)]).starts_with("eve denies it"), "a denial stands until its undo");
        let denied = [approve("ann", None), approve("ben", None), decide("eve", "Deny", "sha256:0", None)];
        assert_eq!(message(&denied), "eve denies it (kubectl nudge deny shop 3 --undo withdraws that)");
    }

    #[test]
    fn a_failed_content_and_an_early_text_wait() {
        let failure = json!({"version": "3", "digest": "sha256:0", "reason": "PodNotReady", "message": "pod web-1"});
        let release =
            json!({"version": "3", "fromVersion": "2", "startTime": "2026-11-28T11:59:30Z", "outcome": "RolledBack"});
        let status = json!({"currentVersion": "2", "rollout": {"failure": failure}, "releases": [release]});
        assert_eq!(reasons(&json!({"version": "2"}), &status, "3"), [Reason::Failed]);
        let early = blocks(&json!({"objects": ["ConfigMap"]}), &status, "");
        let message = "version of this text begins a minute after the last move began".to_owned();
        assert_eq!(early, [(Reason::Unsettled, message)]);
        assert_eq!(reasons(&json!({"version": "2"}), &status, "4"), []);
    }
}
