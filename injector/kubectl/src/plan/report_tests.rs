//! Plans of made-up clusters: what is foreseen of pods, containers, times, blockers, and what nobody sees.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use nudge_api::PartKind;
use nudge_core::governance::Policies;
use nudge_core::restart::Workload;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::cluster_facts::{ClusterFacts, MissingRight};
use super::planned_version::PlannedVersion;
use super::report::{Subject, VersionPlan};
use crate::attention::AttendedKind;
use crate::rights::Right;
use crate::version::stored::ContentsByKind;

const NOW: &str = "2026-11-28T12:00:00Z";

/// A pod of Deployment `web` whose container reads ConfigMap `game` by the mount that moved, or by a variable.
fn pod(name: &str, annotations: &Value, app: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
               "lastTransitionTime": "2026-11-28T11:00:00Z"})
    };
    let agent = json!({"name": "nudge-agent", "restartPolicy": "Always", "env": [
        {"name": "NUDGE_CONFIGS", "value": "game"},
        {"name": "NUDGE_NOTIFY", "value": if annotations.is_null() { "" } else { "app=SIGHUP" }}]});
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"nudge.dev/agent": "1", "pod-template-hash": "7d"},
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d", "uid": "r", "controller": true}]},
        "spec": {"initContainers": [agent], "containers": [app]},
        "status": {"phase": "Running", "conditions": [condition("Ready", "", ""),
            condition("nudge.dev/ConfigCurrent", "Applied", "game=1")]},
    })
}

fn app(fields: &Value) -> Value {
    let mut app = json!({"name": "app", "volumeMounts": [{"name": "nudge-share", "mountPath": "/run/nudge"}]});
    for (name, value) in fields.as_object().unwrap() {
        app[name] = value.clone();
    }
    app
}

fn contents(value: &str) -> ContentsByKind {
    let map = [("lives".to_owned(), Zeroizing::new(value.as_bytes().to_vec()))].into();
    [(PartKind::ConfigMap, map)].into()
}

/// A plan of version 2 of config `game`, whose version 1 is current, with this spec and these pods.
fn subject(spec: &Value, pods: &[Value]) -> Subject {
    let version = |name: &str| {
        json!({"version": name, "state": "Available", "keys": 1, "bytes": 1,
               "parts": [{"kind": "ConfigMap", "name": format!("game-{name}"), "uid": name, "digest": name}]})
    };
    let config = serde_json::from_value(json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "game", "namespace": "shop", "uid": "c", "generation": 3}, "spec": spec,
        "status": {"observedGeneration": 3, "currentVersion": "1", "versions": [version("1"), version("2")]},
    }));
    let planned = PlannedVersion {
        config: config.unwrap(),
        requested_version: Some("2".to_owned()),
        version: Some("2".to_owned()),
        contents: Some(contents("5")),
        faults: Vec::new(),
        unread: Vec::new(),
    };
    let facts = ClusterFacts {
        pods: Some(pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect()),
        workloads: Vec::new(),
        policies: Policies::default(),
        approvals: Vec::new(),
        configs: Vec::new(),
        missing_rights: Vec::new(),
        unread: Vec::new(),
    };
    Subject { planned, facts, before: Some(contents("3")) }
}

fn plan(subject: &Subject) -> VersionPlan {
    VersionPlan::new(subject, NOW.parse::<Timestamp>().unwrap())
}

fn signal() -> Value {
    json!({"nudge.dev/notify": "SIGHUP"})
}

