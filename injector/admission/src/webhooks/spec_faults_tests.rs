//! Each rule of each kind, by its webhook.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind};
use nudge_core::config::config_faults;
use nudge_core::governance::{approval_faults, policy_faults};
use nudge_core::sources::source_faults;
use nudge_protocol::labels::APPROVER_GROUPS;
use serde_json::{Value, json};

use crate::fixtures::{FakeLookups, ahead, message, request};
use crate::verdict::{AdmissionVerdict, Denial};
use crate::webhooks::Webhook as _;
use crate::webhooks::approvals::ValidateApprovals;
use crate::webhooks::configs::ValidateConfigs;
use crate::webhooks::policies::ValidatePolicies;
use crate::webhooks::sources::ValidateSources;

/// Who may do everything.
fn lookups() -> Arc<FakeLookups> {
    Arc::new(FakeLookups {
        enabled: true,
        may_update: true,
        may_approve: true,
        may_override: true,
        may_create_token: true,
        may_create_configs: true,
        may_patch_config: true,
        may_delete: vec![PartKind::ConfigMap, PartKind::Secret],
        may_create: vec![PartKind::ConfigMap, PartKind::Secret],
        may_get: vec![PartKind::ConfigMap, PartKind::Secret],
        may_read: vec![],
        ..FakeLookups::default()
    })
}

async fn reviewed(kind: &str, operation: &str, old: Option<&Value>, new: &Value) -> Result<(), Denial> {
    let request = request(kind, operation, old, Some(new));
    let (configs, sources) = (ValidateConfigs::new(lookups()), ValidateSources { lookups: lookups() });
    let approvals = ValidateApprovals { lookups: lookups() };
    let reviewed: BoxFuture<'_, _> = match kind {
        "VersionedConfig" => configs.review(&request),
        "ConfigSource" => sources.review(&request),
        "RolloutPolicy" => ValidatePolicies.review(&request),
        _ => approvals.review(&request),
    };
    match reviewed.await.unwrap() {
        AdmissionVerdict::Allow { .. } => Ok(()),
        AdmissionVerdict::Deny(denial) => Err(denial),
    }
}

