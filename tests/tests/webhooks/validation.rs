//! `spec.validation` against a real API server, with the control plane and its webhooks as `deploy/` installs them.

#![allow(clippy::expect_used, clippy::panic, reason = "what the helpers make up is well-formed, or the test ends")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::{ConfigState, InvalidVersion, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns a part of a version; `of` says which one of how many.
fn part(config: &str, version: &str, of: (u32, u32), data: &Value) -> Value {
    let mut labels = json!({"nudge.dev/config": config, "nudge.dev/version": version});
    let mut annotations = json!({});
    if of.1 > 1 {
        labels["nudge.dev/part"] = json!(of.0.to_string());
        annotations = json!({"nudge.dev/parts": of.1.to_string()});
    }
    let name = format!("{config}-{version}-{}", of.0);
    json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}, "immutable": true, "data": data})
}

async fn create(space: &TestNamespace, object: Value) -> Result<ConfigMap, kube::Error> {
    space.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(object).expect("a ConfigMap")).await
}

/// Creates a version of two parts, which only the gate before sealing judges.
async fn version(space: &TestNamespace, config: &str, version: &str, value: &str) -> Result<()> {
    create(space, part(config, version, (1, 2), &json!({"game.json": value}))).await?;
    create(space, part(config, version, (2, 2), &json!({"other": "x"}))).await?;
    Ok(())
}

async fn config(space: &TestNamespace, name: &str, validation: Value) -> Result<VersionedConfig, kube::Error> {
    let object = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
        "spec": {"rollout": at_once(), "validation": validation},
    });
    let object = serde_json::from_value(object).expect("a config");
    space.api::<VersionedConfig>().create(&PostParams::default(), &object).await
}

async fn change(space: &TestNamespace, name: &str, spec: Value) -> Result<VersionedConfig, kube::Error> {
    let patch = json!({"spec": spec});
    space.api::<VersionedConfig>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result.expect_err("this is to be refused") {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        error => panic!("{error}"),
    }
}

async fn status(
    space: &TestNamespace,
    name: &str,
    what: &str,
    expected: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfigStatus> {
    let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&expected);
    space.object_until(WAIT_TIMEOUT, name, what, is_expected).await?.status.context("no status")
}

fn wait_until_current(version: &'static str) -> impl Fn(&VersionedConfigStatus) -> bool {
    move |status| status.current_version.as_deref() == Some(version) && status.state() == ConfigState::Current
}

/// Returns the reason and the message of the condition Ready.
fn ready(status: &VersionedConfigStatus) -> (&str, &str) {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map_or(("", ""), |ready| (&ready.reason, &ready.message))
}

fn has_reason(reason: &'static str) -> impl Fn(&VersionedConfigStatus) -> bool {
    move |status| ready(status).0 == reason
}

