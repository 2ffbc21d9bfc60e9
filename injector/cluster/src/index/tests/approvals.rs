//! Decisions of users: the configs that a change wakes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nudge_api::VersionApproval;
use serde_json::{Value, json};

use super::{config_key, enabled};
use crate::index::{Index, IndexEvent, WatchScope, WatchedKind};

fn approval(revision: &str, uid: &str, status: &Value) -> VersionApproval {
    let spec = json!({"configName": "shop", "version": "2", "digest": "d", "decision": "Approve", "reason": "r", "approver": "bob"});
    let meta = json!({"name": "one", "namespace": "ns", "uid": uid, "resourceVersion": revision});
    let approval = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionApproval", "metadata": meta, "spec": spec, "status": status
    });
    serde_json::from_value(approval).unwrap()
}

#[test]
fn a_decision_wakes_its_config_and_its_status_nobody() {
    let index = enabled();
    let woken = Arc::new(Mutex::new(0));
    let count = Arc::clone(&woken);
    index.listen(move |event| {
        if matches!(event, IndexEvent::Config(key) if *key == config_key("shop")) {
            *count.lock().unwrap() += 1;
        }
    });
    let wakes = |expected: u32, what: &str| assert_eq!(std::mem::take(&mut *woken.lock().unwrap()), expected, "{what}");
    index.put_approval(approval("1", "u", &Value::Null));
    wakes(1, "it is new");
    index.put_approval(approval("2", "u", &json!({"observedGeneration": 1})));
    wakes(0, "its status");
    let known = index.known_approvals(&config_key("shop"));
    assert_eq!(known[0].status.as_ref().and_then(|status| status.observed_generation), Some(1), "it is kept");
    index.put_approval(approval("3", "v", &Value::Null));
    wakes(1, "another one of this name");
    assert_eq!(index.configs_with_approvals(), [config_key("shop")].into());
    index.remove_approval("ns", "one");
    wakes(1, "it is gone");
    assert!(index.configs_with_approvals().is_empty());
}

#[test]
fn a_namespace_that_becomes_complete_wakes_configs_that_are_not_there_too() {
    let index = Index::default();
    index.expect(&WatchedKind::ALL);
    index.set_enabled(["ns".to_owned()].into());
    index.put_approval(approval("1", "u", &Value::Null));
    let woken = Arc::new(Mutex::new(0));
    let count = Arc::clone(&woken);
    index.listen(move |event| {
        if matches!(event, IndexEvent::Config(key) if *key == config_key("shop")) {
            *count.lock().unwrap() += 1;
        }
    });
    for kind in WatchedKind::ALL {
        let seen =
            if kind == WatchedKind::Approvals { [("ns".to_owned(), "one".to_owned())].into() } else { HashSet::new() };
        index.complete_list(&WatchScope::Namespace("ns".to_owned()), kind, Instant::now(), &seen);
    }
    assert!(index.is_complete("ns"));
    assert_ne!(*woken.lock().unwrap(), 0);
}
