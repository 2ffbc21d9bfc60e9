//! What a reconcile writes, and what it forgets, with an API server that is played.

use std::sync::Mutex;

use hyper::http;
use kube::Client;
use kube::client::Body;
use nudge_api::RolloutStage;
use nudge_cluster::index::Index;
use nudge_core::keys::{PartMeta, PodUid};
use nudge_core::pods::{PodState, Report, ReportState};
use nudge_core::restart::{Memory, Part};
use nudge_protocol::{ConfigName, VersionName};
use ring::hmac;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::metrics::RolloutMetrics;

#[tokio::test]
async fn nothing_is_remembered_of_a_config_that_is_gone() {
    let service = service_fn(|_: http::Request<Body>| async {
        let status =
            br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}"#;
        http::Response::builder().status(404).body(Body::from(status.to_vec()))
    });
    let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
    let (index, hmac_key) = (Arc::new(Index::default()), Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key")));
    index.set_enabled(["ns".to_owned()].into());
    let controller = Arc::new(Controller::new(client, index, hmac_key, "a", silence, RolloutMetrics::default()));
    let (gone, left) = (ConfigKey::parse("ns", "shop").unwrap(), ConfigKey::parse("elsewhere", "shop").unwrap());
    let part = Part { stage: Some(RolloutStage::Restarting), version: Some("2".to_owned()) };
    let mut memory = Memory::default();
    assert_eq!(memory.ready_before("ReplicaSet/web", 3), 3);
    for key in [&gone, &left] {
        controller.keep_restarts(key, part.clone(), memory.clone());
        assert_eq!(controller.restarts_so_far(key, &part), memory);
        let back = Part { stage: Some(RolloutStage::RollingBack), ..part.clone() };
        assert!(controller.restarts_so_far(key, &back).is_empty(), "another part");
        Box::pin(controller.reconcile(key)).await.unwrap();
        assert!(controller.restarts_so_far(key, &part).is_empty());
    }
}

/// Refuses every status that says what `refuses` finds in it, and keeps what it takes.
fn picky(refuses: fn(&Value) -> bool) -> (Client, Arc<Mutex<Vec<Value>>>) {
    let stored = Arc::<Mutex<Vec<Value>>>::default();
    let taken = Arc::clone(&stored);
    let service = service_fn(move |request: http::Request<Body>| {
        let taken = Arc::clone(&taken);
        async move {
            let is_write = request.method() == http::Method::PUT;
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut written: Value = serde_json::from_slice(&body).unwrap_or_default();
            let refusal = |code: u16, message: &str| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code});
                http::Response::builder().status(code).body(Body::from(status.to_string().into_bytes()))
            };
            if !is_write {
                return refusal(404, "not found");
            }
            if refuses(&written["status"]) {
                return refusal(422, "policy example denied request: no such releases");
            }
            let mut taken = taken.lock().unwrap();
            written["metadata"]["resourceVersion"] = json!((taken.len() + 2).to_string());
            taken.push(written.clone());
            Ok(http::Response::new(Body::from(written.to_string().into_bytes())))
        }
    });
    (Client::new(service, "ns"), stored)
}

/// A config whose pods are to return from version 2, and one of them.
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
        ready: true,
        was_ready: true,
        running: true,
        report: Some(Report {
            versions: vec![(shop, VersionName::new("2").ok())],
            state: ReportState::Acknowledged,
            at: None,
        }),
        ..PodState::default()
    };
    (serde_json::from_value(config).unwrap(), pod)
}

async fn reconciled(refuses: fn(&Value) -> bool, times: usize) -> Vec<Value> {
    let (client, stored) = picky(refuses);
    let (index, hmac_key) = (Arc::new(Index::default()), Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key")));
    index.set_enabled(["ns".to_owned()].into());
    let (config, pod) = returning();
    let key = ConfigKey::parse("ns", "shop").unwrap();
    for version in ["1", "2"] {
        let (name, uid) = (format!("shop-{version}"), format!("u{version}"));
        let (version, resource_version) = (version.to_owned(), "1".to_owned());
        index.put_part(
            key.clone(),
            PartMeta {
                kind: PartKind::ConfigMap,
                name,
                uid,
                resource_version,
                version,
                part: None,
                parts: None,
                prune: false,
                keep: None,
                created: 0,
                terminating: false,
            },
        );
    }
    index.put_config(config);
    index.put_pod(pod);
    let silence = Duration::from_mins(1);
    let controller = Arc::new(Controller::new(client, index, hmac_key, "a", silence, RolloutMetrics::default()));
    controller.begin();
    for _ in 0..times {
        // Errors of other calls are none of the status.
        let _ = Box::pin(controller.reconcile(&key)).await;
    }
    let stored = stored.lock().unwrap();
    stored.clone()
}

#[tokio::test]
async fn where_the_status_is_refused_the_smallest_one_takes_pods_back() {
    let whole = reconciled(|_| false, 1).await;
    assert!(whole[0]["status"]["releases"].is_array(), "{whole:?}");
    let written = reconciled(|status| status["releases"].is_array(), 5).await;
    let status = &written.last().unwrap()["status"];
    assert_eq!(
        (&status["rollout"]["stage"], &status["internal"]["threshold"]),
        (&json!("Leaving"), &Value::Null),
        "{written:?}"
    );
    let said = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "StatusComplete");
    let said = &said.unwrap()["message"];
    assert!(said.as_str().unwrap().ends_with("policy example denied request: no such releases"), "{said}");
}
