//! The report of `kubectl nudge status`, as text and as a document.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{
    ApprovalDecision, ConditionType, ConfigSource, EvidenceStatus, PodCounts, Reason, RolloutStage, VersionApproval,
    VersionStatus, VersionedConfig, VersionedConfigStatus, Watch, WithheldStatus, find_condition,
};
use nudge_core::governance::{sealed_digest, short_digest};
use nudge_core::identity::Identity;
use nudge_core::pods::{PodState, ReportState};
use nudge_core::rollout::assigned_version;
use serde::Serialize;

use super::rollout::{StepReport, said_of_analysis, said_of_evidence, said_of_watch, step};
use crate::output::table::{or_none, table};
use crate::output::visible;

/// The state of a config.
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
    held: bool,
    /// How far the rollout is.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepReport>,
    /// How long a step is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<Watch>,
    /// What is known for and against the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<EvidenceStatus>,
    counts: PodCounts,
    /// The number of pods by version of their agent.
    agents: BTreeMap<String, usize>,
    conditions: Vec<Condition>,
    /// What makes its versions, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceReport>,
    /// The digest of the version that is asked for, where it needs approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// What users have decided about the version that is asked for, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvals: Vec<ApprovalReport>,
    /// What keeps the version from going on although nothing is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<WithheldStatus>,
    pods: Vec<PodReport>,
}

/// The version that is asked for, if it is complete.
pub(crate) fn asked_for(config: &VersionedConfig) -> Option<&VersionStatus> {
    let status = config.status.as_ref()?;
    status.version(
        config.spec.version.as_deref().or(status.desired_version.as_deref()).or(status.current_version.as_deref())?,
    )
}

/// Returns whether its versions need approval, by its spec or by a policy.
pub(crate) fn needs_approval(config: &VersionedConfig) -> bool {
    let conditions = config.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = find_condition(conditions, ConditionType::Ready);
    config.spec.rollout.approval.is_some() || ready.is_some_and(|it| it.reason == Reason::AwaitingApproval.as_str())
}

/// What a user has decided about a version. Whether it counts, the condition Ready says.
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
    /// How many are said of a version: those who deny it first.
    const MAX_SHOWN: usize = 32;

    /// Returns the approvals about the version that is asked for, as it is: of each user the first, those who deny it
    /// before those who approve it.
    pub(crate) fn all<'a>(
        config: &VersionedConfig,
        approvals: impl IntoIterator<Item = &'a VersionApproval>,
    ) -> Vec<Self> {
        let Some(sealed) = asked_for(config) else { return Vec::new() };
        let digest = sealed_digest(sealed);
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let about = approvals.into_iter().filter(|one| {
            one.spec.config_name == name && one.spec.version == sealed.version && one.spec.digest == digest
        });
        let one = |approval: &VersionApproval| Self {
            approver: approval.spec.approver.clone(),
            decision: approval.spec.decision,
            reason: approval.spec.reason.clone(),
            at: approval.metadata.creation_timestamp.clone(),
        };
        let mut all: Vec<Self> = about.map(one).collect();
        let order = |one: &Self| (one.decision == ApprovalDecision::Approve, one.at.as_ref().map(|at| at.0));
        all.sort_by(|one, other| (order(one), &one.approver).cmp(&(order(other), &other.approver)));
        let mut seen = BTreeSet::new();
        all.retain(|one| seen.insert((one.decision.as_str(), one.approver.clone())));
        all.truncate(Self::MAX_SHOWN);
        all
    }

    fn text(&self) -> String {
        let Self { approver, decision, reason, .. } = self;
        let word = match decision {
            ApprovalDecision::Approve => "approved",
            ApprovalDecision::Deny => "DENIED",
        };
        format!("{word} by {approver}: {reason}")
    }
}

/// A source of the config, and what has become of its newest content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceReport {
    source: String,
    ready: bool,
    reason: String,
    message: String,
}

impl SourceReport {
    pub(crate) fn of(source: &ConfigSource) -> Self {
        let status = source.status.as_ref();
        let ready = status.and_then(|status| find_condition(&status.conditions, ConditionType::Ready));
        Self {
            source: source.metadata.name.clone().unwrap_or_default(),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            reason: ready.map(|ready| ready.reason.clone()).unwrap_or_default(),
            message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        }
    }

