//! Each error of each call, with an API server of tests.

use std::sync::Arc;
use std::time::Duration;

use nudge_api::{ConditionType, PartKind, Reason, VersionedConfig, find_condition};
use nudge_cluster::call::CallError;
use nudge_cluster::index::Index;
use nudge_core::derived_keys::Keys;
use nudge_core::keys::{ConfigKey, PartMeta, PublishedMeta};
use nudge_core::publish::Publication;
use nudge_core::rollout::PublishAttempt;
use nudge_core::versions::{Seals, part_digest};
use serde_json::{Value, json};

use super::calls::{Act, publication_fault};
use crate::Controller;
use crate::fake_api_server::{self, FAULTS, FakeApiServer, InjectedFault, VALUE, controller_over, status};
use crate::reconcile::NextReconcile;

struct Scene {
    controller: Arc<Controller>,
    key: ConfigKey,
    server: Arc<FakeApiServer>,
    index: Arc<Index>,
}

fn part(kind: &str, name: &str) -> Value {
    let (value, type_) = if kind == "Secret" { ("aHVudGVyMg==", json!("Opaque")) } else { ("text", Value::Null) };
    let mut part = json!({"apiVersion": "v1", "kind": kind, "data": {"password": value},
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}});
    if !type_.is_null() {
        part["type"] = type_;
    }
    part
}

fn scene(config: &Value) -> Scene {
    let (index, key) = (Arc::new(Index::default()), ConfigKey::parse("ns", "shop").unwrap());
    let (watched, watched_key) = (Arc::clone(&index), key.clone());
    let server = Arc::<FakeApiServer>::default();
    let counted = Arc::clone(&server);
    let client = server.client(move |method, path, mut object| {
        let kind = if path.contains("/secrets") { "Secret" } else { "ConfigMap" };
        match method {
            "GET" if path.ends_with("/secrets/shop") => (404, status(404)),
            "GET" if path.ends_with("/configmaps/shop") || path.ends_with("-1") => {
                (200, part(kind, path.rsplit('/').next().unwrap()))
            }
            "GET" if !path.contains("nudge.dev") => (200, json!({"metadata": {}, "items": []})),
            "PUT" | "POST" => {
                let resource_version = (counted.calls.lock().len() + 1).to_string();
                object["metadata"]["resourceVersion"] = json!(resource_version);
                if path.ends_with("/configmaps/shop") {
                    let meta = PublishedMeta { uid: "shop".to_owned(), resource_version };
                    watched.set_published_meta(watched_key.clone(), Some(meta));
                }
                (200, object)
            }
            _ => (404, status(404)),
        }
    });
    index.set_enabled(["ns".to_owned()].into());
    for (kind, name, version, number) in [
        (PartKind::ConfigMap, "map-0", "0", None),
        (PartKind::ConfigMap, "map-1", "1", Some("1")),
        (PartKind::Secret, "secret-1", "1", Some("2")),
    ] {
        let (part, parts) = (number.map(str::to_owned), number.map(|_| "2".to_owned()));
        index.put_part(key.clone(), PartMeta { kind, part, parts, ..fake_api_server::part(version, name, name) });
    }
    index.put_config(serde_json::from_value(config.clone()).unwrap());
    let controller = controller_over(client, Arc::clone(&index));
    controller.begin_to_lead();
    Scene { controller: Arc::new(controller), key, server, index }
}

