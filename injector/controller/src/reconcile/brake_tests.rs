//! Brakes while nothing works but the write of the status: changes may have been missed, nothing can be read, and
//! another config of the namespace is next to move.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use nudge_cluster::index::Index;
use nudge_cluster::watch::WatchHealth;
use nudge_core::keys::{ConfigKey, PodUid};
use nudge_core::pods::{PodPhase, PodState, Readiness};
use nudge_core::rollout::ALL;
use nudge_protocol::ConfigName;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::fake_api_server::{FakeApiServer, controller_over, status};

/// Returns a config with three versions: 2 is current, 1 was current before, and pods are moved to 3 if there is a
/// stage.
fn config(stage: Option<&str>, requested: &str, now: bool) -> Value {
    let version = |name: &str| {
        let part = json!({"kind": "Secret", "name": format!("shop-{name}"), "uid": name, "digest": "seal:00"});
        json!({"version": name, "state": "Available", "parts": [part], "keys": 1, "bytes": 1})
    };
    let until = Time(Timestamp::now() + SignedDuration::from_hours(3));
    let now = now.then(|| json!({"version": requested, "reason": "it is urgent", "untilTime": until}));
    let moved = stage.map(|_| "3");
    let failure = (stage == Some("RollingBack"))
        .then(|| json!({"version": "3", "generation": 1, "reason": "PodNotReady", "message": "m"}));
    let ready = json!({"type": "Ready", "status": if stage.is_none() { "True" } else { "False" },
        "reason": stage.map_or("Current", |_| "Progressing"), "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
        "metadata": {"name": "shop", "namespace": "ns", "uid": "uid", "resourceVersion": "1", "generation": 1},
        "spec": {"version": requested, "rollout": {"override": now}},
        "status": {
            "currentVersion": "2", "previousVersion": "1", "targetVersion": moved, "conditions": [ready],
            "versions": [version("1"), version("2"), version("3")],
            "rollout": {"stage": stage, "step": u32::from(stage.is_some()), "failure": failure}, "internal": {"revision": 5},
        },
    })
}

/// Returns the status that is written first, if any is.
async fn first_write(config: Value) -> Option<Value> {
    let writes: Arc<Mutex<Vec<Value>>> = Arc::default();
    let noted = Arc::clone(&writes);
    let client = Arc::<FakeApiServer>::default().client(move |method, path, object| {
        if method != "PUT" || !path.ends_with("/shop/status") {
            return (500, status(500));
        }
        noted.lock().push(object.clone());
        (200, object)
    });
    let index = Arc::new(Index::default());
    index.set_enabled(["ns".to_owned()].into());
    index.put_config(serde_json::from_value(config).unwrap());
    index.put_pod(PodState {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
        uid: PodUid::new("web").unwrap(),
        configs: vec![ConfigName::new("shop").unwrap()],
        node: Some("node".to_owned()),
        readiness: Readiness::Lost { since: 0 },
        phase: PodPhase::Running,
        ..PodState::default()
    });
    index.add_health(WatchHealth::new("pods"));
    index.confirm(Instant::now(), Duration::ZERO).await.unwrap_err();
    let controller = Arc::new(controller_over(client, index));
    let _right = controller.move_order.begin(&ConfigKey::parse("ns", "other").unwrap());
    let key = ConfigKey::parse("ns", "shop").unwrap();
    // After the write the reconcile continues, and fails. Without a write it waits.
    let _ = tokio::time::timeout(Duration::from_secs(20), Box::pin(controller.reconcile(&key))).await;
    let writes = writes.lock();
    Some(writes.first()?["status"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_brake_needs_nothing_but_the_config() {
    for (stage, requested, now, expected) in [
        (Some("Moving"), "2", false, ("Leaving", "2")),
        (Some("Baking"), "2", false, ("Leaving", "2")),
        (Some("Restarting"), "2", false, ("Leaving", "2")),
        (Some("Moving"), "1", false, ("Returning", "1")),
        (Some("RollingBack"), "1", false, ("Returning", "1")),
        (Some("Leaving"), "1", false, ("Returning", "1")),
        (None, "1", false, ("Returning", "1")),
        (None, "3", true, ("Moving", "2")),
        (Some("Moving"), "3", true, ("Moving", "2")),
    ] {
        let case = format!("{stage:?} {requested} {now}");
        let status =
            first_write(config(stage, requested, now)).await.unwrap_or_else(|| panic!("{case}: nothing is written"));
        let internal = &status["internal"];
        assert_eq!(
            (status["rollout"]["stage"].as_str(), status["currentVersion"].as_str()),
            (Some(expected.0), Some(expected.1)),
            "{case}"
        );
        assert!(internal["revision"].as_u64() > Some(5), "{case}");
        assert_eq!(internal["threshold"].as_u64().unwrap_or(0), if now { ALL } else { 0 }, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_brake_waits_until_it_is_known_what_happened() {
    for (stage, requested) in [(Some("Moving"), "3"), (None, "3"), (Some("RollingBack"), "3")] {
        assert_eq!(first_write(config(stage, requested, false)).await, None, "{stage:?} {requested}");
    }
}