fn object(kind: &str, spec: &Value) -> Value {
    let annotations = json!({APPROVER_GROUPS: "note"});
    let metadata = json!({"name": "shop", "namespace": "team", "annotations": annotations});
    json!({"apiVersion": "nudge.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Returns the faults of the spec, from the kind's function.
fn faults(kind: &str, spec: &Value) -> Vec<Explanation> {
    let spec = spec.clone();
    match kind {
        "VersionedConfig" => config_faults("shop", &serde_json::from_value(spec).unwrap(), Timestamp::now()),
        "ConfigSource" => source_faults("shop", &serde_json::from_value(spec).unwrap()),
        "RolloutPolicy" => policy_faults(&serde_json::from_value(spec).unwrap()),
        _ => approval_faults(&serde_json::from_value(spec).unwrap()),
    }
}

/// Specs that are as they should be, and one for each rule.
fn cases() -> Vec<(&'static str, Value, Vec<Value>)> {
    let rollout = |rollout: Value| json!({"rollout": rollout});
    let select = |key: &str| json!({"pods": 1, "selector": {"matchLabels": {key: "a"}}});
    let zones: Vec<Value> =
        (0..9).map(|zone| json!({"pods": 1, "selector": {"matchLabels": {"zone": zone.to_string()}}})).collect();
    let windows =
        |zone: &str| json!([{"name": "day", "days": ["Mon"], "from": "09:00", "to": "17:00", "timeZone": zone}]);
    let analysis = |query: &str, address: &str, max: Value, ratio: Value| {
        let prometheus = json!({"address": address, "query": query});
        rollout(json!({"analysis": [{"name": "errors", "prometheus": prometheus, "max": max, "maxRatio": ratio}]}))
    };
    let (there, about) = ("http://prometheus:9090", "up{pod=~\"{{pods}}\"}");
    let at_once = |version: &str, hours| {
        rollout(json!({"override": {"version": version, "reason": "r", "untilTime": ahead(hours)}}))
    };
    let configs = vec![
        json!({"version": "current"}),
        rollout(json!({"steps": [{"name": "a", "pods": 1}, {"name": "a", "pods": 2}]})),
        rollout(json!({"steps": zones})),
        rollout(json!({"steps": [select("a b")]})),
        rollout(json!({"steps": [select(&format!("{}/a", "d".repeat(254)))]})),
        rollout(json!({"windows": windows("Mars/Olympus")})),
        analysis(about, there, Value::Null, Value::Null),
        analysis(about, there, Value::Null, json!("0.5")),
        analysis("up", there, json!("1"), Value::Null),
        analysis("rate(up{pod=~\"{{pods}}\"}[1d])", there, json!("1"), Value::Null),
        analysis(about, "http://prometheus:0", json!("1"), Value::Null),
        at_once("1", 25),
        at_once("current", 1),
    ];
    let git = |change: Value| {
        let mut git = json!({"url": "https://git.example.com/shop"});
        git.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"from": {"git": git}})
    };
    let oci = |wanted: Value| {
        let mut oci = json!({"url": "oci://registry.example.com/shop"});
        oci.as_object_mut().unwrap().extend(wanted.as_object().unwrap().clone());
        json!({"from": {"oci": oci}})
    };
    let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": "shop"}});
    let sources = vec![
        json!({"from": {}}),
        json!({"from": {"git": {"url": "https://git.example.com/shop"}, "oci": {"url": "oci://registry.example.com/shop"}}}),
        json!({"from": {"git": {"url": "https://git.example.com/shop"}}, "configName": format!("{}.a", "a".repeat(63))}),
        git(json!({"url": "https://git.example.com"})),
        git(json!({"path": "../secrets"})),
        git(json!({"ref": {}})),
        git(json!({"ref": {"branch": "a", "tag": "b"}})),
        git(json!({"ref": {"branch": "-a"}})),
        git(json!({"ref": {"semver": "newest"}})),
        git(json!({"ref": {"commit": "g".repeat(40)}})),
        oci(json!({"url": "oci://registry.example.com/Shop", "tag": "1"})),
        oci(json!({})),
        oci(json!({"tag": "1", "semver": "1"})),
        oci(json!({"tag": "-a"})),
        oci(json!({"semver": "latest"})),
        oci(json!({"digest": "x".repeat(71)})),
        json!({"from": {"vault": {"address": "https://vault:0", "auth": auth, "kv": {"path": "shop"}}}}),
    ];
    let selects = |selector: Value| json!({"namespaceSelector": selector});
    let meets = |operator: &str, values: Value| {
        selects(json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]}))
    };
    let policies = vec![
        json!({"namespaceSelector": {}, "windows": windows("Mars/Olympus")}),
        selects(json!({"matchLabels": {"a b": "c"}})),
        selects(json!({"matchExpressions": [{"key": "a b", "operator": "Exists"}]})),
        meets("In", json!([])),
        meets("NotIn", json!([])),
        meets("Exists", json!(["a"])),
        meets("DoesNotExist", json!(["a"])),
    ];
    let approval = |version: &str| {
        json!({
            "configName": "shop", "version": version, "digest": format!("sha256:{}", "0".repeat(48)), "decision": "Approve", "reason": "read it",
            "approver": "eve"
        })
    };
    vec![
        ("VersionedConfig", json!({"version": "1"}), configs),
        ("ConfigSource", json!({"from": {"git": {"url": "https://git.example.com/shop"}}}), sources),
        ("RolloutPolicy", json!({"namespaceSelector": {}}), policies),
        ("VersionApproval", approval("1"), vec![approval("current")]),
    ]
}

#[tokio::test]
async fn each_webhook_refuses_what_the_function_of_its_kind_names() {
    for (kind, good, all) in cases() {
        assert_eq!(faults(kind, &good), [], "{good}");
        let stored = object(kind, &good);
        reviewed(kind, "CREATE", None, &stored).await.unwrap();
        for bad in all {
            let named = faults(kind, &bad);
            assert_eq!(named.len(), 1, "{bad}: {named:?}");
            let asked = object(kind, &bad);
            let said = format!("{kind} shop: {}", named[0].message);
            assert_eq!(message(reviewed(kind, "CREATE", None, &asked).await), said);
            // No approval is ever changed.
            if kind != "VersionApproval" {
                assert_eq!(message(reviewed(kind, "UPDATE", Some(&stored), &asked).await), said);
            }
        }
    }
}

#[tokio::test]
async fn what_is_stored_already_may_stay_and_be_corrected() {
    for (kind, good, all) in
        cases().into_iter().filter(|(kind, ..)| ["VersionedConfig", "RolloutPolicy"].contains(kind))
    {
        for bad in all {
            let stored = object(kind, &bad);
            let mut held = stored.clone();
            held["spec"]["rollout"]["hold"] = json!({"reason": "audit"});
            if kind == "RolloutPolicy" {
                held["spec"]["hold"] = json!({"reason": "audit"});
            }
            reviewed(kind, "UPDATE", Some(&stored), &held).await.unwrap();
            reviewed(kind, "UPDATE", Some(&stored), &object(kind, &good)).await.unwrap();
            if bad["rollout"]["steps"].is_null() {
                continue;
            }
            // Another fault is none of those that are stored.
            held["spec"]["version"] = json!("current");
            assert!(reviewed(kind, "UPDATE", Some(&stored), &held).await.is_err(), "{bad}");
        }
    }
}