/// Version 1 has a part of each kind. Both are published.
fn config() -> Value {
    let key = ConfigKey::parse("ns", "shop").unwrap();
    let mut config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "shop", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"version": "1", "objects": ["ConfigMap", "Secret"]},
        "status": {"currentVersion": "1", "observedGeneration": 1},
    });
    let parsed: VersionedConfig = serde_json::from_value(config.clone()).unwrap();
    let content_key = Keys::of_root(b"key").content;
    let seals = Seals::new(&content_key, &key, nudge_core::identity::Identity::of(&parsed));
    let content = |value: &str| [("password".to_owned(), value.as_bytes().to_vec())].into();
    let secret = seals.seal("1", 2, &part_digest(&content(VALUE), Some(&content_key)));
    config["status"]["versions"] = json!([{"version": "1", "state": "Current", "keys": 1, "bytes": 1, "parts": [
        {"kind": "ConfigMap", "name": "map-1", "uid": "map-1", "digest": part_digest(&content("text"), None)},
        {"kind": "Secret", "name": "secret-1", "uid": "secret-1", "digest": secret},
    ]}]);
    config
}

/// Kind, method and end of the path of each call.
const CALLS: [(PartKind, &str, &str); 6] = [
    (PartKind::ConfigMap, "GET", "/configmaps/shop"),
    (PartKind::ConfigMap, "GET", "/configmaps/map-1"),
    (PartKind::ConfigMap, "PUT", "/configmaps/shop"),
    (PartKind::Secret, "GET", "/secrets/shop"),
    (PartKind::Secret, "GET", "/secrets/secret-1"),
    (PartKind::Secret, "POST", "/secrets"),
];

