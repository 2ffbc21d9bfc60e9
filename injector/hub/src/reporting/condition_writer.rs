//! Writes a condition to the API server, or to a stand-in.
//!
//! Several replicas may have reports of one pod; only the last report counts. Each write is bound to the
//! resourceVersion that it was decided on. If the pod has changed since, the API server refuses the write, and it is
//! decided again.

use std::error::Error;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use nudge_cluster::call::refusal;
use nudge_core::pods::{PodState, Report};
use nudge_protocol::pod::CONDITION;
use serde_json::json;

/// The field manager of the conditions that the hub writes.
const FIELD_MANAGER: &str = "nudge-hub";
/// The format of times in an object.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// The reason why a condition was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The pod is gone.
    #[error("the pod is gone")]
    Gone,
    /// The pod has changed since it was decided, or another pod has its name.
    #[error("the pod has changed since this was decided")]
    Changed,
    /// Nudge may not write the condition, or the pod is not valid for another reason.
    #[error("the API server refuses the condition")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// A later write may succeed, and conditions of other pods may be written now.
    #[error("the condition can't be written now")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The API server has too much to do, or can't be reached.
    #[error("no condition can be written now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// A writer of conditions: the API server, or a stand-in.
pub trait ConditionWriter: Send + Sync + 'static {
    /// Writes `condition` to the status of `pod`, unless the pod has changed, or another pod has its name by now.
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>>;
}

/// Writes to the API server; needs the right to patch `pods/status`.
impl ConditionWriter for Client {
    fn write<'a>(&'a self, pod: &'a PodState, condition: &'a Report) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let api: Api<Pod> = Api::namespaced(self.clone(), &pod.namespace);
            let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::Strategic(condition_patch(pod, condition));
            api.patch_status(&pod.name, &parameters, &patch).await.map(drop).map_err(write_error)
        })
    }
}

fn write_error(error: kube::Error) -> WriteError {
    match &error {
        // A webhook may refuse with any code.
        _ if refusal(&error).is_some() => WriteError::Refused(error.into()),
        kube::Error::Api(status) => match status.code {
            404 => WriteError::Gone,
            409 => WriteError::Changed,
            400..=428 => WriteError::Refused(error.into()),
            429 | 503 | 504 => WriteError::Unavailable(error.into()),
            // A webhook for the pods of one namespace may not answer.
            _ => WriteError::Failed(error.into()),
        },
        _ => WriteError::Unavailable(error.into()),
    }
}

/// Returns a strategic merge patch: conditions of other types stay, and uid and resourceVersion identify the pod as it
/// was read.
fn condition_patch(pod: &PodState, condition: &Report) -> serde_json::Value {
    let mut fields = json!({
        "type": CONDITION, "status": condition.status(), "reason": condition.reason(), "message": condition.message(),
    });
    if pod.report.as_ref().is_none_or(|report| report.status() != condition.status()) {
        fields["lastTransitionTime"] = json!(jiff::Timestamp::now().strftime(TIME_FORMAT).to_string());
    }
    if let Some(time) = condition.at.and_then(|second| jiff::Timestamp::from_second(second).ok()) {
        fields["lastProbeTime"] = json!(time.strftime(TIME_FORMAT).to_string());
    }
    let mut metadata = json!({"uid": pod.uid.as_str()});
    if let Some(version) = &pod.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    json!({"metadata": metadata, "status": {"conditions": [fields]}})
}

#[cfg(test)]
mod tests {
    use nudge_api::Reason;
    use nudge_core::keys::PodUid;
    use nudge_core::pods::ReportState;

    use super::*;

    fn condition() -> Report {
        Report { versions: Vec::new(), state: ReportState::Acknowledged, reasons: Vec::new(), at: None }
    }

    #[test]
    fn the_time_of_transition_changes_with_the_status_only() {
        let pod = |state: ReportState| PodState {
            uid: PodUid::new("u").unwrap(),
            report: Some(Report { state, ..condition() }),
            ..PodState::default()
        };
        let [same, other] = [ReportState::Acknowledged, ReportState::of(Reason::Pending.explained("m"))].map(pod);
        let time = |pod: &PodState| {
            condition_patch(pod, &condition())["status"]["conditions"][0]["lastTransitionTime"].clone()
        };
        assert!(time(&same).is_null() && time(&other).is_string());
        assert!(time(&PodState::default()).as_str().unwrap().ends_with('Z'));
        assert_eq!(condition_patch(&same, &condition())["metadata"], json!({"uid": "u"}));
    }

    #[test]
    fn what_only_some_pods_have_is_no_trouble_of_the_api_server() {
        let says = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
            write_error(kube::Error::Api(Box::new(status)))
        };
        let of = |code: u16| says(code, "");
        assert!(matches!((of(404), of(409), of(403)), (WriteError::Gone, WriteError::Changed, WriteError::Refused(_))));
        assert!([429, 503, 504].into_iter().all(|code| matches!(of(code), WriteError::Unavailable(_))));
        assert!([500, 502].into_iter().all(|code| matches!(of(code), WriteError::Failed(_))));
        let denied = r#"admission webhook "w.example.com" denied the request: no"#;
        assert!([404, 409, 429, 500].into_iter().all(|code| matches!(says(code, denied), WriteError::Refused(_))));
        let silent = kube::Error::Service("refused".into());
        assert!(matches!(write_error(silent), WriteError::Unavailable(_)));
    }

    #[test]
    fn a_write_is_of_one_version_of_the_pod_and_says_when_the_report_came() {
        let pod =
            PodState { uid: PodUid::new("u").unwrap(), resource_version: Some("7".into()), ..PodState::default() };
        let made = condition_patch(&pod, &Report { at: Some(1_700_000_000), ..condition() });
        assert_eq!(made["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(made["status"]["conditions"][0]["lastProbeTime"], "2023-11-14T22:13:20Z");
        assert!(condition_patch(&pod, &condition())["status"]["conditions"][0].get("lastProbeTime").is_none());
    }
}
