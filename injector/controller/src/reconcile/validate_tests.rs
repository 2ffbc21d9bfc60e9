//! The order of the validation of different namespaces' versions.

use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;
use nudge_core::versions::{FactsByUid, Unjudged};
use serde_json::json;

use crate::fake_api_server::{FakeApiServer, controller_over, status};
use crate::memory::ValidationMemory;

/// Returns a config whose rules need a ConfigMap.
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
    // Each validation reads one ConfigMap, which is not there.
    let server = Arc::<FakeApiServer>::default();
    let client = server.client(|_, _, _| (404, status(404)));
    let controller = Arc::new(controller_over(client, Arc::default()));
    let unjudged = [Unjudged { version: "2".to_owned(), objects: Vec::new(), content: "c".to_owned() }];
    let many = (0..20).map(|number| ("busy", format!("shop-{number}")));
    for (namespace, name) in many.chain([("quiet", "shop".to_owned())]) {
        let key = ConfigKey::parse(namespace, &name).unwrap();
        controller.begin_validation(&key, &config(&key), ValidationMemory::default(), &unjudged, &FactsByUid::new());
    }
    let all = async {
        while server.calls.lock().len() < 21 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
    let before = server.calls.lock().iter().position(|call| call.contains("/namespaces/quiet/"));
    assert!(before.is_some_and(|before| before <= 2), "{before:?} others were judged before");
}
