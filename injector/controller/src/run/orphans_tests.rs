//! A new leader deletes the parts of a deleted config, and no object that may belong to somebody else.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nudge_api::PartKind;
use nudge_core::derived_keys::Keys;
use nudge_core::identity::Identity;
use nudge_core::versions::{PartPlace, made_for};
use nudge_protocol::{ConfigName, labels};
use serde_json::{Value, json};

use nudge_cluster::index::Index;
use nudge_core::keys::{ConfigKey, PodUid};
use nudge_core::pods::PodState;
use tokio::time::Instant;

use super::orphans::{ORPHAN_GRACE, delete_parts_of};
use crate::fake_api_server::{FakeApiServer, InjectedFault, controller_over, part, status};

/// The kinds whose objects may name a part.
const LISTED: [&str; 8] =
    ["cronjobs", "daemonsets", "deployments", "jobs", "pods", "replicasets", "replicationcontrollers", "statefulsets"];
const CREATED: &str = "2026-01-02T00:00:00Z";

/// Returns the metadata of a part of `config`, with a note that it was created for the config `noted`.
fn metadata(name: &str, config: &str, noted: Option<&str>) -> Value {
    let key = Keys::of_root(b"key").note;
    let labels = |config: &str| json!({labels::CONFIG: config, labels::VERSION: "1"});
    let note = noted.map(|config| {
        let meta: ObjectMeta = serde_json::from_value(json!({"name": name, "labels": labels(config)})).unwrap();
        let created: Timestamp = CREATED.parse().unwrap();
        made_for(
            &key,
            PartPlace { kind: PartKind::ConfigMap, namespace: "ns-0" },
            &meta,
            Identity::of_uid("u"),
            created,
        )
        .unwrap()
    });
    let annotations = note.map(|note| json!({labels::MADE_FOR: note}));
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name, "namespace": "ns-0",
        "uid": name, "creationTimestamp": CREATED, "labels": labels(config), "annotations": annotations}})
}

fn answer(method: &str, path: &str, changed: &[(&str, Value)]) -> (u16, Value) {
    let name = path.rsplit('/').next().unwrap();
    if LISTED.contains(&name.split('?').next().unwrap()) {
        return (200, json!({"metadata": {}, "items": []}));
    }
    if method == "DELETE" {
        return (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
    }
    if let Some((_, object)) = changed.iter().find(|(end, _)| path.ends_with(end)) {
        return (200, object.clone());
    }
    let object = |kind: &str, created: &str| json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {"name": name, "creationTimestamp": created}});
    match name {
        "left" => (200, metadata("left", "c0", Some("c0"))),
        "early" => (200, metadata("early", "c0", None)),
        "moved" => (200, metadata("moved", "c0", Some("other"))),
        "c0" => (404, status(404)),
        _ => (200, object("PartialObjectMetadata", "2026-01-01T00:00:00Z")),
    }
}

/// Returns the deleted objects and the time until the last deletion, if the API server has these other objects.
async fn deleted(changed: Vec<(&'static str, Value)>, fault: Option<InjectedFault>) -> (Vec<String>, Duration) {
    deleted_beside(Vec::new(), changed, fault).await
}

/// Returns the objects that are deleted while these pods exist, and the time until the last deletion.
async fn deleted_beside(
    pods: Vec<PodState>,
    changed: Vec<(&'static str, Value)>,
    fault: Option<InjectedFault>,
) -> (Vec<String>, Duration) {
    let played = Arc::new(FakeApiServer::default());
    *played.broken.lock() = fault.map(|fault| (fault, ("DELETE", "left")));
    let client = played.client(move |method, path, _| answer(method, path, &changed));
    let index = Arc::new(Index::default());
    index.set_enabled(["ns-0".to_owned()].into());
    let key = ConfigKey::parse("ns-0", "c0").unwrap();
    for name in ["left", "early", "moved"] {
        index.put_part(key.clone(), part("1", name, name));
    }
    for pod in pods {
        index.put_pod(pod);
    }
    let controller = controller_over(client, Arc::clone(&index));
    let began = Instant::now();
    let keys = index.configs_of_orphans();
    assert_eq!(keys, [key].into());
    let mends = async {
        tokio::time::sleep(ORPHAN_GRACE + Duration::from_secs(1)).await;
        *played.broken.lock() = None;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        left = delete_parts_of(&controller, keys) => assert!(left.is_empty()),
        () = mends => {}
    }
    let calls = played.calls.lock();
    let deleted = calls.iter().filter_map(|call| call.strip_prefix("DELETE ")?.rsplit('/').next().map(str::to_owned));
    (deleted.collect(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn parts_that_were_created_for_a_config_go_with_it_and_no_others() {
    assert_eq!(deleted(Vec::new(), None).await, (vec!["left".to_owned()], ORPHAN_GRACE));
}

#[tokio::test(start_paused = true)]
async fn what_pods_use_stays() {
    let pod = |config: &str| PodState {
        namespace: "ns-0".to_owned(),
        name: "web".to_owned(),
        uid: PodUid::new("0af7651c-d43b-41d5-8e2f-000000000001").unwrap(),
        configs: vec![ConfigName::new(config).unwrap()],
        ..PodState::default()
    };
    let deleted = async |config: &str| deleted_beside(vec![pod(config)], Vec::new(), None).await.0;
    assert_eq!(deleted("c0").await, Vec::<String>::new());
    assert_eq!(deleted("other").await, ["left"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_tried_again() {
    let (deleted, after) = deleted(Vec::new(), Some(InjectedFault::Code(500))).await;
    assert_eq!((deleted.len(), after), (2, ORPHAN_GRACE * 3));
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_where_the_config_is_back_or_nudge_or_the_namespace_is_removed() {
    let younger = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-03T00:00:00Z"}});
    let terminating = json!({"metadata": {"name": "ns-0", "creationTimestamp": CREATED, "deletionTimestamp": CREATED}});
    for (path, object) in [
        ("/versionedconfigs/c0", metadata("c0", "c0", None)),
        ("versionedconfigs.nudge.dev", younger),
        ("/namespaces/ns-0", terminating),
        ("/configmaps/left", json!({"metadata": {"name": "left", "uid": "another"}})),
    ] {
        assert_eq!(deleted(vec![(path, object)], None).await.0, Vec::<String>::new(), "{path}");
    }
}