#[test]
fn a_plan_has_steps_containers_times_and_what_nobody_sees() {
    let probed = app(&json!({"readinessProbe": {"periodSeconds": 1, "failureThreshold": 1}}));
    let pods = [
        pod("web-a", &signal(), &probed),
        pod("web-b", &signal(), &probed),
        pod("web-c", &Value::Null, &app(&json!({}))),
    ];
    let rollout = json!({"steps": [{"pods": 1}, {"pods": "50%"}], "minReadySeconds": 10, "bakeSeconds": 60});
    let text = plan(&subject(&json!({"version": "2", "rollout": rollout}), &pods)).text();
    for line in [
        "Config:  shop/game\n",
        "Version: 2, in place of 1\n",
        "Keys:    lives changed\n",
        "Move:    3 pods in 3 steps\n",
        "Time:    at least 1m 20s, of which the bake is 1m; 2m 50s if pods take all of their time to acknowledge it\n",
        "\nSTEP   PODS   WATCH   PAUSE   NAMES\n",
        "\nDeployment/web   2      app         notified    SIGHUP\n",
        "\nDeployment/web   1      app         untouched   the agent's endpoint\n",
        "\nWORKLOAD         CONTAINERS WITHOUT READINESS PROBE\nDeployment/web   app\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("BLOCKED BY") && !text.contains("NOT KNOWN"), "{text}");
}

#[test]
fn pods_that_may_not_be_listed_are_not_said_to_be_none() {
    let mut hidden = subject(&json!({"version": "2"}), &[]);
    assert!(plan(&hidden).text().contains("Move:    none: the config moves no pod now\n"), "{}", plan(&hidden).text());
    hidden.facts.pods = None;
    let text = plan(&hidden).text();
    assert!(text.contains("Move:    not known, because you may not list pods\n"), "{text}");
}

#[test]
fn the_document_has_all_of_it_and_no_value() {
    let pods = [pod("web-a", &signal(), &app(&json!({})))];
    let document = serde_json::to_value(plan(&subject(&json!({"version": "2"}), &pods))).unwrap();
    assert_eq!(document["movement"], "steps");
    assert_eq!(document["steps"][0]["pods"], json!(["web-a"]));
    assert_eq!(document["time"]["bakeSeconds"], 60);
    assert_eq!(document["keys"], json!([{"key": "lives", "change": "changed"}]));
    let expected = json!([{"workload": "Deployment/web", "container": "app", "effect": "notified", "reason": "SIGHUP", "pods": 1}]);
    assert_eq!(document["containers"], expected);
    assert_eq!(document["unprobed"], json!([{"workload": "Deployment/web", "containers": ["app"]}]));
}

#[test]
fn all_that_will_hold_it_is_named() {
    let pods = [pod("web-a", &signal(), &app(&json!({})))];
    let rollout = json!({"approval": {}, "hold": {"reason": "the fair", "untilTime": "2026-11-29T00:00:00Z"}});
    let mut held = subject(&json!({"version": "1", "rollout": rollout}), &pods);
    held.facts.missing_rights = vec![
        MissingRight::OfNudge(AttendedKind::Workloads),
        MissingRight::OfUser(Right { verb: "update", group: "", resource: "configmaps" }),
    ];
    held.facts.unread = vec!["policies of the cluster: you may not".to_owned()];
    let reasons = |subject: &Subject| plan(subject).blockers.iter().map(|blocker| blocker.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&held), ["Forbidden", "AwaitingApproval", "OnHold"], "no workload is restarted");
    let text = plan(&held).text();
    assert!(text.contains("\nOnHold             2026-11-29T00:00:00Z   the config is on hold"), "{text}");
    assert!(text.contains("\nNOT KNOWN\npolicies of the cluster: you may not\n"), "{text}");
    // Nudge itself has counted the approvals.
    held.planned.config.spec.version = Some("2".to_owned());
    let status = held.planned.config.status.as_mut().unwrap();
    status.conditions =
        serde_json::from_value(json!([{"type": "Ready", "status": "False", "reason": "AwaitingApproval",
        "message": "jane denies version 2", "lastTransitionTime": NOW}]))
        .unwrap();
    let plan = plan(&held);
    let approval: Vec<&str> = plan
        .blockers
        .iter()
        .filter(|blocker| blocker.reason == "AwaitingApproval")
        .map(|blocker| blocker.message.as_str())
        .collect();
    assert_eq!(approval, ["jane denies version 2"]);
}

#[test]
fn another_config_of_the_same_pods_is_moved_first() {
    let mut both = pod("web-a", &signal(), &app(&json!({})));
    both["spec"]["initContainers"][0]["env"][0]["value"] = json!("game,menu");
    let mut waiting = subject(&json!({"version": "2"}), &[both]);
    let menu = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "menu"},
        "spec": {}, "status": {"currentVersion": "1", "targetVersion": "2", "rollout": {"stage": "Moving"}}});
    waiting.facts.configs = vec![serde_json::from_value(menu).unwrap()];
    assert_eq!(plan(&waiting).blockers.iter().map(|blocker| blocker.reason).collect::<Vec<_>>(), ["WaitingFor"]);
}

