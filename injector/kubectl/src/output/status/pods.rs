//! The pods of a config in its report, and why a pod does not run the version that is assigned to it.

use nudge_api::{Reason, VersionedConfigStatus};
use nudge_core::identity::Identity;
use nudge_core::pods::{PodState, ReportState};
use nudge_core::rollout::assigned_version;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodReport {
    pub(super) pod: String,
    /// Empty for a pod without a workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) workload: String,
    pub(super) agent: String,
    pub(super) ready: bool,
    /// The version that is assigned to the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) assigned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The reason why the pod does not run the assigned version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// The warnings of injection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// Explains why a pod does not run the version of a config that is assigned to it. Returns `None` if the pod runs it.
pub(crate) fn explain_difference(
    pod: &PodState,
    config: &str,
    assigned: Option<&str>,
    version: Option<&str>,
) -> Option<String> {
    let state = pod.report.as_ref().map(|report| report.state_of(config));
    let explanation = state.as_ref().map(ReportState::explanation);
    let is_current =
        version == assigned && assigned.is_some() && explanation.is_none_or(|explanation| explanation.is_none());
    (!is_current).then(|| {
        if pod.is_finished() {
            "the pod has ended".to_owned()
        } else if pod.lacks_port {
            "no node has the pod's port free: for its Deployment set maxSurge 0 and maxUnavailable 1, or free the port"
                .to_owned()
        } else if assigned.is_none() {
            "the config has no current version yet".to_owned()
        } else {
            match explanation {
                None => "the agent has not reported yet".to_owned(),
                Some(None) if pod.is_by_restart() => {
                    "the pod takes versions by a restart, and was not restarted yet".to_owned()
                }
                Some(None) => Reason::Applied.to_string(),
                Some(Some(explanation)) if explanation.message.is_empty() => explanation.reason.to_string(),
                Some(Some(explanation)) => explanation.to_string(),
            }
        }
    })
}

impl PodReport {
    pub(super) fn new(pod: &PodState, config: &str, identity: Identity, status: &VersionedConfigStatus) -> Self {
        let assigned = assigned_version(status, identity, pod).map(str::to_owned);
        let version = pod.runs(config).map(ToString::to_string);
        Self {
            pod: pod.name.clone(),
            workload: pod.workload_name().to_owned(),
            agent: pod.agent.version.clone(),
            ready: pod.is_ready(),
            message: explain_difference(pod, config, assigned.as_deref(), version.as_deref()),
            assigned,
            version,
            warnings: pod.warnings.iter().flat_map(|text| text.lines()).map(str::to_owned).collect(),
        }
    }
}
