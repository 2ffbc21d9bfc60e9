//! Who waits for whom where versions are judged.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use nudge_api::VersionedConfig;
use nudge_cluster::index::Index;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{Facts, Unjudged};
use ring::hmac;
use serde_json::json;
use tower::service_fn;

use super::gate::Gate;
use super::{Controller, RolloutMetrics};

/// A config whose rules need a ConfigMap.
fn config(key: &ConfigKey) -> Arc<VersionedConfig> {
    let schema = json!({"configMapKeyRef": {"name": "schema", "key": "schema.json"}});
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": key.name.as_str(), "namespace": key.namespace, "uid": key.name.as_str(), "generation": 1},
        "spec": {"validation": [{"name": "schema", "key": "*", "schema": schema}]},
    });
    Arc::new(serde_json::from_value(config).unwrap())
}

#[tokio::test]
async fn a_namespace_with_many_versions_to_judge_keeps_no_other_waiting() {
    let reads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&reads);
    // Each judgement reads one ConfigMap, which is not there.
    let service = service_fn(move |request: Request<Body>| {
        let namespace = request.uri().path().split('/').nth(4).unwrap_or_default().to_owned();
        seen.lock().unwrap().push(namespace);
        async move {
            let gone =
                br#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}"#;
            Ok::<_, Infallible>(Response::builder().status(404).body(Body::from(gone.to_vec())).unwrap())
        }
    });
    let key = Arc::new(hmac::Key::new(hmac::HMAC_SHA256, b"key"));
    let (client, silence) = (Client::new(service, "ns"), Duration::from_mins(1));
    let metrics = RolloutMetrics::default();
    let controller = Arc::new(Controller::new(client, Arc::new(Index::default()), key, "a", silence, metrics));
    let unjudged = [Unjudged { version: "2".to_owned(), objects: Vec::new(), content: "c".to_owned() }];
    let many = (0..20).map(|number| ("busy", format!("shop-{number}")));
    for (namespace, name) in many.chain([("quiet", "shop".to_owned())]) {
        let key = ConfigKey::parse(namespace, &name).unwrap();
        controller.begin_judging(&key, &config(&key), Gate::default(), &unjudged, &Facts::new());
    }
    let all = async {
        while reads.lock().unwrap().len() < 21 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
    let before = reads.lock().unwrap().iter().position(|namespace| namespace == "quiet");
    assert!(before.is_some_and(|before| before <= 2), "{before:?} others were judged before");
}