#[test]
fn workloads_that_read_the_object_are_restarted_where_they_can_be() {
    let deployment = |name: &str, paused: bool| {
        let env = json!([{"configMapRef": {"name": "game"}}]);
        let object: Deployment = serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": {
            "replicas": 2, "paused": paused, "selector": {},
            "template": {"spec": {"containers": [{"name": "app", "envFrom": env}]}}}}))
        .unwrap();
        Workload::of_deployment(&object).unwrap()
    };
    let restarts = |spec: &Value| {
        let mut subject = subject(spec, &[]);
        subject.facts.workloads = vec![deployment("old", true), deployment("api", false)];
        serde_json::to_value(plan(&subject)).unwrap()["restarts"].clone()
    };
    let reads = "its pods read ConfigMap game without an agent";
    let row = |name: &str, effect: &str, reason: String| json!({"workload": format!("Deployment/{name}"), "pods": 2, "effect": effect, "reason": reason});
    let paused = "but Deployment/old is paused; its pods are replaced when it is resumed";
    assert_eq!(
        restarts(&json!({"version": "2", "objects": ["ConfigMap"]})),
        json!([row("api", "restarted", reads.to_owned()), row("old", "untouched", format!("{reads}, {paused}")),])
    );
    let ignored = restarts(&json!({"version": "2", "objects": ["ConfigMap"], "agentlessPolicy": "Ignore"}));
    assert_eq!(ignored[0], row("api", "untouched", format!("{reads}, and spec.agentlessPolicy is Ignore")));
    assert_eq!(restarts(&json!({"version": "2"})), json!([]), "the object is not the config's");
}

#[test]
fn what_shows_that_a_container_took_the_version_is_named() {
    let annotations = json!({"nudge.dev/notify": "SIGHUP", "nudge.dev/verify.app": "workers within 45s"});
    let subject = subject(&json!({"version": "2"}), &[pod("web-a", &annotations, &app(&json!({})))]);
    let container = &serde_json::to_value(plan(&subject)).unwrap()["containers"][0];
    assert_eq!(container["reason"], "SIGHUP, verified by workers");
}

#[test]
fn who_reads_no_key_that_changes_is_left_alone() {
    let container = |keys: &str, is_known: bool| {
        let annotations = json!({"nudge.dev/notify": "SIGHUP", "nudge.dev/keys.app": keys});
        let mut subject = subject(&json!({"version": "2"}), &[pod("web-a", &annotations, &app(&json!({})))]);
        subject.before = subject.before.filter(|_| is_known);
        let container = &serde_json::to_value(plan(&subject)).unwrap()["containers"][0];
        format!("{}: {}", container["effect"].as_str().unwrap(), container["reason"].as_str().unwrap())
    };
    assert_eq!(container("l*, other", true), "notified: SIGHUP");
    assert_eq!(container("other", true), "untouched: SIGHUP, but it reads no key that changes");
    assert_eq!(container("other", false), "notified: SIGHUP", "it is not known what changes");

    let workload = |env: &Value, objects: &Value| {
        let template = json!({"spec": {"containers": [{"name": "app", "env": env}]}});
        let spec = json!({"replicas": 2, "selector": {}, "template": template});
        let object: Deployment = serde_json::from_value(json!({"metadata": {"name": "api"}, "spec": spec})).unwrap();
        let mut subject = subject(&json!({"version": "2", "objects": objects}), &[]);
        subject.facts.workloads = vec![Workload::of_deployment(&object).unwrap()];
        serde_json::to_value(plan(&subject)).unwrap()["restarts"][0]["effect"].clone()
    };
    let from = |kind: &str, key: &str| json!({"name": "A", "valueFrom": {kind: {"name": "game", "key": key}}});
    let map = json!(["ConfigMap"]);
    assert_eq!(workload(&json!([from("configMapKeyRef", "lives")]), &map), "restarted");
    assert_eq!(workload(&json!([from("configMapKeyRef", "other")]), &map), "untouched");
    let both = json!([from("configMapKeyRef", "other"), from("secretKeyRef", "other")]);
    assert_eq!(workload(&both, &map), "untouched");
    let objects = json!(["ConfigMap", "Secret"]);
    assert_eq!(workload(&both, &objects), "untouched");
    let changed = json!([from("configMapKeyRef", "other"), from("secretKeyRef", "lives")]);
    assert_eq!(workload(&changed, &objects), "restarted");
}

#[test]
fn a_version_that_is_current_or_can_not_be_made_moves_nothing() {
    let pods = [pod("web-a", &signal(), &app(&json!({})))];
    let mut current = subject(&json!({"version": "1"}), &pods);
    current.planned.version = Some("1".to_owned());
    let text = plan(&current).text();
    assert!(
        text.contains("Keys:    none change\n") && text.contains("Move:    none: the version is current\n"),
        "{text}"
    );
    assert!(!text.contains("STEP") && !text.contains("notified"), "{text}");
    let mut refused = subject(&json!({"objects": ["ConfigMap"]}), &pods);
    refused.planned.version = None;
    refused.planned.faults = vec![nudge_api::Reason::Invalid.explained("the text breaks the rules")];
    let plan = plan(&refused);
    assert!(plan.text().contains("Version: a new version, in place of 1\n"), "{}", plan.text());
    assert_eq!((plan.blockers[0].reason, plan.steps.len()), ("Invalid", 0));
}
