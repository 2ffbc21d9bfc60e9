//! Writes of a reconcile into the status, and the parts that it forgets.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use nudge_api::VersionedConfig;
use nudge_cluster::index::Index;
use nudge_core::keys::{ConfigKey, PodUid};
use nudge_core::pods::{PodPhase, PodState, Readiness, Report, ReportState};
use nudge_protocol::{ConfigName, VersionName};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::NextReconcile;
use crate::fake_api_server::{FakeApiServer, controller_over, part, status};

#[tokio::test]
async fn nothing_is_remembered_of_a_config_that_is_gone() {
    let server = Arc::<FakeApiServer>::default();
    let (client, index) = (server.client(|_, _, _| (404, status(404))), Arc::new(Index::default()));
    index.set_enabled(["ns".to_owned()].into());
    let controller = Arc::new(controller_over(client, index));
    let (gone, left) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("elsewhere", "shop").unwrap());
    for key in [&gone, &left] {
        controller.memories.change(key, |memory| memory.outdated_reconciles = 1);
        Box::pin(controller.reconcile(key)).await.unwrap();
        assert_eq!(controller.memories.get(key, |_| ()), None);
    }
}

/// The writes that an API server received.
#[derive(Clone, Default)]
struct Writes {
    /// Statuses that it was asked to take.
    tried: usize,
    taken: Vec<Value>,
    events: Vec<Value>,
    /// The number of reads of the object of version 1.
    reads: usize,
}

/// Refuses every status that `refuses` returns `true` for.
fn picky(refuses: fn(&Value) -> bool) -> (Client, Arc<Mutex<Writes>>) {
    let writes = Arc::<Mutex<Writes>>::default();
    let shared = Arc::clone(&writes);
    let client = Arc::<FakeApiServer>::default().client(move |method, path, mut written| {
        let mut writes = shared.lock();
        if method == "POST" && path.ends_with("/events") {
            writes.events.push(written.clone());
            return (200, written);
        }
        if method != "PUT" {
            writes.reads += usize::from(path.ends_with("/configmaps/shop-1"));
            return (404, status(404));
        }
        writes.tried += 1;
        if refuses(&written["status"]) {
            let mut refusal = status(422);
            refusal["message"] = json!("policy example denied request: nothing with \"planted\"");
            return (422, refusal);
        }
        written["metadata"]["resourceVersion"] = json!((writes.taken.len() + 2).to_string());
        writes.taken.push(written.clone());
        (200, written)
    });
    (client, writes)
}

/// Returns a config whose pods are to return from version 2, and one of them.
fn returning() -> (VersionedConfig, PodState) {
    let version = |name: &str| {
        let part = json!({"kind": "ConfigMap", "name": format!("shop-{name}"), "uid": format!("u{name}"), "digest": "sha256:00"});
        json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
    };
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "shop", "namespace": "ns", "uid": "0af7651c-d43b-41d5-8e2f-000000000007", "resourceVersion": "1", "generation": 1},
        "spec": {"version": "1"},
        "status": {
            "currentVersion": "1", "targetVersion": "2", "versions": [version("1"), version("2")],
            "rollout": {"stage": "Moving", "step": 1, "stepTime": "2026-01-01T00:00:00Z"},
            "internal": {"revision": 1, "threshold": 1_u64 << 32},
        },
    });
    let shop = ConfigName::new("shop").unwrap();
    let pod = PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        uid: PodUid::new("0af7651c-d43b-41d5-8e2f-000000000001").unwrap(),
        configs: vec![shop.clone()],
        readiness: Readiness::Ready,
        phase: PodPhase::Running,
        report: Some(Report {
            versions: vec![(shop, VersionName::new("2").ok())],
            state: ReportState::Acknowledged,
            reasons: Vec::new(),
            at: None,
        }),
        ..PodState::default()
    };
    (serde_json::from_value(config).unwrap(), pod)
}

