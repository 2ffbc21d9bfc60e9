//! What keeps a version from pods, or judges it, besides the pods themselves: approvals, times and metrics.

use nudge_api::{AnalysisStatus, RolloutStatus, VersionApproval, VersionedConfig};
use nudge_core::governance::short_digest;
use serde::Serialize;

use crate::output::status::{ApprovalReport, asked_for, needs_approval};

/// What users have decided about the version that is asked for. Whether that is enough, the condition Ready says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalDetail {
    version: String,
    /// Digest of the content that is shown.
    digest: String,
    /// How many must approve it, by the spec; policies of the cluster can ask for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<u32>,
    pub(crate) given: Vec<ApprovalReport>,
}

/// One number that the target is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnalysisDetail {
    name: String,
    /// Result for the pods with the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Result for the pods without the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    /// How high it may be.
    limit: String,
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
}

/// Absent where versions need no approval.
pub(crate) fn approval<'a>(
    config: &VersionedConfig,
    approvals: impl IntoIterator<Item = &'a VersionApproval>,
) -> Option<ApprovalDetail> {
    let sealed = asked_for(config).filter(|_| needs_approval(config))?;
    let (version, digest) = (sealed.version.clone(), short_digest(sealed));
    let required = config.spec.rollout.approval.as_ref().map(|approval| approval.required);
    Some(ApprovalDetail { version, digest, required, given: ApprovalReport::all(config, approvals) })
}

/// What the target is judged by, while there is one.
pub(crate) fn analyses(config: &VersionedConfig) -> Vec<AnalysisDetail> {
    let Some(status) = config.status.as_ref().filter(|status| status.target_version.is_some()) else {
        return Vec::new();
    };
    let measured = status.rollout.evidence.iter().flat_map(|evidence| &evidence.analysis);
    let one = |it: &AnalysisStatus| AnalysisDetail {
        name: it.name.clone(),
        target: it.target.clone(),
        control: it.control.clone(),
        limit: limit(config, &it.name),
        verdict: format!("{:?}", it.verdict),
        at: it.measure_time.as_ref().map(|at| at.0.as_second()),
    };
    measured.map(one).collect()
}

/// How high the number may be, as the spec says now.
fn limit(config: &VersionedConfig, name: &str) -> String {
    let Some(analysis) = config.spec.rollout.analysis.iter().find(|it| it.name == name) else { return String::new() };
    let ratio = analysis.max_ratio.as_ref().map(|ratio| format!("{ratio} times the other pods"));
    analysis.max.iter().cloned().chain(ratio).collect::<Vec<_>>().join(", or ")
}

/// When versions may go on again, if it is time that they wait for.
pub(crate) fn opens(rollout: &RolloutStatus) -> Option<i64> {
    Some(rollout.withheld.as_ref()?.until_time.as_ref()?.0.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
        let of = |withheld: &Value| {
            let mut status = json!({"rollout": {"withheld": withheld}});
            let message = "the config is on hold until 2027-01-01T00:00:00Z: until 2028-01-01T00:00:00Z";
            status["conditions"] = json!([ready("OnHold", message)]);
            opens(&config(&json!({}), &status).status.unwrap().rollout)
        };
        assert_eq!(of(&json!({"reason": "OnHold", "untilTime": "2026-01-01T00:00:00Z"})), Some(1_767_225_600));
        assert_eq!(of(&json!({"reason": "OnHold"})), None);
        assert_eq!(of(&Value::Null), None);
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
        let shown = serde_json::to_value(analyses(&config(&spec, &status))).unwrap();
        let first = json!({"name": "errors", "target": "0.25", "control": "0.002", "limit": "0.01, or 1.5 times the other pods",
            "verdict": "Bad", "at": 1_767_225_600});
        assert_eq!(shown, json!([first, {"name": "gone", "limit": "", "verdict": "Pending"}]));
        status["targetVersion"] = Value::Null;
        assert_eq!(analyses(&config(&spec, &status)), []);
    }

    #[test]
    fn decisions_are_about_the_version_that_is_asked_for() {
        let part =
            json!({"kind": "ConfigMap", "name": "shop-2", "uid": "u", "digest": format!("sha256:{}", "0".repeat(64))});
        let versions = json!([{"version": "2", "state": "Target", "keys": 1, "bytes": 1, "parts": [part]}]);
        let mut status = json!({"currentVersion": "1", "versions": versions});
        let asks = config(&json!({"version": "2", "rollout": {"approval": {"required": 2}}}), &status);
        let digest = nudge_core::governance::sealed_digest(asked_for(&asks).unwrap());
        let one = |approver: &str, decision: &str, digest: &str, second: u32| -> VersionApproval {
            serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval",
                "metadata": {"name": approver, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
                "spec": {"configName": "shop", "version": "2", "digest": digest, "decision": decision, "reason": "why", "approver": approver},
            }))
            .unwrap()
        };
        let all = [
            one("bob", "Approve", &digest, 2),
            one("bob", "Approve", &digest, 1),
            one("eve", "Approve", "sha256:other", 1),
            one("dora", "Deny", &digest, 3),
        ];
        let shown = serde_json::to_value(approval(&asks, &all)).unwrap();
        let names: Vec<_> =
            shown["given"].as_array().unwrap().iter().map(|it| (it["approver"].clone(), it["at"].clone())).collect();
        assert_eq!(
            names,
            [(json!("dora"), json!("2026-01-01T00:00:03Z")), (json!("bob"), json!("2026-01-01T00:00:01Z"))]
        );
        assert_eq!((&shown["version"], &shown["required"]), (&json!("2"), &json!(2)));
        assert_eq!(shown["digest"], digest["sha256:".len()..][..32]);
        assert_eq!(approval(&config(&json!({"version": "2"}), &status), &all), None);
        // A policy of the cluster asks for it.
        status["conditions"] = json!([ready("AwaitingApproval", "x")]);
        assert_eq!(approval(&config(&json!({"version": "2"}), &status), &all).unwrap().required, None);
    }
}