    fn text(&self) -> String {
        let Self { source, reason, message, .. } = self;
        if self.ready { source.clone() } else { format!("{source}, {reason}: {message}") }
    }
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
    /// Why the pod does not run the assigned version.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The warnings of injection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Why a pod does not run the version of a config that is assigned to it; nothing where it does.
pub(crate) fn why_not(pod: &PodState, config: &str, assigned: Option<&str>, version: Option<&str>) -> Option<String> {
    let state = pod.report.as_ref().map(|report| report.state_of(config));
    let why = state.as_ref().map(ReportState::explanation);
    let is_current = version == assigned && assigned.is_some() && why.is_none_or(|why| why.is_none());
    (!is_current).then(|| {
        if pod.finished {
            "the pod has ended".to_owned()
        } else if pod.lacks_port {
            "no node has the pod's port free: for its Deployment set maxSurge 0 and maxUnavailable 1, or free the port"
                .to_owned()
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
    })
}

fn pod_report(pod: &PodState, config: &str, identity: Identity, status: &VersionedConfigStatus) -> PodReport {
    let assigned = assigned_version(status, identity, pod).map(str::to_owned);
    let version = pod.runs(config).map(ToString::to_string);
    PodReport {
        pod: pod.name.clone(),
        workload: pod.workload.clone(),
        agent: pod.agent.clone(),
        ready: pod.ready,
        message: why_not(pod, config, assigned.as_deref(), version.as_deref()),
        assigned,
        version,
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
    let counted: Vec<&PodState> =
        pods.iter().filter(subscribes).filter(|pod| !pod.finished && !pod.terminating).collect();
    let target = status.target_version.as_deref();
    let has_target = |pod: &&&PodState| target.is_some() && assigned_version(&status, identity, pod) == target;
    let assigned = counted.iter().filter(has_target).count();
    Report { agents, pods: reports, ..without_pods(config, (assigned, counted.len())) }
}

/// The report without a list of pods; `counted` is how many have the target, and how many there are.
pub(crate) fn without_pods(config: &VersionedConfig, counted: (usize, usize)) -> Report {
    let status = config.status.clone().unwrap_or_default();
    let condition = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| Condition {
        kind: it.type_.clone(),
        status: it.status.clone(),
        reason: it.reason.clone(),
        message: it.message.clone(),
    };
    Report {
        step: step(config, counted),
        evidence: status.rollout.evidence.clone(),
        state: status.state().as_str().to_owned(),
        stage: status.rollout.stage,
        desired: config.spec.version.clone(),
        held: config.spec.rollout.hold.is_some(),
        watch: status.rollout.watch,
        conditions: status.conditions.iter().map(condition).collect(),
        agents: BTreeMap::new(),
        sources: Vec::new(),
        digest: asked_for(config).filter(|_| needs_approval(config)).map(short_digest),
        approvals: Vec::new(),
        withheld: status.rollout.withheld,
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

impl Report {
    /// The row in a list of configs.
    fn row(&self, with_namespace: bool) -> Vec<String> {
        let find = |kind: ConditionType, status| {
            self.conditions.iter().find(move |it| it.kind == kind.as_str() && (it.status == "True") == status)
        };
        let shown = find(ConditionType::Ready, false).or_else(|| find(ConditionType::Suspect, true));
        let row = vec![
            self.config.clone(),
            or_none(self.current.as_deref()),
            or_none(self.desired.as_deref()),
            self.state.clone(),
            self.counts.summary.clone(),
            shown.map(|it| it.reason.clone()).unwrap_or_default(),
        ];
        if with_namespace { [vec![self.namespace.clone()], row].concat() } else { row }
    }

    /// What is said of the config as a whole: names and texts.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("Config", format!("{}/{}", self.namespace, self.config)),
            ("Current", or_none(self.current.as_deref())),
            ("Desired", or_none(self.desired.as_deref())),
        ];
        let stage = self.stage.map(|stage| format!(", {stage:?}")).unwrap_or_default();
        let held = if self.held { ", on hold" } else { "" };
        lines.push(("State", format!("{}{stage}{held}", self.state)));
        for (name, version) in [
            ("Target", &self.target),
            ("Previous", &self.previous),
            ("Published", &self.published),
            ("Secret", &self.published_secret),
        ] {
            lines.extend(version.clone().map(|version| (name, version)));
        }
        lines.extend(self.sources.iter().map(|source| ("Source", source.text())));
        let asked = self.desired.as_ref().or(self.current.as_ref());
        let digest = self.digest.iter().zip(asked);
        lines.extend(digest.map(|(digest, version)| ("Digest", format!("{digest}, of version {version}"))));
        lines.extend(self.approvals.iter().map(|approval| ("Approval", approval.text())));
        let until = self.withheld.iter().filter_map(|withheld| Some((withheld, withheld.until_time.as_ref()?)));
        lines.extend(until.map(|(withheld, until)| ("Waits", format!("until {}, {}", until.0, withheld.reason))));
        lines.extend(self.step.as_ref().map(|step| ("Step", step.to_string())));
        lines.extend(self.watch.as_ref().map(|watch| ("Watch", said_of_watch(watch))));
        if let (Some(evidence), Some(target)) = (&self.evidence, &self.target) {
            let current = or_none(self.current.as_deref());
            lines.push(("Evidence", said_of_evidence(evidence, target, &current)));
            let analyses = evidence.analysis.iter();
            lines.extend(analyses.map(|one| ("Analysis", said_of_analysis(one, target, &current))));
        }
        let counts = &self.counts;
        let summary = if counts.summary.is_empty() { "0/0" } else { &counts.summary };
        lines.push(("Pods", format!("{summary} on target, {} failed", counts.failed)));
        if !self.agents.is_empty() {
            let agents = self.agents.iter().map(|(version, count)| format!("{version} ({count})"));
            lines.push(("Agents", agents.collect::<Vec<_>>().join(", ")));
        }
        lines
    }

    /// The text for one config.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines();
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
                let ready = if pod.ready { "yes" } else { "no" }.to_owned();
                let version = |version: &Option<String>| or_none(version.as_deref());
                vec![
                    pod.pod.clone(),
                    or_none(Some(&pod.workload)),
                    version(&pod.version),
                    version(&pod.assigned),
                    ready,
                    pod.agent.clone(),
                    pod.message.clone().unwrap_or_default(),
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
    let headers = ["NAMESPACE", "CONFIG", "CURRENT", "DESIRED", "STATE", "ON-TARGET", "REASON"];
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
            "spec": {"version": "2"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_source_says_why_its_newest_content_is_not_asked_for() {
        let of = |status: &str, reason: &str| {
            let ready = json!({
                "type": "Ready", "status": status, "reason": reason, "message": "app.json must be JSON",
                "lastTransitionTime": "2026-01-01T00:00:00Z"
            });
            let source: ConfigSource = serde_json::from_value(json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"},
                "spec": {"from": {"configMap": {"name": "shop-live"}}}, "status": {"conditions": [ready]},
            }))
            .unwrap();
            let mut shown = report(&config(&json!({"currentVersion": "2"})), &[]);
            shown.sources = vec![SourceReport::of(&source)];
            shown.text()
        };
        assert!(of("False", "Invalid").contains("\nSource:    shop, Invalid: app.json must be JSON\n"));
        assert!(of("True", "Activated").contains("\nSource:    shop\n"));
    }

    #[test]
    fn the_digest_that_an_approval_is_about_is_that_of_the_version_that_is_asked_for() {
        let version = |name: &str, digest: &str| {
            let part = json!({"kind": "ConfigMap", "name": "shop", "uid": "u", "digest": digest});
            json!({"version": name, "state": "Available", "keys": 1, "bytes": 1, "parts": [part]})
        };
        let versions = [version("1", "sha256:a"), version("2", "sha256:b")];
        let mut asks = config(&json!({"currentVersion": "1", "versions": versions}));
        assert!(!report(&asks, &[]).text().contains("Digest"));
        asks.spec.rollout.approval = Some(nudge_api::Approval::default());
        let of = |asks: &VersionedConfig, version: &str| {
            let digest = short_digest(asks.status.as_ref().unwrap().version(version).unwrap());
            let one = report(asks, &[]);
            let line = format!("\nDigest:    {digest}, of version {version}\n");
            one.text().contains(&line) && serde_json::to_value(&one).unwrap()["digest"] == digest
        };
        assert!(of(&asks, "2"));
        asks.spec.version = None;
        assert!(of(&asks, "1"));
    }

    #[test]
    fn the_message_explains_why_a_pod_does_not_run_the_assigned_version() {
        let message = |condition, status: serde_json::Value| {
            report(&config(&status), &[pod(condition)]).pods.remove(0).message.unwrap_or_default()
        };
        let current = || json!({"currentVersion": "2"});
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
        let waits = PodState { lacks_port: true, ready: false, ..pod(None) };
        for status in [current(), json!({})] {
            let message = report(&config(&status), std::slice::from_ref(&waits)).pods.remove(0).message.unwrap();
            assert!(message.contains("port free") && message.contains("maxSurge 0"), "{message}");
        }
    }

    #[test]
    fn a_document_omits_absent_fields() {
        let report = serde_json::to_value(report(&config(&json!({})), &[pod(None)])).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(
            keys(&report),
            ["agents", "conditions", "config", "counts", "desired", "held", "namespace", "pods", "state"]
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
        let report = report(&config(&json!({"currentVersion": "2"})), &pods);
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
    fn only_pods_of_the_config_are_listed() {
        let mut stranger = pod(None);
        stranger.namespace = "other".into();
        let status = json!({"currentVersion": "2", "pods": {"total": 1, "summary": "1/1"},
            "rollout": {"stage": "Moving"}, "internal": {"revision": 1}});
        let report = report(&config(&status), &[stranger, pod(Some(("True", "Applied", "shop=2")))]);
        assert_eq!(report.pods.len(), 1);
        let text = report.text();
        assert!(text.contains("State:     Progressing, Moving\n"), "{text}");
        assert!(text.contains("web-1   <none>     2         2          yes     0.1.0\n"), "{text}");
        assert!(text.contains("POD     WORKLOAD   VERSION   ASSIGNED   READY   AGENT   MESSAGE\n"), "{text}");
        let list = list(&[report], true);
        assert!(
            list.starts_with("NAMESPACE   CONFIG   CURRENT   DESIRED   STATE         ON-TARGET   REASON\n"),
            "{list}"
        );
    }

    #[test]
    fn the_text_and_the_document_say_how_the_target_is_judged() {
        let status = json!({"currentVersion": "1", "targetVersion": "2", "internal": {"threshold": 1_u64 << 32}, "rollout": {
            "stage": "Moving", "step": 1,
            "watch": {"seconds": 36, "reason": "the readiness probe of container app needs 36 s", "weak": "pod web-2 has no readiness or liveness probe"},
            "evidence": {"assigned": 1, "harmed": 1, "unassigned": 3, "notWaitedFor": 2,
                "reason": "ContainerRestarted", "first": {"name": "web-1", "reason": "ContainerRestarted", "afterSeconds": 12},
                "analysis": [{"name": "errors", "verdict": "Pending", "target": "0.25", "control": "0.002", "measureTime": "2026-11-25T08:00:00Z"},
                    {"name": "latency", "verdict": "Inconclusive"}]}}});
        let ended = PodState { name: "web-0".into(), finished: true, ..pod(None) };
        let terminating = PodState { name: "web-2".into(), terminating: true, ..pod(None) };
        let report = report(&config(&status), &[pod(None), ended, terminating]);
        let text = report.text();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| ["Step:", "Watch", "Evide", "Analy"].contains(&&line[..5.min(line.len())]))
            .collect();
        let expected = [
            "Step:      1 of 4, version 2 is assigned to 1 of 1 pods",
            "Watch:     36 s for each step, because the readiness probe of container app needs 36 s; weak evidence: pod web-2 has no readiness or \
             liveness probe",
            "Evidence:  1 of 1 pod on 2 restarted (first: web-1, 12 s after its notification); of 3 on 1 none; 2 not waited for",
            "Analysis:  errors 0.25 on 2, 0.002 on 1: Pending, measured 2026-11-25T08:00:00Z",
            "Analysis:  latency no number: Inconclusive, not measured yet",
        ];
        assert_eq!(lines, expected, "{text}");
        let document = serde_json::to_value(&report).unwrap();
        assert_eq!(document["step"], json!({"number": 1, "of": 4, "version": "2", "assigned": 1, "pods": 1}));
        assert_eq!(
            (&document["watch"], &document["evidence"]),
            (
                &status["rollout"]["watch"],
                &json!({
            "assigned": 1, "harmed": 1, "unassigned": 3, "unassignedHarmed": 0, "notWaitedFor": 2,
            "reason": "ContainerRestarted", "first": {"name": "web-1", "reason": "ContainerRestarted", "afterSeconds": 12},
            "analysis": status["rollout"]["evidence"]["analysis"]})
            )
        );
    }

    #[test]
    fn a_list_names_a_config_that_is_suspect() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let row = |conditions: &[serde_json::Value]| {
            report(&config(&json!({"currentVersion": "2", "conditions": conditions})), &[]).row(false)
        };
        let ready = condition("Ready", "True", "Current");
        assert_eq!(row(std::slice::from_ref(&ready))[5], "");
        assert_eq!(row(&[ready, condition("Suspect", "True", "Suspect")])[5], "Suspect");
        let waits = condition("Ready", "False", "Progressing");
        assert_eq!(row(&[waits, condition("Suspect", "True", "Suspect")])[5], "Progressing");
    }

    #[test]
    fn the_text_and_the_document_say_until_when_a_version_waits() {
        let mut status = json!({"currentVersion": "1", "targetVersion": "2", "rollout": {"withheld": {"reason": "OutsideWindow", "untilTime": "2026-01-01T08:00:00Z"}}});
        let one = report(&config(&status), &[]);
        assert!(one.text().contains("\nWaits:     until 2026-01-01T08:00:00Z, OutsideWindow\n"), "{}", one.text());
        assert_eq!(serde_json::to_value(&one).unwrap()["withheld"], status["rollout"]["withheld"]);
        // The condition says the rest.
        status["rollout"]["withheld"] = json!({"reason": "AwaitingApproval"});
        assert!(!report(&config(&status), &[]).text().contains("Waits"));
    }
}