/// An object of version 2, or one that only has its labels, with a name that somebody chose.
const PARTS: [(&str, &str); 3] = [("1", "shop-1"), ("2", "shop-2"), ("2", "planted")];

async fn reconciled(refuses: fn(&Value) -> bool, times: usize) -> Writes {
    let (client, writes) = picky(refuses);
    let index = Arc::new(Index::default());
    index.set_enabled(["ns".to_owned()].into());
    let (config, pod) = returning();
    let key = ConfigKey::parse("ns", "shop").unwrap();
    for (version, name) in PARTS {
        index.put_part(key.clone(), part(version, name, &name.replace("shop-", "u")));
    }
    index.put_config(config);
    index.put_pod(pod);
    let controller = Arc::new(controller_over(client, index));
    controller.begin_to_lead();
    for _ in 0..times {
        // Errors of other calls are none of the status.
        let _ = Box::pin(controller.reconcile(&key)).await;
    }
    let writes = writes.lock();
    writes.clone()
}

/// Returns the last status's report about itself, after the return of pods.
fn back(writes: &Writes) -> String {
    let Some(written) = writes.taken.last() else { panic!("none of {} statuses is taken", writes.tried) };
    let status = &written["status"];
    assert_eq!(
        (&status["rollout"]["stage"], &status["internal"]["threshold"]),
        (&json!("Leaving"), &Value::Null),
        "{written}"
    );
    let conditions = status["conditions"].as_array().unwrap();
    let said = conditions.iter().find(|condition| condition["type"] == "StatusComplete");
    said.unwrap()["message"].as_str().unwrap().to_owned()
}

fn has_details(status: &Value) -> bool {
    status["releases"][0]["message"].is_string()
}

#[tokio::test]
async fn where_the_status_is_refused_a_smaller_one_takes_pods_back() {
    let whole = reconciled(|_| false, 1).await;
    assert!(has_details(&whole.taken[0]["status"]) && whole.tried == 1, "{:?}", whole.taken);
    let said = back(&reconciled(has_details, 5).await);
    assert!(said.contains("policy example denied request"), "{said}");
}

#[tokio::test]
async fn a_text_that_a_policy_refuses_keeps_no_pod_from_its_way_back() {
    let writes = reconciled(|status| status.to_string().contains("planted"), 5).await;
    let said = back(&writes);
    assert!(said.contains("policy example denied request"), "{said}");
}

#[tokio::test]
async fn where_no_status_is_taken_an_event_says_so_and_little_is_tried() {
    let writes = reconciled(|_| true, 5).await;
    let notes: Vec<_> = writes.events.iter().map(|event| event["note"].as_str().unwrap_or_default()).collect();
    assert!(matches!(notes[..], [note] if note.contains("policy example denied request")), "{notes:?}");
    assert!(writes.tried <= 5 + 2, "{}", writes.tried);
}

#[tokio::test]
async fn a_config_whose_objects_the_api_server_does_not_have_is_reconciled_later_each_time() {
    let (client, writes) = picky(|_| false);
    let index = Arc::new(Index::default());
    index.set_enabled(["ns".to_owned()].into());
    let key = ConfigKey::parse("ns", "shop").unwrap();
    index.put_part(key.clone(), part("1", "shop-1", "u1"));
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "spec": {"version": "1"},
        "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
    });
    index.put_config(serde_json::from_value(config).unwrap());
    let controller = Arc::new(controller_over(client, index));
    controller.begin_to_lead();
    let mut waits = Vec::new();
    for _ in 0..7 {
        waits.push(Box::pin(controller.reconcile(&key)).await.unwrap());
    }
    assert_eq!(
        waits,
        [50, 100, 200, 400, 800, 1000, 1000].map(|millis| NextReconcile::Within(Duration::from_millis(millis)))
    );
    assert_eq!(writes.lock().reads, 7, "once in each reconcile");
}