fn game() -> Value {
    json!([
        {"name": "keys", "required": ["game.json"]},
        {"name": "game", "key": "game.json", "schema": {"inline": {
            "type": "object", "additionalProperties": false, "required": ["lives"],
            "properties": {"lives": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
        }}},
        {"name": "pin", "key": "pin.json", "format": "json"},
        {"name": "lives", "rule": "parsed['game.json'].lives <= 9", "message": "lives must be at most 9"},
    ])
}

#[tokio::test]
async fn a_typo_is_stopped_before_any_pod_sees_it() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("typo").await?;
    config(&space, "shop", game()).await?;
    create(&space, part("shop", "1", (1, 1), &json!({"game.json": "{\"lives\": 3}"}))).await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;

    // One object is the whole version: the user reads at once what is wrong.
    let typo = part("shop", "2", (1, 1), &json!({"game.json": "{\n  \"lives\": 3,\n}\n"}));
    let (code, message) = refusal(create(&space, typo).await);
    assert_eq!(code, 422, "{message}");
    let expected = "ConfigMap shop-2-1, part of version 2 of config shop, breaks a rule of spec.validation: key game.json, line 3, \
                    column 1: must be JSON, which has no comma before a closing bracket; correct it, or change the rules";
    assert!(message.ends_with(expected), "{message}");

    // With several objects, sealing decides.
    bind(&space, "nudge-secrets").await?;
    change(&space, "shop", json!({"version": "3"})).await?;
    create(&space, part("shop", "3", (1, 2), &json!({"game.json": "{\"lives\": 3, \"nmae\": \"x\"}"}))).await?;
    let mut secret = part("shop", "3", (2, 2), &json!(null));
    secret["stringData"] = json!({"pin.json": "{\"pin\": CANARY}"});
    space.create_object::<Secret>(secret).await?;
    let refused = status(&space, "shop", "3 is invalid", has_reason("Invalid")).await?;
    let wrong = "key game.json: nmae is not allowed; key pin.json, line 1, column 9: must be JSON";
    assert_eq!(
        ready(&refused).1,
        format!("version 3 breaks a rule of spec.validation: {wrong}; create another version, or change the rules")
    );
    assert_eq!((refused.current_version.as_deref(), refused.versions.len()), (Some("1"), 1));
    let [InvalidVersion { version: name, message, rules, .. }] = &refused.invalid[..] else { panic!("{refused:?}") };
    assert_eq!((name.as_str(), message.as_str(), rules.len()), ("3", wrong, 24));
    let written = async || {
        let events = space.api::<Event>().list(&ListParams::default()).await.ok()?.items;
        events.iter().any(|event| event.reason.as_deref() == Some("Invalid")).then_some(events)
    };
    let events = eventually(WAIT_TIMEOUT, "an Event says so", written).await?;
    for text in [serde_json::to_string(&refused)?, serde_json::to_string(&events)?, replica.log()] {
        ensure!(!text.contains("CANARY"), "a value of a Secret is shown: {text}");
    }

    // What the user does: another version.
    version(&space, "shop", "4", "{\"lives\": 9}").await?;
    change(&space, "shop", json!({"version": "4"})).await?;
    status(&space, "shop", "4 is current", wait_until_current("4")).await?;
    version(&space, "shop", "5", "{\"lives\": 10}").await?;
    change(&space, "shop", json!({"version": "5"})).await?;
    let refused = status(&space, "shop", "5 is invalid", has_reason("Invalid")).await?;
    assert!(ready(&refused).1.contains("validation: lives must be at most 9; create"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn rules_that_change_later_judge_no_sealed_version() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("later").await?;
    config(&space, "shop", json!([])).await?;
    version(&space, "shop", "1", "no JSON").await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;
    version(&space, "shop", "2", "{\"lives\": 3}").await?;
    change(&space, "shop", json!({"version": "2"})).await?;
    status(&space, "shop", "2 is current", wait_until_current("2")).await?;

    change(&space, "shop", json!({"validation": game()})).await?;
    version(&space, "shop", "3", "no JSON").await?;
    let refused = |status: &VersionedConfigStatus| status.invalid.iter().any(|invalid| invalid.version == "3");
    let before = status(&space, "shop", "3 is invalid", refused).await?;
    // Back to what the rules would refuse today.
    change(&space, "shop", json!({"version": "1"})).await?;
    let back = status(&space, "shop", "1 is current again", wait_until_current("1")).await?;
    assert_eq!(back.versions.len(), 2);
    // With other rules, what was not sealed is judged again, once.
    let other = json!([{"name": "game", "key": "game.json", "format": "text"}]);
    change(&space, "shop", json!({"validation": other, "version": "3"})).await?;
    let sealed = status(&space, "shop", "3 is current", wait_until_current("3")).await?;
    assert!(sealed.invalid.is_empty() && before.invalid[0].version == "3");
    // A sealed version that is deleted comes back with the same content, whatever the rules say.
    change(&space, "shop", json!({"validation": game(), "version": "2"})).await?;
    status(&space, "shop", "2 is current again", wait_until_current("2")).await?;
    let maps = space.api::<ConfigMap>();
    for name in ["shop-1-1", "shop-1-2"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    let gone = |status: &VersionedConfigStatus| status.internal.retired.iter().any(|retired| retired.version == "1");
    status(&space, "shop", "1 is retired", gone).await?;
    version(&space, "shop", "1", "no JSON").await?;
    status(&space, "shop", "1 is back", |status| status.version("1").is_some() && status.internal.retired.is_empty())
        .await?;
    Ok(())
}

#[tokio::test]
async fn rules_that_can_not_be_used_are_refused_and_hold_what_they_would_judge() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("unusable").await?;
    config(&space, "shop", json!([])).await?;
    for (rule, why) in [
        (
            json!({"name": "a", "rule": "dat.lives != ''"}),
            "rule a can't be used: there is no variable dat; use data or parsed",
        ),
        (
            json!({"name": "a", "key": "a", "schema": {"inline": {"type": "integr"}}}),
            "rule a has a schema that can't be used: at /type: ",
        ),
        (
            json!({"name": "a", "key": "a", "schema": {"inline": {"$ref": "https://example.com/a.json"}}}),
            "it refers to https://example.com/a.json, and only references within the schema itself (#/...) are allowed",
        ),
        (
            json!({"name": "a", "key": "a", "schema": {"inline": {"pattern": "(?=a)b"}}}),
            "rule a has a schema that can't be used: at /pattern",
        ),
    ] {
        let (code, message) = refusal(change(&space, "shop", json!({"validation": [rule]})).await);
        assert!(code == 422 && message.contains(why), "{code} {message}");
    }
    // What the schema of the CRD refuses.
    for rule in [
        json!({"name": "a", "key": "a", "required": ["a"]}),
        json!({"name": "a", "format": "json"}),
        json!({"name": "a", "key": "a", "format": "jsn"}),
        json!({"key": "a", "format": "json"}),
        json!({"name": "A", "key": "a", "format": "json"}),
    ] {
        let (code, message) = refusal(change(&space, "shop", json!({"validation": [rule]})).await);
        assert_eq!(code, 422, "{message}");
    }

    // A schema that is not there yet: the version waits.
    let reference = json!({"configMapKeyRef": {"name": "schema-1", "key": "game"}});
    let rule = json!({"name": "game", "key": "game.json", "schema": reference});
    change(&space, "shop", json!({"validation": [rule]})).await?;
    version(&space, "shop", "1", "{\"lives\": 0}").await?;
    let waits = status(&space, "shop", "1 waits", has_reason("Invalid")).await?;
    assert_eq!(
        ready(&waits).1,
        "version 1 can't be judged by spec.validation: ConfigMap schema-1, which holds a schema, does not exist; create it"
    );
    let schema = |name: &str, least: u32| {
        let text = format!("properties: {{lives: {{minimum: {least}}}}}\n");
        json!({"metadata": {"name": name}, "immutable": true, "data": {"game": text}})
    };
    create(&space, schema("schema-1", 1)).await?;
    let judged = |status: &VersionedConfigStatus| status.invalid.len() == 1;
    let refused = status(&space, "shop", "1 is judged", judged).await?;
    assert_eq!(refused.invalid[0].message, "key game.json at /lives: must be at least 1");
    // What the user does: another schema, under another name.
    create(&space, schema("schema-2", 0)).await?;
    let reference = json!({"configMapKeyRef": {"name": "schema-2", "key": "game"}});
    let rule = json!({"name": "game", "key": "game.json", "schema": reference});
    change(&space, "shop", json!({"validation": [rule]})).await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;
    Ok(())
}

#[tokio::test]
async fn what_runs_away_is_stopped_and_keeps_nobody_waiting() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("away").await?;
    let next = |at: usize| json!({"anyOf": [{"$ref": format!("#/$defs/d{at}")}, {"$ref": format!("#/$defs/d{at}")}]});
    let mut defs: serde_json::Map<String, Value> = (0..40).map(|at| (format!("d{at}"), next(at + 1))).collect();
    defs.insert("d40".to_owned(), json!({"type": "string"}));
    let schema = json!({"inline": {"$defs": defs, "$ref": "#/$defs/d0"}});
    let schema = json!([{"name": "game", "key": "game.json", "schema": schema}]);
    let expression = "data.all(a, data.all(b, data.all(c, data.all(d, a + b != c + d || true))))";
    let expression = json!([{"name": "sums", "rule": expression}]);
    let many: serde_json::Map<String, Value> = (0..500).map(|at| (format!("k{at}"), json!("v"))).collect();
    for (name, rules) in [("schema", schema), ("expression", expression)] {
        config(&space, name, rules).await?;
        create(&space, part(name, "1", (1, 2), &json!({"game.json": "1"}))).await?;
        create(&space, part(name, "1", (2, 2), &json!(many))).await?;
    }
    config(&space, "shop", game()).await?;
    version(&space, "shop", "1", "{\"lives\": 3}").await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;
    for name in ["schema", "expression"] {
        let refused = status(&space, name, "it is invalid", has_reason("Invalid")).await?;
        let why = "the rules need more time for this version than they may have; make them, or the version, simpler";
        assert_eq!(refused.invalid[0].message, why);
    }
    assert!(space.api::<VersionedConfig>().get("shop").await?.name_any() == "shop");
    Ok(())
}
