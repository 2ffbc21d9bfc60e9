//! The details of one config, except its pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use nudge_api::{
    Consent, EvidenceStatus, Reason, Release, ReleaseOutcome, ReleaseRequester, ReleaseStep, RolloutStage,
    VersionApproval, VersionedConfig,
};
use nudge_core::governance::short_digest;
use serde::Serialize;

use super::cell::Cells;
use super::gates::{AnalysisDetail, ApprovalDetail, analyses, approval, opening_time};
use super::row::{Attention, ConfigRow, attention_to};
use crate::output::rollout_report::{analysis_text, evidence_text, override_text, release_reason};
use crate::output::status::{self, Report};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    row: ConfigRow,
    /// The facts of `kubectl nudge status`, by name and in its order.
    facts: Vec<(&'static str, String)>,
    previous: Option<String>,
    steps: Vec<StepDetail>,
    /// The number of steps that went out.
    step: u32,
    clock: Option<Clock>,
    /// The decisions about the requested version; absent if versions need no approval.
    approval: Option<ApprovalDetail>,
    /// Whether the hold in the spec is protected; absent without a hold.
    hold_protected: Option<bool>,
    /// The time when versions may continue, if they wait for a time.
    opens: Option<i64>,
    analyses: Vec<AnalysisDetail>,
    versions: Vec<VersionDetail>,
    releases: Vec<ReleaseDetail>,
    conditions: Vec<ConditionDetail>,
}

/// A step of the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepDetail {
    /// The number or share of pods, as in the spec.
    pods: String,
    /// The labels of the pods of the step; empty for all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    pause_seconds: u32,
    /// The time when the step went out, in the present move.
    at: Option<i64>,
}

/// The period during which a subject is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Clock {
    /// The subject that is watched.
    what: &'static str,
    /// The beginning, in seconds since 1970.
    since: i64,
    seconds: u32,
    /// The reason for the length.
    why: String,
}

/// A version, complete or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionDetail {
    version: String,
    state: String,
    /// The reason why the version is not complete.
    message: Option<String>,
    keys: Option<u32>,
    bytes: Option<u64>,
    digest: Option<String>,
    seal_time: Option<i64>,
    /// Whether the version never becomes current by itself.
    consent: bool,
    /// The user who requested the version last, or the managers that wrote its text, in words.
    requested_by: Option<String>,
    request_time: Option<i64>,
}

/// A release in the past of a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReleaseDetail {
    version: String,
    from: Option<String>,
    outcome: &'static str,
    requested_by: Option<String>,
    start_time: i64,
    end_time: Option<i64>,
    /// The time when each step began, and the number of pods that had the version then.
    steps: Vec<(i64, u32)>,
    /// The numbers of the verdict, in words.
    evidence: Option<String>,
    /// The last numbers of each analysis, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    analyses: Vec<String>,
    why: Option<String>,
    at_once: Option<String>,
    /// The users who had approved the release, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<(String, i64)>,
}

/// A condition with its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionDetail {
    #[serde(flatten)]
    condition: status::Condition,
    /// The general meaning of the reason.
    meaning: &'static str,
    attention: Attention,
    /// Whether somebody has to act.
    action: bool,
    since: i64,
}

fn second(time: &Time) -> i64 {
    time.0.as_second()
}

impl Detail {
    pub(crate) fn new<'a>(
        config: &VersionedConfig,
        cells: &Cells,
        approvals: impl IntoIterator<Item = &'a VersionApproval>,
    ) -> Self {
        let status = config.status.clone().unwrap_or_default();
        let approval = approval(config, approvals);
        // The report says nothing about pods that may not be listed.
        let mut report = Report::without_pods(config, cells.count);
        report.approvals = approval.as_ref().map(|approval| approval.given.clone()).unwrap_or_default();
        let last = |version: &str| status.releases.iter().rev().find(|release| release.version == version);
        let sealed = status.versions.iter().map(|version| VersionDetail {
            version: version.version.clone(),
            state: format!("{:?}", version.state),
            keys: Some(version.keys),
            bytes: Some(version.bytes),
            digest: Some(short_digest(version)),
            seal_time: version.seal_time.as_ref().map(second),
            consent: matches!(version.consent, Some(Consent::Needed | Consent::NeededAnew)),
            requested_by: last(&version.version).and_then(requester),
            request_time: last(&version.version).and_then(|release| release.request_time.as_ref()).map(second),
            ..VersionDetail::default()
        });
        let invalid = status.invalid.iter().map(|version| VersionDetail {
            version: version.version.clone(),
            state: "Invalid".to_owned(),
            message: Some(version.message.clone()),
            ..VersionDetail::default()
        });
        let open = status.releases.last().filter(|release| release.end_time.is_none());
        let release_steps = open.map(|release| release.steps.as_slice()).unwrap_or_default();
        Self {
            row: ConfigRow::new(config),
            facts: report.lines(),
            previous: status.previous_version.clone(),
            steps: steps(config, release_steps, status.rollout.step),
            step: status.rollout.step,
            clock: clock(config),
            approval,
            hold_protected: config.spec.rollout.hold.as_ref().map(|hold| hold.protected),
            opens: opening_time(&status.rollout),
            analyses: analyses(config),
            versions: sealed.chain(invalid).collect(),
            releases: status.releases.iter().rev().map(ReleaseDetail::new).collect(),
            conditions: status.conditions.iter().map(ConditionDetail::new).collect(),
        }
    }
}

