//! The report of `kubectl nudge status`, as text and as a document.

mod approvals;
mod pods;
#[cfg(test)]
mod report_tests;
mod report_text;
mod sources;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use nudge_api::{EvidenceStatus, GateStatus, PodCounts, RolloutStage, VersionedConfig, Watch};
use nudge_core::governance::short_digest;
use nudge_core::identity::Identity;
use nudge_core::pods::PodState;
use nudge_core::rollout::assigned_version;
use serde::Serialize;

pub(crate) use self::approvals::{ApprovalReport, needs_approval, requested_version};
use self::pods::PodReport;
pub(crate) use self::pods::explain_difference;
pub(crate) use self::report_text::config_table;
pub(crate) use self::sources::SourceReport;
use super::rollout_report::{StepReport, TargetCount, step_report};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    namespace: String,
    pub(crate) config: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<RolloutStage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_secret: Option<String>,
    on_hold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepReport>,
    /// The period during which a step is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<Watch>,
    /// The evidence for and against the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<EvidenceStatus>,
    counts: PodCounts,
    /// The number of pods by version of their agent.
    agents: BTreeMap<String, usize>,
    conditions: Vec<Condition>,
    /// The sources of its versions, if they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceReport>,
    /// The digest of the requested version, if it needs approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// The decisions about the requested version, if they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvals: Vec<ApprovalReport>,
    /// The reason why the rollout waits although nothing is wrong with the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<GateStatus>,
    pods: Vec<PodReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl Condition {
    pub(crate) fn new(condition: &v1::Condition) -> Self {
        Self {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        }
    }
}

impl Report {
    /// Reports on a config; `pods` may be those of all configs.
    pub(crate) fn new(config: &VersionedConfig, pods: &[PodState]) -> Self {
        let (name, namespace) = (
            config.metadata.name.as_deref().unwrap_or_default(),
            config.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let status = config.status.clone().unwrap_or_default();
        let identity = Identity::of(config);
        let has_config =
            |pod: &&PodState| pod.namespace == namespace && pod.configs.iter().any(|config| config.as_str() == name);
        let pods: Vec<&PodState> = pods.iter().filter(has_config).collect();
        let mut count = TargetCount::default();
        for pod in pods.iter().filter(|pod| pod.is_live()) {
            count.add(&status, assigned_version(&status, identity, pod));
        }
        let mut reports: Vec<PodReport> = pods.iter().map(|pod| PodReport::new(pod, name, identity, &status)).collect();
        reports.sort_by(|first, second| (&first.workload, &first.pod).cmp(&(&second.workload, &second.pod)));
        let mut agents = BTreeMap::new();
        for pod in &reports {
            *agents.entry(pod.agent.clone()).or_insert(0) += 1;
        }
        Self { agents, pods: reports, ..Self::without_pods(config, count) }
    }

    /// Reports on a config without a list of its pods.
    pub(crate) fn without_pods(config: &VersionedConfig, count: TargetCount) -> Self {
        let status = config.status.clone().unwrap_or_default();
        Self {
            step: step_report(config, count),
            state: status.state().as_str().to_owned(),
            stage: status.rollout.stage,
            desired: config.requested_version().map(str::to_owned),
            on_hold: config.spec.rollout.hold.is_some(),
            watch: status.rollout.watch,
            evidence: status.rollout.evidence,
            conditions: status.conditions.iter().map(Condition::new).collect(),
            agents: BTreeMap::new(),
            sources: Vec::new(),
            digest: requested_version(config).filter(|_| needs_approval(config)).map(short_digest),
            approvals: Vec::new(),
            gate: status.rollout.gate,
            pods: Vec::new(),
            counts: status.pods,
            current: status.current_version,
            target: status.target_version,
            previous: status.previous_version,
            published: status.published_version,
            published_secret: status.published_secret_version,
            namespace: config.metadata.namespace.clone().unwrap_or_default(),
            config: config.metadata.name.clone().unwrap_or_default(),
        }
    }
}
