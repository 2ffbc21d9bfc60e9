//! The gates of a version besides the pods themselves: approvals, times and metrics.

use nudge_api::{AnalysisStatus, RolloutStatus, VersionApproval, VersionedConfig};
use nudge_core::governance::short_digest;
use serde::Serialize;

use crate::output::status::{ApprovalReport, needs_approval, requested_version};

/// The decisions about the requested version. The condition Ready says whether they suffice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalDetail {
    version: String,
    /// The digest of the content that is shown.
    digest: String,
    /// The number of approvals that the spec requires; policies of the cluster can require more.
    required: Option<u32>,
    pub(crate) given: Vec<ApprovalReport>,
}

/// A metric that judges the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnalysisDetail {
    name: String,
    /// The result for the pods with the target.
    target: Option<String>,
    /// The result for the pods without the target.
    control: Option<String>,
    /// The maximum result, in words.
    limit: String,
    verdict: String,
    at: Option<i64>,
}

/// Returns the decisions, unless versions need no approval.
pub(crate) fn approval<'a>(
    config: &VersionedConfig,
    approvals: impl IntoIterator<Item = &'a VersionApproval>,
) -> Option<ApprovalDetail> {
    let sealed = requested_version(config).filter(|_| needs_approval(config))?;
    let (version, digest) = (sealed.version.clone(), short_digest(sealed));
    let required = config.spec.rollout.approval.as_ref().map(|approval| approval.required);
    Some(ApprovalDetail { version, digest, required, given: ApprovalReport::list(config, approvals) })
}

/// Returns the metrics that judge the target; none without a target.
pub(crate) fn analyses(config: &VersionedConfig) -> Vec<AnalysisDetail> {
    let Some(status) = config.status.as_ref().filter(|status| status.target_version.is_some()) else {
        return Vec::new();
    };
    let measured = status.rollout.evidence.iter().flat_map(|evidence| &evidence.analysis);
    let detail = |analysis: &AnalysisStatus| AnalysisDetail {
        name: analysis.name.clone(),
        target: analysis.target.clone(),
        control: analysis.control.clone(),
        limit: limit(config, &analysis.name),
        verdict: format!("{:?}", analysis.verdict),
        at: analysis.measure_time.as_ref().map(|time| time.0.as_second()),
    };
    measured.map(detail).collect()
}

/// Returns the maximum result in words, from the present spec.
fn limit(config: &VersionedConfig, name: &str) -> String {
    let Some(analysis) = config.spec.rollout.analysis.iter().find(|analysis| analysis.name == name) else {
        return String::new();
    };
    let ratio = analysis.max_ratio.as_ref().map(|ratio| format!("{ratio} times the other pods"));
    analysis.max.iter().cloned().chain(ratio).collect::<Vec<_>>().join(", or ")
}

/// Returns when versions may continue, if they wait for a time.
pub(crate) fn opening_time(rollout: &RolloutStatus) -> Option<i64> {
    Some(rollout.gate.as_ref()?.until_time.as_ref()?.0.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::page::reply::to_json;

    fn config(spec: &Value, status: &Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn ready(reason: &str, message: &str) -> Value {
        json!({"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn the_time_is_that_of_the_status_whatever_the_condition_says() {
        let time_of = |gate: &Value| {
            let mut status = json!({"rollout": {"gate": gate}});
            let message = "the config is on hold until 2027-01-01T00:00:00Z: until 2028-01-01T00:00:00Z";
            status["conditions"] = json!([ready("OnHold", message)]);
            opening_time(&config(&json!({}), &status).status.unwrap().rollout)
        };
        assert_eq!(time_of(&json!({"reason": "OnHold", "untilTime": "2026-01-01T00:00:00Z"})), Some(1_767_225_600));
        assert_eq!(time_of(&json!({"reason": "OnHold"})), None);
        assert_eq!(time_of(&Value::Null), None);
    }

    #[test]
    fn numbers_stand_beside_their_limit() {
        let query = |name: &str, more: Value| {
            let mut query = json!({"name": name, "prometheus": {"address": "http://p", "query": "x"}});
            query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            query
        };
        let spec = json!({"rollout": {"analysis": [query("errors", json!({"max": "0.01", "maxRatio": "1.5"}))]}});
        let mut status = json!({"targetVersion": "2", "rollout": {"evidence": {"analysis": [
            {"name": "errors", "verdict": "Bad", "target": "0.25", "control": "0.002", "measureTime": "2026-01-01T00:00:00Z"},
            {"name": "gone", "verdict": "Pending"}]}}});
        let shown = to_json(&analyses(&config(&spec, &status)));
        let first = json!({"name": "errors", "target": "0.25", "control": "0.002", "limit": "0.01, or 1.5 times the other pods",
            "verdict": "Bad", "at": 1_767_225_600});
        assert_eq!(shown, json!([first, {"name": "gone", "limit": "", "verdict": "Pending"}]));
        status["targetVersion"] = Value::Null;
        assert_eq!(analyses(&config(&spec, &status)), []);
    }

    #[test]
    fn decisions_are_about_the_version_that_is_requested() {
        let part =
            json!({"kind": "ConfigMap", "name": "shop-2", "uid": "u", "digest": format!("sha256:{}", "0".repeat(64))});
        let versions = json!([{"version": "2", "state": "Target", "keys": 1, "bytes": 1, "parts": [part]}]);
        let mut status = json!({"currentVersion": "1", "versions": versions});
        let approved = config(&json!({"version": "2", "rollout": {"approval": {"required": 2}}}), &status);
        let digest = nudge_core::governance::sealed_digest(requested_version(&approved).unwrap());
        let decide = |approver: &str, decision: &str, digest: &str, second: u32| -> VersionApproval {
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval",
                "metadata": {"name": approver, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "spec": {"configName": "shop", "version": "2", "digest": digest, "decision": decision, "reason": "why", "approver": approver},
            }))
            .unwrap()
        };
        let approvals = [
            decide("bob", "Approve", &digest, 2),
            decide("bob", "Approve", &digest, 1),
            decide("eve", "Approve", "sha256:other", 1),
            decide("dora", "Deny", &digest, 3),
        ];
        let shown = serde_json::to_value(approval(&approved, &approvals)).unwrap();
        let names: Vec<_> = shown["given"]
            .as_array()
            .unwrap()
            .iter()
            .map(|given| (given["approver"].clone(), given["at"].clone()))
            .collect();
        assert_eq!(
            names,
            [(json!("dora"), json!("2026-01-01T00:00:03Z")), (json!("bob"), json!("2026-01-01T00:00:01Z"))]
        );
        assert_eq!((&shown["version"], &shown["required"]), (&json!("2"), &json!(2)));
        assert_eq!(shown["digest"], digest["sha256:".len()..][..32]);
        assert_eq!(approval(&config(&json!({"version": "2"}), &status), &approvals), None);
        // A policy of the cluster requires it.
        status["conditions"] = json!([ready("AwaitingApproval", "x")]);
        assert_eq!(approval(&config(&json!({"version": "2"}), &status), &approvals).unwrap().required, None);
    }
}