/// Returns the steps of the spec, and the step to all pods if the spec does not list it.
fn steps(config: &VersionedConfig, release_steps: &[ReleaseStep], step: u32) -> Vec<StepDetail> {
    let is_moving = config.status.as_ref().is_some_and(|status| status.target_version.is_some());
    let mut steps: Vec<StepDetail> = (config.spec.rollout.steps.iter())
        .map(|step| StepDetail {
            pods: match &step.pods {
                nudge_api::Pods::Count(count) => count.to_string(),
                nudge_api::Pods::Share(share) => share.clone(),
            },
            labels: step.selector.as_ref().map(|selector| selector.match_labels.clone()).unwrap_or_default(),
            pause_seconds: step.pause_seconds,
            at: None,
        })
        .collect();
    if !steps.last().is_some_and(|last| last.pods == "100%" && last.labels.is_empty()) {
        steps.push(StepDetail { pods: "100%".to_owned(), labels: BTreeMap::new(), pause_seconds: 0, at: None });
    }
    let count = if is_moving { usize::try_from(step).unwrap_or(usize::MAX) } else { 0 };
    for (step, release_step) in steps.iter_mut().take(count).zip(release_steps) {
        step.at = Some(second(&release_step.start_time));
    }
    steps
}

/// Returns the subject that is watched at the moment, and its minimum period.
fn clock(config: &VersionedConfig) -> Option<Clock> {
    let status = config.status.as_ref()?;
    let since = status.rollout.step_time.as_ref().map(second);
    match status.rollout.stage? {
        RolloutStage::Moving => {
            let watch = status.rollout.watch.as_ref()?;
            let weak = watch.weak.as_ref().map_or_else(String::new, |weak| format!("; weak evidence: {weak}"));
            Some(Clock {
                what: "the pods of this step",
                since: since?,
                seconds: watch.seconds,
                why: format!("{}{weak}", watch.reason),
            })
        }
        RolloutStage::Baking => Some(Clock {
            what: "all pods, before the version becomes current",
            since: status.rollout.progress_time.as_ref().map(|time| time.0.as_second()).or(since)?,
            seconds: config.spec.rollout.bake_seconds,
            why: "spec.rollout.bakeSeconds says so".to_owned(),
        }),
        RolloutStage::Restarting | RolloutStage::Leaving | RolloutStage::Returning | RolloutStage::RollingBack => None,
    }
}

/// Returns who requested the release, in words, if that is known.
fn requester(release: &Release) -> Option<String> {
    let requester = release.requester();
    (requester != ReleaseRequester::Unknown).then(|| requester.to_string())
}

impl ReleaseDetail {
    fn new(release: &Release) -> Self {
        let from_version = release.from_version.as_deref().unwrap_or("none");
        let in_words = |evidence: &EvidenceStatus| evidence_text(evidence, &release.version, from_version);
        let analyses = release.evidence.iter().flat_map(|evidence| &evidence.analysis);
        Self {
            version: release.version.clone(),
            from: release.from_version.clone(),
            outcome: release.outcome.map_or("Open", ReleaseOutcome::as_str),
            requested_by: requester(release),
            start_time: second(&release.start_time),
            end_time: release.end_time.as_ref().map(second),
            steps: release.steps.iter().map(|step| (second(&step.start_time), step.pods)).collect(),
            analyses: analyses.map(|analysis| analysis_text(analysis, &release.version, from_version)).collect(),
            approvals: release
                .approvals
                .iter()
                .map(|approval| (approval.user.clone(), second(&approval.approval_time)))
                .collect(),
            evidence: release.evidence.as_ref().filter(|evidence| evidence.assigned > 0).map(in_words),
            why: release_reason(release),
            at_once: release.overridden.as_ref().map(override_text),
        }
    }
}

