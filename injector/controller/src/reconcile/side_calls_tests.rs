//! No error of any call except the write of the config's status keeps a rollout from its verdict and its return. A
//! condition shows each error with its cause.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConditionType, Reason, RolloutStage, VersionedConfigStatus, find_condition};
use nudge_cluster::index::Index;
use nudge_core::keys::{ConfigKey, PartMeta, PodUid};
use nudge_core::pods::{PodPhase, PodState, Readiness, Report, ReportState};
use nudge_protocol::{ConfigName, VersionName};
use serde_json::{Value, json};

use crate::Controller;
use crate::fake_api_server::{Call, FAULTS, FakeApiServer, InjectedFault, VALUE, controller_over, part, status};

struct Scene {
    controller: Arc<Controller>,
    key: ConfigKey,
    server: Arc<FakeApiServer>,
    index: Arc<Index>,
}

/// Returns a Deployment without agent that reads the published ConfigMap.
fn deployment() -> Value {
    let container = json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "web", "generation": 1, "resourceVersion": "1"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1},
    })
}

/// Returns a pod of a ReplicaSet without Deployment, with the same ConfigMap: it is evicted.
fn loose_pod() -> Value {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "loose", "uid": "loose", "controller": true});
    let container = json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": "shop"}}]});
    json!({
        "metadata": {"name": "loose-1", "namespace": "ns", "uid": "loose-1", "ownerReferences": [owner],
            "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn listed(path: &str, restarts: bool) -> Vec<Value> {
    match path.rsplit('/').next().unwrap() {
        "deployments" if restarts => vec![deployment()],
        "pods" if restarts => vec![loose_pod()],
        "replicasets" if restarts => {
            vec![json!({"metadata": {"name": "loose", "namespace": "ns", "uid": "loose"}, "spec": {"replicas": 1,
                "selector": {"matchLabels": {"app": "loose"}}, "template": {}}})]
        }
        _ => Vec::new(),
    }
}

fn answer(method: &str, path: &str, body: Value, restarts: bool) -> (u16, Value) {
    match method {
        "GET" if path.contains("/nodes/") => {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            (200, json!({"metadata": {"name": "node"}, "status": {"conditions": ready}}))
        }
        "GET" if path.ends_with("/configmaps/map-3") => {
            (200, json!({"metadata": {"name": "map-3", "namespace": "ns", "uid": "map-3"}, "data": {"a": "b"}}))
        }
        "GET" if !path.contains("nudge.dev") && !path.contains("/configmaps/") => {
            (200, json!({"metadata": {}, "items": listed(path, restarts)}))
        }
        "PUT" => {
            let mut object = body;
            let number = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u32>().ok());
            object["metadata"]["resourceVersion"] = json!((number.unwrap_or(1) + 1).to_string());
            (200, object)
        }
        "PATCH" => (200, deployment()),
        "DELETE" => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
        "POST" => (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
        _ => (404, status(404)),
    }
}

fn scene(config: &Value, restarts: bool) -> Scene {
    let (index, key) = (Arc::new(Index::default()), ConfigKey::parse("ns", "shop").unwrap());
    let server = Arc::<FakeApiServer>::default();
    let client = server.client(move |method, path, body| answer(method, path, body, restarts));
    index.set_enabled(["ns".to_owned()].into());
    for version in ["00", "0", "1", "2", "3"] {
        let name = format!("map-{version}");
        let prune = version.starts_with('0');
        index.put_part(key.clone(), PartMeta { prune, ..part(version, &name, &name) });
    }
    index.put_config(serde_json::from_value(config.clone()).unwrap());
    let controller = controller_over(client, Arc::clone(&index));
    controller.begin_to_lead();
    Scene { controller: Arc::new(controller), key, server, index }
}

fn pod(name: &str, number: u32, runs: &str, state: ReportState) -> PodState {
    let shop = ConfigName::new("shop").unwrap();
    PodState {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: PodUid::new(&format!("0af7651c-d43b-41d5-8e2f-{number:012}")).unwrap(),
        configs: vec![shop.clone()],
        workload: Some("Deployment/web".into()),
        node: Some("node".to_owned()),
        readiness: Readiness::Ready,
        containers_ready: true,
        phase: PodPhase::Running,
        report: Some(Report {
            versions: vec![(shop, VersionName::new(runs).ok())],
            state,
            reasons: Vec::new(),
            at: None,
        }),
        ..PodState::default()
    }
}

fn config(stage: &str, published: bool) -> Value {
    let version = |name: &str| {
        let part = json!({"kind": "ConfigMap", "name": format!("map-{name}"), "uid": format!("map-{name}"), "digest": "sha256:00"});
        json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
    };
    let old = "2026-01-01T00:00:00Z";
    let published = published.then_some("2");
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "shop", "namespace": "ns", "uid": "0af7651c-d43b-41d5-8e2f-000000000007", "resourceVersion": "1", "generation": 1},
        "spec": {"version": "2", "historyLimit": 1, "objects": published.map_or(json!([]), |_| json!(["ConfigMap"]))},
        "status": {
            "currentVersion": "1", "targetVersion": "2", "versions": [version("00"), version("0"), version("1"), version("2")],
            "publishedVersion": published, "publishTime": published.map(|_| old),
            "rollout": {"stage": stage, "step": 1, "stepTime": old, "progressTime": "2026-01-01T00:00:00.000000Z"},
            "internal": {"revision": 1, "threshold": 1_u64 << 32},
        },
    })
}

impl Scene {
    fn status(&self) -> VersionedConfigStatus {
        self.index.config(&self.key).unwrap().status.clone().unwrap_or_default()
    }