#[tokio::test(start_paused = true)]
async fn an_error_of_any_call_is_a_condition_and_keeps_nothing_else_waiting() {
    for (kind, method, end) in CALLS {
        // A missing object is no fault of a call.
        for fault in FAULTS.into_iter().filter(|fault| *fault != InjectedFault::Code(404)) {
            let case = format!("{method} {end} {fault:?}");
            let scene = scene(&config());
            *scene.server.broken.lock() = Some((fault, (method, end)));
            let before = scene.index.config(&scene.key).unwrap();
            let after = Box::pin(scene.controller.publish(&scene.key, before)).await.unwrap();
            let status = after.status.as_ref().unwrap();
            let condition = find_condition(&status.conditions, kind.condition()).unwrap();
            let refused = fault.is_refusal();
            let reason = if refused { Reason::Refused } else { Reason::NotPublished };
            assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", reason.as_str()), "{case}");
            let quoted = kind == PartKind::ConfigMap && matches!(fault, InjectedFault::Code(_));
            assert_eq!(condition.message.contains(VALUE), quoted, "{case}: {}", condition.message);
            if let InjectedFault::Code(code) = fault {
                assert!(condition.message.contains(&format!("code {code}")), "{case}: {}", condition.message);
            }
            assert_eq!(kind.published_version(status), None, "{case}");
            let other = if kind == PartKind::Secret { PartKind::ConfigMap } else { PartKind::Secret };
            assert_eq!(other.published_version(status), Some("1"), "{case}: {status:?}");
            let failure = scene.controller.publish_attempt(&scene.key).unwrap().failure;
            assert_eq!(failure.map(|failure| failure.why.reason), Some(reason), "{case}");
            assert!(scene.controller.next_publication(&scene.key).unwrap() <= Duration::from_secs(1), "{case}");
            // The write is not tried again at once, and succeeds later.
            let calls = scene.server.calls.lock().len();
            let same = Box::pin(scene.controller.publish(&scene.key, Arc::clone(&after))).await.unwrap();
            assert_eq!((same.status.as_ref(), scene.server.calls.lock().len()), (Some(status), calls), "{case}");
            *scene.server.broken.lock() = None;
            scene.controller.forget_published(&scene.key);
            let last = Box::pin(scene.controller.publish(&scene.key, after)).await.unwrap();
            assert_eq!(kind.published_version(last.status.as_ref().unwrap()), Some("1"), "{case}");
            assert_eq!(scene.controller.publish_attempt(&scene.key).unwrap().failure, None, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_waits_says_what_for_and_continues_by_itself() {
    for (kind, method, end) in CALLS {
        // A missing object is no fault of a call.
        for fault in FAULTS.into_iter().filter(|fault| *fault != InjectedFault::Code(404)) {
            let case = format!("{method} {end} {fault:?}");
            let mut config = config();
            let mut before = config["status"]["versions"][0].clone();
            before["version"] = json!("0");
            before["parts"] = json!([{"kind": "ConfigMap", "name": "map-0", "uid": "map-0", "digest": "sha256:00"}]);
            config["status"]["versions"].as_array_mut().unwrap().push(before);
            (config["status"]["currentVersion"], config["status"]["targetVersion"]) = (json!("0"), json!("1"));
            config["status"]["rollout"] = json!({"stage": "Restarting", "stepTime": "2026-01-01T00:00:00Z"});
            config["status"]["internal"] = json!({"revision": 1, "threshold": 1_u64 << 32});
            let scene = scene(&config);
            *scene.server.broken.lock() = Some((fault, (method, end)));
            for _ in 0..2 {
                let again = Box::pin(scene.controller.reconcile(&scene.key)).await;
                assert!(again.is_ok_and(|again| again != NextReconcile::OnChange), "{case}");
            }
            let status = scene.index.config(&scene.key).unwrap().status.clone().unwrap();
            let ready = find_condition(&status.conditions, ConditionType::Ready).unwrap();
            let said = find_condition(&status.conditions, kind.condition()).unwrap();
            assert_eq!((ready.reason.as_str(), ready.status.as_str()), ("NotPublished", "False"), "{case}: {ready:?}");
            assert!(ready.message.contains(&said.message), "{case}: {ready:?}");
            assert_eq!(status.current_version.as_deref(), Some("0"), "{case}");
            let stalled = find_condition(&status.conditions, ConditionType::Stalled).is_some();
            assert_eq!(stalled, fault.is_refusal(), "{case}");
            *scene.server.broken.lock() = None;
            scene.controller.forget_published(&scene.key);
            for _ in 0..5 {
                Box::pin(scene.controller.reconcile(&scene.key)).await.unwrap();
            }
            let status = scene.index.config(&scene.key).unwrap().status.clone().unwrap();
            assert_eq!(status.current_version.as_deref(), Some("1"), "{case}");
        }
    }
}

#[tokio::test]
async fn what_nobody_requested_is_neither_read_nor_written() {
    for (objects, calls) in
        [(json!([]), vec![]), (json!(["ConfigMap"]), vec!["configmaps"]), (json!(["Secret"]), vec!["secrets"])]
    {
        let mut config = config();
        config["spec"]["objects"] = objects;
        let scene = scene(&config);
        let before = scene.index.config(&scene.key).unwrap();
        Box::pin(scene.controller.publish(&scene.key, before)).await.unwrap();
        let paths = scene.server.calls.lock().join(" ");
        for kind in ["configmaps", "secrets"] {
            assert_eq!(paths.contains(kind), calls.contains(&kind), "{paths}");
        }
        let attempt = scene.controller.publish_attempt(&scene.key);
        assert_eq!(attempt, Some(PublishAttempt::settled("1")), "a rollout waits for nothing");
    }
}

#[test]
fn what_rbac_denies_names_the_role() {
    let denied = |kind, act| {
        let status = kube::core::Status {
            code: 403,
            message: "secrets \"shop\" is forbidden: User \"x\" cannot update resource".to_owned(),
            ..kube::core::Status::default()
        };
        let source = Arc::new(kube::Error::Api(Box::new(status)));
        match publication_fault(&CallError::Api { what: String::new(), source }, kind, "shop", act) {
            Publication::Refused(why) => (why.reason, why.message),
            other => panic!("{other:?}"),
        }
    };
    for (kind, act, role) in [
        (PartKind::ConfigMap, Act::Replace, "nudge-namespace"),
        (PartKind::Secret, Act::Read, "nudge-secrets"),
        (PartKind::Secret, Act::Create, "nudge-publish-secrets"),
    ] {
        let (reason, message) = denied(kind, act);
        assert!(reason == Reason::NotAllowed && message.contains(&format!("bind ClusterRole {role} ")), "{message}");
    }
}
