//! The approvals of the version that a config requests.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ApprovalDecision, ConditionType, Reason, VersionApproval, VersionStatus, VersionedConfig, find_condition,
};
use nudge_core::governance::sealed_digest;
use serde::Serialize;

/// The maximum number of approvals that a report has.
const MAX_APPROVALS: usize = 32;

/// Returns the requested version, if it is complete.
pub(crate) fn requested_version(config: &VersionedConfig) -> Option<&VersionStatus> {
    let status = config.status.as_ref()?;
    let requested = config.requested_version().or(status.desired_version.as_deref());
    status.version(requested.or(status.current_version.as_deref())?)
}

/// Returns whether versions of the config need approval, by its spec or by a policy.
pub(crate) fn needs_approval(config: &VersionedConfig) -> bool {
    let conditions = config.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = find_condition(conditions, ConditionType::Ready);
    config.spec.rollout.approval.is_some()
        || ready.is_some_and(|ready| ready.reason == Reason::AwaitingApproval.as_str())
}

/// A user's decision about a version. The condition Ready says whether it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalReport {
    approver: String,
    decision: ApprovalDecision,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

impl ApprovalReport {
    /// Returns the decisions about the present content of the requested version: the first of each user, and denials
    /// before approvals.
    pub(crate) fn list<'a>(
        config: &VersionedConfig,
        approvals: impl IntoIterator<Item = &'a VersionApproval>,
    ) -> Vec<Self> {
        let Some(sealed) = requested_version(config) else { return Vec::new() };
        let digest = sealed_digest(sealed);
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let is_for_version = |approval: &&VersionApproval| {
            let spec = &approval.spec;
            spec.config_name == name && spec.version == sealed.version && spec.digest == digest
        };
        let report = |approval: &VersionApproval| Self {
            approver: approval.spec.approver.clone(),
            decision: approval.spec.decision,
            reason: approval.spec.reason.clone(),
            at: approval.metadata.creation_timestamp.clone(),
        };
        let mut reports: Vec<Self> = approvals.into_iter().filter(is_for_version).map(report).collect();
        let order =
            |report: &Self| (report.decision == ApprovalDecision::Approve, report.at.as_ref().map(|time| time.0));
        reports.sort_by(|first, second| (order(first), &first.approver).cmp(&(order(second), &second.approver)));
        let mut approvers = BTreeSet::new();
        reports.retain(|report| approvers.insert((report.decision.as_str(), report.approver.clone())));
        reports.truncate(MAX_APPROVALS);
        reports
    }

    pub(super) fn text(&self) -> String {
        let Self { approver, decision, reason, .. } = self;
        let word = match decision {
            ApprovalDecision::Approve => "approved",
            ApprovalDecision::Deny => "DENIED",
        };
        format!("{word} by {approver}: {reason}")
    }
}