impl ConditionDetail {
    fn new(condition: &Condition) -> Self {
        let facts = Reason::named(&condition.reason).facts();
        let time: Timestamp = condition.last_transition_time.0;
        Self {
            condition: status::Condition::new(condition),
            meaning: facts.meaning,
            attention: attention_to(condition),
            action: facts.needs_action,
            since: time.as_second(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::rollout_report::TargetCount;
    use crate::page::reply::to_json;

    fn detail(spec: &Value, status: &Value) -> Value {
        let config = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team", "uid": "c"}, "spec": spec, "status": status,
        }));
        let count = TargetCount { assigned: 1, total: 4 };
        let cells = Cells { count, ..Cells::default() };
        to_json(&Detail::new(&config.unwrap(), &cells, []))
    }

    #[test]
    fn a_move_is_shown_with_its_steps_and_its_clock() {
        let spec = json!({"version": "2", "rollout": {"steps": [{"pods": 1}, {"pods": "50%", "pauseSeconds": 9}], "bakeSeconds": 60}});
        let release = json!({"version": "2", "fromVersion": "1", "requestedBy": "jane", "requestTime": "2026-01-01T00:00:00Z",
            "startTime": "2026-01-01T00:00:01Z", "steps": [{"startTime": "2026-01-01T00:00:02Z", "pods": 1}],
            "evidence": {"assigned": 1, "unassigned": 3}});
        let mut status = json!({"currentVersion": "1", "targetVersion": "2", "releases": [release],
            "versions": [{"version": "2", "state": "Target", "keys": 3, "bytes": 30, "parts": [], "consent": "Needed"}],
            "invalid": [{"version": "3", "reason": "Invalid", "message": "no", "rules": "r", "content": "c"}],
            "internal": {"threshold": 9},
            "rollout": {"stage": "Moving", "step": 1, "stepTime": "2026-01-01T00:00:02Z",
                "watch": {"seconds": 36, "reason": "the readiness probe needs it", "weak": "no probe"}}});
        let shown = detail(&spec, &status);
        assert_eq!(shown["facts"][4], json!(["Target", "2"]));
        assert_eq!(shown["facts"][5][1], "1 of 3, version 2 is assigned to 1 of 4 pods");
        let at = |index: usize| (shown["steps"][index]["pods"].clone(), shown["steps"][index]["at"].clone());
        assert_eq!(
            [at(0), at(1), at(2)],
            [(json!("1"), json!(1_767_225_602)), (json!("50%"), Value::Null), (json!("100%"), Value::Null)]
        );
        assert_eq!(shown["clock"]["why"], "the readiness probe needs it; weak evidence: no probe");
        assert_eq!(shown["releases"][0]["evidence"], "0 of 1 pod on 2 were harmed; of 3 on 1 none");
        let version = |at: usize, field: &str| shown["versions"][at][field].clone();
        assert_eq!((version(0, "requestedBy"), version(0, "consent")), (json!("jane"), json!(true)));
        assert!(
            version(0, "digest").as_str().is_some_and(|digest| digest.len() == 32) && version(1, "digest").is_null()
        );
        assert_eq!((version(1, "state"), version(1, "message")), (json!("Invalid"), json!("no")));
        status["rollout"]["stage"] = json!("Baking");
        status["rollout"]["progressTime"] = json!("2026-01-01T00:01:00.000000Z");
        assert_eq!(detail(&spec, &status)["clock"]["since"], 1_767_225_660);
        status["rollout"]["stage"] = json!("RollingBack");
        assert_eq!(detail(&spec, &status)["clock"], Value::Null);
    }

    #[test]
    fn conditions_say_what_they_mean() {
        let shown = detail(
            &json!({}),
            &json!({"conditions": [{"type": "Ready", "status": "False", "reason": "OnHold", "message": "why",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        );
        let condition = &shown["conditions"][0];
        assert_eq!((&condition["attention"], &condition["since"]), (&json!("act"), &json!(1_767_225_600)));
        assert_eq!(condition["meaning"], Reason::OnHold.facts().meaning);
    }
}
