//! The report as text and as a document.

use k8s_openapi::api::core::v1::PodCondition;
use nudge_api::ConfigSource;
use nudge_core::keys::PodUid;
use nudge_core::pods::{AgentState, PodPhase, Readiness, Removal, Report as CoreReport};
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
        agent: AgentState { version: "0.1.0".into(), ..AgentState::default() },
        configs: vec![ConfigName::new("shop").unwrap()],
        readiness: Readiness::Ready,
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
fn a_source_says_why_its_newest_content_is_not_requested() {
    let report_of = |status: &str, reason: &str| {
        let ready = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "app.json must be JSON",
            "lastTransitionTime": "2026-01-01T00:00:00Z"
        });
        let source: ConfigSource = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"},
            "spec": {"from": {"git": {"url": "https://git.example.com/shop"}}}, "status": {"conditions": [ready]},
        }))
        .unwrap();
        let mut report = Report::new(&config(&json!({"currentVersion": "2"})), &[]);
        report.sources = vec![SourceReport::new(&source)];
        report.text()
    };
    assert!(report_of("False", "Invalid").contains("\nSource:    shop, Invalid: app.json must be JSON\n"));
    assert!(report_of("True", "Activated").contains("\nSource:    shop\n"));
}

#[test]
fn the_digest_that_an_approval_is_about_is_that_of_the_version_that_is_requested() {
    let version = |name: &str, digest: &str| {
        let part = json!({"kind": "ConfigMap", "name": "shop", "uid": "u", "digest": digest});
        json!({"version": name, "state": "Available", "keys": 1, "bytes": 1, "parts": [part]})
    };
    let versions = [version("1", "sha256:a"), version("2", "sha256:b")];
    let mut asks = config(&json!({"currentVersion": "1", "versions": versions}));
    assert!(!Report::new(&asks, &[]).text().contains("Digest"));
    asks.spec.rollout.approval = Some(nudge_api::Approval::default());
    let names_digest = |config: &VersionedConfig, version: &str| {
        let digest = short_digest(config.status.as_ref().unwrap().version(version).unwrap());
        let report = Report::new(config, &[]);
        let line = format!("\nDigest:    {digest}, of version {version}\n");
        report.text().contains(&line) && serde_json::to_value(&report).unwrap()["digest"] == digest
    };
    assert!(names_digest(&asks, "2"));
    asks.spec.version = None;
    assert!(names_digest(&asks, "1"));
}

#[test]
fn the_message_explains_why_a_pod_does_not_run_the_assigned_version() {
    let message = |condition, status: serde_json::Value| {
        Report::new(&config(&status), &[pod(condition)]).pods.remove(0).message.unwrap_or_default()
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
    let waits = PodState { lacks_port: true, readiness: Readiness::Never, ..pod(None) };
    for status in [current(), json!({})] {
        let message = Report::new(&config(&status), std::slice::from_ref(&waits)).pods.remove(0).message.unwrap();
        assert!(message.contains("port free") && message.contains("maxSurge 0"), "{message}");
    }
}

#[test]
fn a_document_omits_absent_fields() {
    let report = serde_json::to_value(Report::new(&config(&json!({})), &[pod(None)])).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&report),
        ["agents", "conditions", "config", "counts", "desired", "namespace", "onHold", "pods", "state"]
    );
    assert_eq!(keys(&report["pods"][0]), ["agent", "message", "pod", "ready"]);
}

#[test]
fn warnings_of_injection_are_shown_once_for_a_workload() {
    let pod_of = |name: &str, workload: &str, warnings: Option<&str>| PodState {
        name: name.into(),
        workload: Some(workload).filter(|workload| !workload.is_empty()).map(Into::into),
        warnings: warnings.map(str::to_owned),
        ..pod(None)
    };
    let web = |name| pod_of(name, "Deployment/web", Some("annotation x is not known\nthe agent may not be notified"));
    let pods = [
        web("web-1"),
        web("web-2"),
        pod_of("bare", "", Some("the agent may not be notified")),
        pod_of("api-1", "Deployment/api", None),
    ];
    let report = Report::new(&config(&json!({"currentVersion": "2"})), &pods);
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
    let report = Report::new(&config(&status), &[stranger, pod(Some(("True", "Applied", "shop=2")))]);
    assert_eq!(report.pods.len(), 1);
    let text = report.text();
    assert!(text.contains("State:     Progressing, Moving\n"), "{text}");
    assert!(text.contains("web-1   <none>     2         2          yes     0.1.0\n"), "{text}");
    assert!(text.contains("POD     WORKLOAD   VERSION   ASSIGNED   READY   AGENT   MESSAGE\n"), "{text}");
    let list = config_table(&[report], true);
    assert!(list.starts_with("NAMESPACE   CONFIG   CURRENT   DESIRED   STATE         ON-TARGET   REASON\n"), "{list}");
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
    let ended = PodState { name: "web-0".into(), phase: PodPhase::Finished, ..pod(None) };
    let terminating = PodState { name: "web-2".into(), removal: Removal::Terminating, ..pod(None) };
    let report = Report::new(&config(&status), &[pod(None), ended, terminating]);
    let text = report.text();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| ["Step:", "Watch", "Evide", "Analy"].contains(&&line[..5.min(line.len())]))
        .collect();
    let expected = [
        "Step:      1 of 4, version 2 is assigned to 1 of 1 pod",
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
        Report::new(&config(&json!({"currentVersion": "2", "conditions": conditions})), &[]).row(false)
    };
    let ready = condition("Ready", "True", "Current");
    assert_eq!(row(std::slice::from_ref(&ready))[5], "");
    assert_eq!(row(&[ready, condition("Suspect", "True", "Suspect")])[5], "Suspect");
    let waits = condition("Ready", "False", "Progressing");
    assert_eq!(row(&[waits, condition("Suspect", "True", "Suspect")])[5], "Progressing");
}

#[test]
fn the_text_and_the_document_say_until_when_a_version_waits() {
    let mut status = json!({"currentVersion": "1", "targetVersion": "2", "rollout": {"gate": {"reason": "OutsideWindow", "untilTime": "2026-01-01T08:00:00Z"}}});
    let report = Report::new(&config(&status), &[]);
    assert!(report.text().contains("\nWaits:     until 2026-01-01T08:00:00Z, OutsideWindow\n"), "{}", report.text());
    assert_eq!(serde_json::to_value(&report).unwrap()["gate"], status["rollout"]["gate"]);
    // The condition says the rest.
    status["rollout"]["gate"] = json!({"reason": "AwaitingApproval"});
    assert!(!Report::new(&config(&status), &[]).text().contains("Waits"));
}