    /// Reconciles until the status meets the condition.
    async fn reconcile_until(&self, case: &str, is_met: impl Fn(&VersionedConfigStatus) -> bool) {
        for _ in 0..10 {
            let result = Box::pin(self.controller.reconcile(&self.key)).await;
            assert!(result.is_ok(), "{case}: {:?}", result.err());
            if is_met(&self.status()) {
                return;
            }
        }
        panic!("{case}: {:#?}", self.status());
    }

    /// Returns the calls among these that were made.
    fn called(&self, among: &[Call]) -> Vec<Call> {
        let calls = self.server.calls.lock();
        let is_made = |(method, end): &Call| calls.iter().any(|made| made.starts_with(method) && made.ends_with(end));
        among.iter().filter(|call| is_made(call)).copied().collect()
    }

    /// Returns the condition as it is, or as it will be once the fault has lasted for long enough.
    fn impaired(&self) -> Option<Condition> {
        let mut status = self.status();
        let (later, time) = (Instant::now() + Duration::from_mins(1), Time(Timestamp::now()));
        self.controller
            .memories
            .change(&self.key, |memory| memory.side_calls.write_condition(&mut status, Some(1), later, &time));
        find_condition(&status.conditions, ConditionType::Impaired).cloned()
    }
}

fn goes_back(status: &VersionedConfigStatus) -> bool {
    matches!(status.rollout.stage, Some(RolloutStage::RollingBack)) && status.internal.threshold == 0
}

/// Calls outside of a rollout whose target an agent has refused, while a pod has become unready.
const BESIDE_A_VERDICT: [Call; 12] = [
    ("GET", "/nodes/node"),
    ("GET", "/configmaps/map-3"),
    ("GET", "/pods"),
    ("GET", "/deployments"),
    ("GET", "/statefulsets"),
    ("GET", "/daemonsets"),
    ("GET", "/replicasets"),
    ("GET", "/jobs"),
    ("GET", "/replicationcontrollers"),
    ("GET", "/cronjobs"),
    ("DELETE", "/configmaps/map-00"),
    ("POST", "/events"),
];

#[tokio::test(start_paused = true)]
async fn a_version_that_agents_refuse_goes_back_whatever_else_fails() {
    let mut seen = BTreeSet::new();
    for call in BESIDE_A_VERDICT {
        for fault in FAULTS {
            let case = format!("{call:?} {fault:?}");
            let scene = scene(&config("Moving", false), false);
            *scene.server.broken.lock() = Some((fault, call));
            for (name, number) in [("web-1", 1), ("web-2", 2), ("web-3", 3)] {
                scene.index.put_pod(pod(name, number, "2", ReportState::Acknowledged));
            }
            scene.reconcile_until(&case, |status| status.pods.on_target == 3).await;
            let refused = ReportState::Failed(Reason::CheckRefused.explained("check app refuses it"));
            scene.index.put_pod(pod("web-1", 1, "1", refused));
            let fell = PodState {
                readiness: Readiness::Lost { since: 0 },
                containers_ready: false,
                ..pod("web-2", 2, "2", ReportState::Acknowledged)
            };
            scene.index.put_pod(fell);
            scene.reconcile_until(&case, goes_back).await;
            seen.extend(scene.called(&BESIDE_A_VERDICT));
            // Events have no condition. An object that is missing, or was replaced meanwhile, is no fault of a call.
            let silent = matches!(
                (call, fault),
                ((_, "/events"), _) | (_, InjectedFault::Code(404)) | (("DELETE", _), InjectedFault::Code(409))
            );
            let said = scene.impaired();
            assert!(silent || said.is_some(), "{case}");
            if let (Some(said), InjectedFault::Code(code)) = (said.filter(|_| !silent), fault) {
                assert!(said.message.contains(&format!("code {code}: no: the data is {VALUE}")), "{case}: {said:?}");
            }
        }
    }
    assert_eq!(seen.len(), BESIDE_A_VERDICT.len(), "{seen:?}");
}

const RESTARTS: [Call; 7] = [
    ("GET", "/deployments"),
    ("GET", "/statefulsets"),
    ("GET", "/daemonsets"),
    ("PATCH", "/deployments/web"),
    ("GET", "/pods"),
    ("GET", "/replicasets"),
    ("POST", "/eviction"),
];

#[tokio::test(start_paused = true)]
async fn restarts_that_fail_are_said_and_end_the_rollout_at_its_deadline() {
    let mut seen = BTreeSet::new();
    for call in RESTARTS {
        // A missing workload needs no restart.
        for fault in FAULTS.into_iter().filter(|fault| *fault != InjectedFault::Code(404)) {
            let case = format!("{call:?} {fault:?}");
            let scene = scene(&config("Restarting", true), true);
            scene.controller.note_published(&scene.key, "2");
            *scene.server.broken.lock() = Some((fault, call));
            let said = |status: &VersionedConfigStatus| {
                let restarted = find_condition(&status.conditions, ConditionType::Restarted);
                restarted.is_some_and(|restarted| restarted.status == "False" && restarted.reason != "Restarting")
            };
            // A workload that can't be restarted is left out, and named. So is a pod that a PodDisruptionBudget keeps
            // for longer than the deadline.
            let left_out = fault.is_refusal() || (call.1, fault) == ("/eviction", InjectedFault::Code(429));
            scene.reconcile_until(&case, |status| said(status) && (left_out || !goes_back(status))).await;
            if !left_out {
                tokio::time::advance(Duration::from_mins(10)).await;
                scene.reconcile_until(&case, |status| said(status) && goes_back(status)).await;
            }
            seen.extend(scene.called(&RESTARTS));
        }
    }
    assert_eq!(seen.len(), RESTARTS.len(), "{seen:?}");
}
