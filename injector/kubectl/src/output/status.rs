//! The report of `kubectl nudge status`, as text and as a document.

use std::collections::{BTreeMap, BTreeSet};

use nudge_api::{BatchWatch, ConditionType, PodCounts, Reason, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_core::identity::Identity;
use nudge_core::pods::PodState;
use nudge_core::rollout::assigned_version;
use serde::Serialize;

use crate::output::table::{or_none, table};
use crate::output::visible;

/// The state of a config.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    namespace: String,
    pub(crate) config: String,
    phase: String,
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
    paused: bool,
    /// How long the batch is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<BatchWatch>,
    counts: PodCounts,
    /// The number of pods by version of their agent.
    agents: BTreeMap<String, usize>,
    conditions: Vec<Condition>,
    pods: Vec<PodReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

/// The version that a pod runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodReport {
    pod: String,
    /// Empty for a pod without a workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    workload: String,
    agent: String,
    ready: bool,
    /// The version that is assigned to the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    assigned: Option<String>,
    /// The version that the pod reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Why the rollout does not wait for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Reason>,
    /// Why the pod does not run the assigned version.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The warnings of injection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

fn pod_report(pod: &PodState, config: &str, identity: Identity, status: &VersionedConfigStatus) -> PodReport {
    let assigned = assigned_version(status, identity, pod).map(str::to_owned);
    let version = pod.runs(config).map(ToString::to_string);
    let skipped =
        status.rollout.skipped.iter().find(|skipped| skipped.uid == pod.uid.as_str()).map(|skipped| skipped.reason);
    let why = pod.report.as_ref().map(|report| report.state.explanation());
    let is_current = version == assigned && assigned.is_some() && why.is_none_or(|why| why.is_none());
    let message = (!is_current).then(|| {
        if pod.finished {
            "the pod has ended".to_owned()
        } else if assigned.is_none() {
            "the config has no current version yet".to_owned()
        } else {
            match why {
                None => "the agent has not reported yet".to_owned(),
                Some(None) if pod.by_restart => {
                    "the pod takes versions by a restart, and was not restarted yet".to_owned()
                }
                Some(None) => Reason::Applied.to_string(),
                Some(Some(why)) if why.message.is_empty() => why.reason.to_string(),
                Some(Some(why)) => why.to_string(),
            }
        }
    });
    PodReport {
        pod: pod.name.clone(),
        workload: pod.workload.clone(),
        agent: pod.agent.clone(),
        ready: pod.ready,
        assigned,
        version,
        skipped,
        message,
        warnings: pod.warnings.iter().flat_map(|text| text.lines()).map(str::to_owned).collect(),
    }
}

/// Reports on a config; `pods` may be those of all configs.
pub(crate) fn report(config: &VersionedConfig, pods: &[PodState]) -> Report {
    let (name, namespace) =
        (config.metadata.name.clone().unwrap_or_default(), config.metadata.namespace.clone().unwrap_or_default());
    let status = config.status.clone().unwrap_or_default();
    let identity = Identity::of(config);
    let subscribes = |pod: &&PodState| pod.namespace == namespace && pod.configs.iter().any(|of| of.as_str() == name);
    let mut reports: Vec<PodReport> =
        pods.iter().filter(subscribes).map(|pod| pod_report(pod, &name, identity, &status)).collect();
    reports.sort_by(|one, other| (&one.workload, &one.pod).cmp(&(&other.workload, &other.pod)));
    let mut agents = BTreeMap::new();
    for pod in &reports {
        *agents.entry(pod.agent.clone()).or_insert(0) += 1;
    }
    let condition = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| Condition {
        kind: it.type_.clone(),
        status: it.status.clone(),
        reason: it.reason.clone(),
        message: it.message.clone(),
    };
    Report {
        phase: status.phase.as_str().to_owned(),
        stage: status.rollout.stage,
        desired: config.spec.current.clone(),
        paused: config.spec.rollout.paused,
        watch: status.rollout.watch,
        conditions: status.conditions.iter().map(condition).collect(),
        agents,
        pods: reports,
        counts: status.pods,
        current: status.current,
        target: status.target,
        previous: status.previous,
        published: status.published,
        namespace,
        config: name,
    }
}

impl Report {
    /// The row in a list of configs.
    fn row(&self, with_namespace: bool) -> Vec<String> {
        let ready = self.conditions.iter().find(|it| it.kind == ConditionType::Ready.as_str() && it.status != "True");
        let row = vec![
            self.config.clone(),
            or_none(self.current.as_deref()),
            or_none(self.desired.as_deref()),
            self.phase.clone(),
            self.counts.summary.clone(),
            ready.map(|it| it.reason.clone()).unwrap_or_default(),
        ];
        if with_namespace { [vec![self.namespace.clone()], row].concat() } else { row }
    }

    /// The text for one config.
    pub(crate) fn text(&self) -> String {
        let mut lines = vec![
            ("Config", format!("{}/{}", self.namespace, self.config)),
            ("Current", or_none(self.current.as_deref())),
            ("Desired", or_none(self.desired.as_deref())),
        ];
        let stage = self.stage.map(|stage| format!(", {stage:?}")).unwrap_or_default();
        let paused = if self.paused { ", paused" } else { "" };
        lines.push(("Phase", format!("{}{stage}{paused}", self.phase)));
        for (name, version) in [("Target", &self.target), ("Previous", &self.previous), ("Published", &self.published)]
        {
            lines.extend(version.clone().map(|version| (name, version)));
        }
        if let Some(watch) = &self.watch {
            lines.push(("Watch", format!("{} s for each batch, because {}", watch.seconds, watch.reason)));
        }
        let counts = &self.counts;
        let summary = if counts.summary.is_empty() { "0/0" } else { &counts.summary };
        lines.push(("Pods", format!("{summary} updated, {} failed, {} skipped", counts.failed, counts.skipped)));
        if !self.agents.is_empty() {
            let agents = self.agents.iter().map(|(version, count)| format!("{version} ({count})"));
            lines.push(("Agents", agents.collect::<Vec<_>>().join(", ")));
        }
        let lines = lines.iter().map(|(name, value)| format!("{:<11}{}\n", format!("{name}:"), visible::line(value)));
        let mut text = lines.collect::<Vec<_>>().concat();
        if !self.conditions.is_empty() {
            let cells =
                |it: &Condition| vec![it.kind.clone(), it.status.clone(), it.reason.clone(), it.message.clone()];
            let cells: Vec<Vec<String>> = self.conditions.iter().map(cells).collect();
            text = format!("{text}\n{}", table(&["CONDITION", "STATUS", "REASON", "MESSAGE"], &cells));
        }
        if !self.pods.is_empty() {
            let cells = |pod: &PodReport| {
                let message = match (&pod.skipped, &pod.message) {
                    (Some(skipped), Some(message)) => format!("skipped ({skipped}); {message}"),
                    (Some(skipped), None) => format!("skipped ({skipped})"),
                    (None, message) => message.clone().unwrap_or_default(),
                };
                let ready = if pod.ready { "yes" } else { "no" }.to_owned();
                let version = |version: &Option<String>| or_none(version.as_deref());
                vec![
                    pod.pod.clone(),
                    or_none(Some(&pod.workload)),
                    version(&pod.version),
                    version(&pod.assigned),
                    ready,
                    pod.agent.clone(),
                    message,
                ]
            };
            let cells: Vec<Vec<String>> = self.pods.iter().map(cells).collect();
            text = format!(
                "{text}\n{}",
                table(&["POD", "WORKLOAD", "VERSION", "ASSIGNED", "READY", "AGENT", "MESSAGE"], &cells)
            );
        }
        let warnings = self.warnings();
        if !warnings.is_empty() {
            text = format!("{text}\n{}", table(&["INJECTED", "WARNING"], &warnings));
        }
        text
    }

    /// The warnings of injection, each once for a workload, or for a pod without one.
    fn warnings(&self) -> Vec<Vec<String>> {
        let mut all = BTreeSet::new();
        for pod in &self.pods {
            let owner = if pod.workload.is_empty() { &pod.pod } else { &pod.workload };
            all.extend(pod.warnings.iter().map(|warning| vec![owner.clone(), warning.clone()]));
        }
        all.into_iter().collect()
    }
}

/// A list of configs, one row each.
pub(crate) fn list(reports: &[Report], with_namespace: bool) -> String {
    let headers = ["NAMESPACE", "CONFIG", "CURRENT", "DESIRED", "PHASE", "PODS", "REASON"];
    let headers = if with_namespace { &headers[..] } else { &headers[1..] };
    let rows: Vec<Vec<String>> = reports.iter().map(|report| report.row(with_namespace)).collect();
    table(headers, &rows)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodCondition;
    use nudge_core::keys::PodUid;
    use nudge_core::pods::Report as CoreReport;
    use nudge_protocol::ConfigName;
    use serde_json::json;

    use super::*;

    fn pod(condition: Option<(&str, &str, &str)>) -> PodState {
        let report = condition.and_then(|(status, reason, message)| {
            CoreReport::read(&PodCondition {
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                ..PodCondition::default()
            })
        });
        PodState {
            namespace: "team".into(),
            name: "web-1".into(),
            uid: PodUid::new("u1").unwrap(),
            agent: "0.1.0".into(),
            configs: vec![ConfigName::new("shop").unwrap()],
            ready: true,
            report,
            ..PodState::default()
        }
    }

    fn config(status: &serde_json::Value) -> VersionedConfig {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop", "namespace": "team", "uid": "c"},
            "spec": {"current": "2"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_message_explains_why_a_pod_does_not_run_the_assigned_version() {
        let message = |condition, status: serde_json::Value| {
            report(&config(&status), &[pod(condition)]).pods.remove(0).message.unwrap_or_default()
        };
        let current = || json!({"current": "2"});
        assert_eq!(message(Some(("True", "Applied", "shop=2")), current()), "");
        assert_eq!(message(None, current()), "the agent has not reported yet");
        assert_eq!(
            message(Some(("False", "NoHandler", "shop=2; app catches no signal")), current()),
            "NoHandler: app catches no signal"
        );
        assert_eq!(
            message(Some(("False", "NoContact", "the agent is silent")), current()),
            "NoContact: the agent is silent"
        );
        assert_eq!(message(Some(("True", "Applied", "shop=1")), current()), "Applied");
        assert_eq!(message(None, json!({})), "the config has no current version yet");
    }

    #[test]
    fn a_document_omits_absent_fields() {
        let report = serde_json::to_value(report(&config(&json!({})), &[pod(None)])).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            keys(&report),
            ["agents", "conditions", "config", "counts", "desired", "namespace", "paused", "phase", "pods"]
        );
        assert_eq!(keys(&report["pods"][0]), ["agent", "message", "pod", "ready"]);
    }

    #[test]
    fn warnings_of_injection_are_shown_once_for_a_workload() {
        let of = |name: &str, workload: &str, warnings: Option<&str>| PodState {
            name: name.into(),
            workload: workload.into(),
            warnings: warnings.map(str::to_owned),
            ..pod(None)
        };
        let web = |name| of(name, "Deployment/web", Some("annotation x is not known\nthe agent may not be notified"));
        let pods = [
            web("web-1"),
            web("web-2"),
            of("bare", "", Some("the agent may not be notified")),
            of("api-1", "Deployment/api", None),
        ];
        let report = report(&config(&json!({"current": "2"})), &pods);
        let text = report.text();
        let (_, warnings) = text.split_once("INJECTED         WARNING\n").unwrap();
        let lines: Vec<&str> = warnings.lines().collect();
        let expected = [
            "Deployment/web   annotation x is not known",
            "Deployment/web   the agent may not be notified",
            "bare             the agent may not be notified",
        ];
        assert_eq!(lines, expected, "{text}");
        let json = json!(report.pods);
        assert_eq!((&json[0]["warnings"], json[1].get("warnings")), (&json!(["the agent may not be notified"]), None));
    }

    #[test]
    fn only_pods_of_the_config_are_listed_and_skipped_ones_are_marked() {
        let mut stranger = pod(None);
        stranger.namespace = "other".into();
        let status = json!({"current": "2", "phase": "Progressing", "pods": {"total": 1, "summary": "1/1"},
            "rollout": {"revision": 1, "stage": "Moving", "skipped": [{"name": "web-1", "uid": "u1", "reason": "NotReady"}]}});
        let report = report(&config(&status), &[stranger, pod(Some(("True", "Applied", "shop=2")))]);
        assert_eq!(report.pods.len(), 1);
        let text = report.text();
        assert!(text.contains("Phase:     Progressing, Moving\n"), "{text}");
        assert!(text.contains("web-1   <none>     2         2          yes     0.1.0   skipped (NotReady)"), "{text}");
        assert!(text.contains("POD     WORKLOAD   VERSION   ASSIGNED   READY   AGENT   MESSAGE\n"), "{text}");
        let list = list(&[report], true);
        assert!(list.starts_with("NAMESPACE   CONFIG   CURRENT   DESIRED   PHASE         PODS   REASON\n"), "{list}");
    }
}
