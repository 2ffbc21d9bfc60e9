//! The rules about versions (parts, sealing, retiring, publication, baseline, pruning, removal), against a real API
//! server.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigState, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind, create_part};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a version's object of one part.
fn part(config: &str, version: &str, name: &str, data: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"nudge.dev/config": config, "nudge.dev/version": version}},
        "immutable": true,
        "data": data,
    })
}

async fn version(space: &TestNamespace, config: &str, version: &str, value: &str) -> Result<ConfigMap> {
    create_part(space, part(config, version, &format!("{config}-{version}"), &json!({"key": value}))).await
}

async fn config(space: &TestNamespace, name: &str, mut spec: Value) -> Result<VersionedConfig> {
    if spec.get("rollout").is_none() {
        spec["rollout"] = at_once();
    }
    space
        .create_object(json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": spec}))
        .await
}

async fn set_current(space: &TestNamespace, name: &str, version: &str) -> Result<()> {
    let patch = json!({"spec": {"version": version}});
    space.api::<VersionedConfig>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until the status is as expected.
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

fn condition(status: &VersionedConfigStatus, kind: &str) -> (String, String, String) {
    let entry = status.conditions.iter().find(|condition| condition.type_ == kind);
    entry.map(|it| (it.status.clone(), it.reason.clone(), it.message.clone())).unwrap_or_default()
}

fn has_reason(kind: &'static str, reason: &'static str) -> impl Fn(&VersionedConfigStatus) -> bool {
    move |status| condition(status, kind).1 == reason
}

/// A user who may create ConfigMaps writes what the schema of a status would refuse.
#[tokio::test]
async fn what_stands_in_the_annotations_of_a_version_stops_no_rollout() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("annotated").await?;
    config(&space, "shop", json!({})).await?;
    version(&space, "shop", "1", "one").await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;
    let url = format!("https://git.example.com/{}", "x".repeat(600));
    let origins = [
        json!({"kind": "Git", "url": url, "revision": "r".repeat(300)}),
        json!({"kind": "Git", "url": "u", "time": "-000001-01-01T00:00:00Z"}),
    ];
    for (origin, name) in origins.iter().zip(["2", "3"]) {
        let mut part = part("shop", name, &format!("shop-{name}"), &json!({"key": name}));
        part["metadata"]["annotations"] = json!({"nudge.dev/origin": origin.to_string()});
        create_part::<ConfigMap>(&space, part).await?;
    }
    set_current(&space, "shop", "3").await?;
    let moved = status(&space, "shop", "3 is current", wait_until_current("3")).await?;
    assert!(moved.version("2").is_some(), "{moved:?}");
    Ok(())
}

#[tokio::test]
async fn the_first_complete_version_becomes_current_and_the_next_when_it_is_named() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("first").await?;
    config(&space, "shop", json!({})).await?;
    let waiting = status(&space, "shop", "it waits", has_reason("Ready", "VersionMissing")).await?;
    assert_eq!(
        condition(&waiting, "Ready").2,
        "there is no version yet; create a ConfigMap with the labels nudge.dev/config: shop and nudge.dev/version \
         (Secrets of this namespace can't be seen: ClusterRole nudge-secrets is not bound)"
    );
    version(&space, "shop", "1.0.0", "one").await?;
    let first = status(&space, "shop", "1.0.0 is current", wait_until_current("1.0.0")).await?;
    assert_eq!(first.versions[0].parts[0].name, "shop-1.0.0");
    assert_eq!((first.versions[0].keys, first.versions[0].bytes), (1, 3));
    version(&space, "shop", "1.0.1", "two").await?;
    let sealed = status(&space, "shop", "both are sealed", |status| status.versions.len() == 2).await?;
    assert_eq!(sealed.current_version.as_deref(), Some("1.0.0"));
    set_current(&space, "shop", "1.0.1").await?;
    let second = status(&space, "shop", "1.0.1 is current", wait_until_current("1.0.1")).await?;
    assert_eq!(second.previous_version.as_deref(), Some("1.0.0"));
    assert!(second.internal.revision > first.internal.revision);
    assert_eq!(condition(&second, "Ready").0, "True");
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_named_before_it_is_there_is_waited_for() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("waiting").await?;
    config(&space, "shop", json!({"version": "2"})).await?;
    let missing = status(&space, "shop", "it waits", has_reason("Ready", "VersionMissing")).await?;
    assert_eq!(missing.state(), ConfigState::Waiting);
    assert_eq!(
        condition(&missing, "Ready").2,
        "version 2 does not exist; create it, or set spec.version to one of: (none) (Secrets of this namespace can't be seen: \
         ClusterRole nudge-secrets is not bound)"
    );
    let labels = |number: &str| json!({"nudge.dev/config": "shop", "nudge.dev/version": "2", "nudge.dev/part": number});
    let object = |name: &str, number: &str, key: &str| {
        json!({
            "metadata": {"name": name, "labels": labels(number), "annotations": {"nudge.dev/parts": "2"}},
            "immutable": true,
            "data": {key: "value"},
        })
    };
    create_part::<ConfigMap>(&space, object("two-a", "1", "a")).await?;
    let incomplete = status(&space, "shop", "a part is missing", has_reason("Ready", "VersionIncomplete")).await?;
    assert!(condition(&incomplete, "Ready").2.starts_with("version 2 has 1 of its 2 parts"), "{incomplete:?}");
    create_part::<ConfigMap>(&space, object("two-b", "2", "b")).await?;
    let done = status(&space, "shop", "2 is current", wait_until_current("2")).await?;
    assert_eq!(done.versions[0].parts.len(), 2);
    Ok(())
}

#[tokio::test]
async fn what_is_not_immutable_or_not_right_is_not_sealed() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("invalid").await?;
    let mut open = part("shop", "1", "open", &json!({"key": "value"}));
    open["immutable"] = json!(false);
    create_part::<ConfigMap>(&space, open).await?;
    config(&space, "shop", json!({"version": "1"})).await?;
    let invalid = status(&space, "shop", "it is invalid", has_reason("Ready", "VersionInvalid")).await?;
    assert_eq!(
        condition(&invalid, "Ready").2,
        "ConfigMap open of version 1 is not immutable, so it could change later; delete it and create it with immutable: true"
    );
    assert_eq!(condition(&invalid, "Stalled").0, "True");
    // The remedy that the message names.
    space.api::<ConfigMap>().delete("open", &DeleteParams::default()).await?;
    create_part::<ConfigMap>(&space, part("shop", "1", "open", &json!({"key": "value"}))).await?;
    status(&space, "shop", "1 is current", wait_until_current("1")).await?;

    create_part::<ConfigMap>(&space, part("shop", "2", "bad", &json!({"nudge.configs": "mine"}))).await?;
    set_current(&space, "shop", "2").await?;
    let invalid = status(&space, "shop", "2 is invalid", has_reason("Ready", "VersionInvalid")).await?;
    assert!(condition(&invalid, "Ready").2.contains("begin with 'nudge.'"), "{invalid:?}");
    assert_eq!(invalid.current_version.as_deref(), Some("1"));

    // Admission refuses such a number; here nobody has asked it.
    let mut numbered = part("shop", "3", "numbered", &json!({"key": "value"}));
    numbered["metadata"]["labels"]["nudge.dev/part"] = json!("01");
    create_part::<ConfigMap>(&space, numbered).await?;
    set_current(&space, "shop", "3").await?;
    let expected = "ConfigMap numbered can't be part of version 3: label nudge.dev/part must be a number from 1 to 1, not \"01\"; delete it \
                    and create it with the right value";
    status(&space, "shop", "3 is invalid", |status| condition(status, "Ready").2 == expected).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_version_comes_back_with_the_same_content_only() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("retired").await?;
    config(&space, "shop", json!({"version": "1"})).await?;
    version(&space, "shop", "1", "one").await?;
    version(&space, "shop", "2", "two").await?;
    status(&space, "shop", "both are sealed", |status| status.versions.len() == 2).await?;
    let maps = space.api::<ConfigMap>();
    maps.delete("shop-2", &DeleteParams::default()).await?;
    status(&space, "shop", "2 is retired", |status| status.internal.retired.len() == 1 && status.versions.len() == 1)
        .await?;
    version(&space, "shop", "2", "other").await?;
    set_current(&space, "shop", "2").await?;
    let refused = status(&space, "shop", "other content is refused", has_reason("Ready", "VersionInvalid")).await?;
    assert_eq!(
        condition(&refused, "Ready").2,
        "version 2 was deleted before and had other content, which nodes may still hold; use another version name"
    );
    maps.delete("shop-2", &DeleteParams::default()).await?;
    version(&space, "shop", "2", "two").await?;
    let back = status(&space, "shop", "2 is back", wait_until_current("2")).await?;
    assert!(back.internal.retired.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_late_object_is_reported_and_not_used() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("late").await?;
    config(&space, "shop", json!({})).await?;
    version(&space, "shop", "1", "one").await?;
    let sealed = status(&space, "shop", "1 is current", wait_until_current("1")).await?;
    create_part::<ConfigMap>(&space, part("shop", "1", "late", &json!({"late": "x"}))).await?;
    let conflict = status(&space, "shop", "the conflict is reported", has_reason("Conflict", "Conflict")).await?;
    assert_eq!(
        condition(&conflict, "Conflict").2,
        "ConfigMap late has the labels of version 1, which was complete without it, and is not used; delete it, or create it \
         for another version"
    );
    assert_eq!(conflict.versions[0].parts, sealed.versions[0].parts);
    space.api::<ConfigMap>().delete("late", &DeleteParams::default()).await?;
    status(&space, "shop", "the conflict is gone", |status| condition(status, "Conflict").0.is_empty()).await?;
    Ok(())
}

#[tokio::test]
async fn the_plain_config_map_follows_and_the_edits_of_others_stand() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("plain").await?;
    let maps = space.api::<ConfigMap>();
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"old": "x"}})).await?;
    config(&space, "shop", json!({"version": "1", "objects": ["ConfigMap"]})).await?;
    version(&space, "shop", "1", "one").await?;
    let published = |version: &'static str| {
        move |status: &VersionedConfigStatus| status.published_version.as_deref() == Some(version)
    };
    status(&space, "shop", "1 is published", published("1")).await?;
    let plain = maps.get("shop").await?;
    assert_eq!(plain.data, Some([("key".to_owned(), "one".to_owned())].into()), "it is written whole");

    let edit = json!({"data": {"key": "edited"}});
    maps.patch("shop", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    let drifted = status(&space, "shop", "the edit is reported", has_reason("Drifted", "ChangedByOthers")).await?;
    assert!(
        condition(&drifted, "Drifted").2.ends_with("the next activation overwrites the change: make a version of it")
    );
    assert_eq!(maps.get("shop").await?.data, Some([("key".to_owned(), "edited".to_owned())].into()));

    version(&space, "shop", "2", "two").await?;
    set_current(&space, "shop", "2").await?;
    let done = status(&space, "shop", "2 is published", published("2")).await?;
    assert_eq!(condition(&done, "Drifted").0, "");
    assert_eq!(maps.get("shop").await?.data, Some([("key".to_owned(), "two".to_owned())].into()));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_published_is_said() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("immutable").await?;
    space
        .create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "immutable": true, "data": {"old": "x"}}))
        .await?;
    config(&space, "shop", json!({"version": "1", "objects": ["ConfigMap"]})).await?;
    version(&space, "shop", "1", "one").await?;
    let refused = status(&space, "shop", "it is reported", has_reason("Published", "Immutable")).await?;
    assert_eq!(refused.current_version.as_deref(), Some("1"), "pods with an agent have it all the same");
    assert_eq!(
        condition(&refused, "Published").2,
        "ConfigMap shop is immutable, so it can't hold version 1; delete it and create it again"
    );
    Ok(())
}

#[tokio::test]
async fn secret_parts_need_the_admins_consent_and_are_sealed() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("secret").await?;
    config(&space, "keys", json!({})).await?;
    let object = json!({
        "metadata": {"name": "keys-1", "labels": {"nudge.dev/config": "keys", "nudge.dev/version": "1"}},
        "immutable": true,
        "stringData": {"pin": "hidden-4711"},
    });
    create_part::<Secret>(&space, object).await?;
    status(&space, "keys", "it is not seen", has_reason("Ready", "VersionMissing")).await?;
    bind(&space, "nudge-secrets").await?;
    let sealed = status(&space, "keys", "1 is current", wait_until_current("1")).await?;
    assert!(sealed.versions[0].parts[0].digest.starts_with("seal:"));
    assert!(!replica.log().contains("hidden-4711"));
    assert!(!replica.get("/metrics").await?.1.contains("hidden"));
    Ok(())
}

fn secret(config: &str, version: &str, pin: &str) -> Value {
    json!({
        "metadata": {"name": format!("{config}-{version}"), "labels": {"nudge.dev/config": config, "nudge.dev/version": version}},
        "immutable": true,
        "stringData": {"pin": pin},
    })
}

/// A user who may read everything but Secrets, and create them, tries to find out what is in one.
#[tokio::test]
async fn who_may_view_learns_nothing_of_secrets_from_equal_ones() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let [victim, stranger] = [installation.enabled("victim").await?, installation.enabled("stranger").await?];
    let mut seen_values = Vec::new();
    // The same content in another namespace, another config, another version and, of another value, for comparison.
    for (space, name, pins) in [
        (&victim, "keys", &["0000", "0000", "0001"][..]),
        (&victim, "other", &["0000"]),
        (&stranger, "keys", &["0000"]),
    ] {
        if space.api::<RoleBinding>().get_opt("nudge-secrets").await?.is_none() {
            bind(space, "nudge-secrets").await?;
        }
        config(space, name, json!({"version": "1"})).await?;
        for (pin, version) in pins.iter().zip(1..) {
            create_part::<Secret>(space, secret(name, &version.to_string(), pin)).await?;
        }
        status(space, name, "all are sealed", |status| status.versions.len() == pins.len()).await?;
        // All that `view` reads of it.
        let all = serde_json::to_string(&space.api::<VersionedConfig>().get(name).await?)?;
        assert!(!all.contains("sha256"), "{all}");
        let status = status(space, name, "1 is current", wait_until_current("1")).await?;
        seen_values.extend(status.versions.iter().map(|version| version.parts[0].digest.clone()));
    }
    assert!(seen_values.iter().all(|seal| seal.len() == "seal:".len() + 48), "{seen_values:?}");
    seen_values.sort();
    seen_values.dedup();
    assert_eq!(seen_values.len(), 5, "no two are the same");

    // A copied identity can be written nowhere: users do not write the status.
    let copied = victim.api::<VersionedConfig>().get("keys").await?.status.context("no status")?.internal.identity;
    let object = json!({"metadata": {"name": "thief"}, "spec": {}, "status": {"internal": {"identity": copied}}});
    victim.create_object::<VersionedConfig>(object).await?;
    let own = status(&victim, "thief", "it has an identity", |status| status.internal.identity.is_some()).await?;
    assert_ne!(own.internal.identity, copied);
    Ok(())
}

#[tokio::test]
async fn a_plain_config_map_that_a_pod_subscribes_to_becomes_a_config() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("baseline").await?;
    let labels = json!({"nudge.dev/baseline": "true"});
    for (name, labels) in
        [("shop", &labels), ("foreign", &Value::Null), ("kube", &json!({"nudge.dev/baseline": "yes"}))]
    {
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": {"key": "one"}});
        space.create_object::<ConfigMap>(map).await?;
    }
    space.service_account("app").await?;
    // A user who may create pods can name ConfigMaps of others, too.
    let pod = json!({
        "metadata": {"name": "web", "labels": {"nudge.dev/agent": "0.1.0"}},
        "spec": {
            "serviceAccountName": "app", "automountServiceAccountToken": false,
            "containers": [
                {"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "foreign,kube,shop,kube-root-ca.crt"}]},
                {"name": "app", "image": "test"}],
        },
    });
    space.create_object::<Pod>(pod).await?;
    let made = status(&space, "shop", "it is a config", wait_until_current("1.0.0")).await?;
    assert_eq!(made.versions[0].parts[0].name, "shop-1.0.0");
    let version = space.api::<ConfigMap>().get("shop-1.0.0").await?;
    assert_eq!((version.immutable, version.data), (Some(true), Some([("key".to_owned(), "one".to_owned())].into())));
    status(&space, "shop", "it is published", |status| status.published_version.as_deref() == Some("1.0.0")).await?;
    for name in ["kube-root-ca.crt", "foreign", "kube"] {
        assert!(space.api::<VersionedConfig>().get_opt(name).await?.is_none(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn the_history_limit_prunes_what_kubectl_nudge_made_and_nothing_in_use() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("prune").await?;
    config(&space, "shop", json!({"version": "6", "historyLimit": 1})).await?;
    // A workload's template names version 2.
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "test", "envFrom": [{"configMapRef": {"name": "shop-2"}}]}]},
        }},
    });
    space.create_object::<Deployment>(deployment).await?;
    for number in 1..=6 {
        let name = number.to_string();
        let mut object = part("shop", &name, &format!("shop-{name}"), &json!({"key": name}));
        if number != 3 {
            object["metadata"]["labels"]["nudge.dev/prune"] = json!("true");
        }
        create_part::<ConfigMap>(&space, object).await?;
        // One after another, so that their order is known.
        status(&space, "shop", "it is sealed", |status| {
            status.version(&name).is_some() || !status.internal.retired.is_empty()
        })
        .await?;
    }
    let done = status(&space, "shop", "1 and 4 are gone", |status| status.internal.retired.len() == 2).await?;
    let left: Vec<&str> = done.versions.iter().map(|version| version.version.as_str()).collect();
    assert_eq!(left, ["2", "3", "5", "6"]);
    let names: Vec<String> =
        space.api::<ConfigMap>().list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect();
    assert!(!names.contains(&"shop-1".to_owned()) && names.contains(&"shop-2".to_owned()));
    Ok(())
}

/// Returns a Deployment without pods, whose template mounts the ConfigMap of this version.
fn pinned(version: &str) -> Value {
    let volume =
        json!({"name": "conf", "projected": {"sources": [{"configMap": {"name": format!("shop-{version}")}}]}});
    json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "test"}], "volumes": [volume]},
        }},
    })
}

/// Returns a ReplicaSet of an older revision of that Deployment.
fn revision(version: &str) -> Value {
    let mut set = pinned(version);
    set["metadata"] = json!({"name": format!("web-{version}"), "labels": {"app": "web"}});
    set
}

#[tokio::test]
async fn a_version_that_a_template_names_outlives_the_history_and_the_config() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("pinned").await?;
    config(&space, "shop", json!({"version": "4", "historyLimit": 0})).await?;
    space.create_object::<Deployment>(pinned("2")).await?;
    space.create_object::<ReplicaSet>(revision("1")).await?;
    for number in 1..=4 {
        let name = number.to_string();
        let mut object = part("shop", &name, &format!("shop-{name}"), &json!({"key": name}));
        object["metadata"]["labels"]["nudge.dev/prune"] = json!("true");
        create_part::<ConfigMap>(&space, object).await?;
        status(&space, "shop", "it is sealed", |status| {
            status.version(&name).is_some() || !status.internal.retired.is_empty()
        })
        .await?;
    }
    let left = async |what: &str, versions: &'static [&'static str]| {
        status(&space, "shop", what, |status| {
            status.versions.iter().map(|version| version.version.as_str()).eq(versions.iter().copied())
        })
        .await
    };
    left("3 is gone, and what a template or a ReplicaSet names is not", &["1", "2", "4"]).await?;
    // The next reconcile looks again: the older revision is gone.
    space.api::<ReplicaSet>().delete("web-1", &DeleteParams::default()).await?;
    let patch = json!({"spec": {"rollout": {"bakeSeconds": 1}}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    left("1 is gone, too", &["2", "4"]).await?;
    space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    let maps: Api<ConfigMap> = space.api();
    eventually(WAIT_TIMEOUT, "the current version is gone", async || {
        maps.get_opt("shop-4").await.ok()?.is_none().then_some(())
    })
    .await?;
    assert!(maps.get_opt("shop-2").await?.is_some(), "a template names it");
    Ok(())
}

#[tokio::test]
async fn versions_go_with_their_config_and_the_plain_config_map_stays() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("remove").await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "one"}})).await?;
    config(&space, "shop", json!({"version": "1", "objects": ["ConfigMap"]})).await?;
    version(&space, "shop", "1", "one").await?;
    status(&space, "shop", "1 is published", |status| status.published_version.is_some()).await?;
    assert!(space.api::<ConfigMap>().get("shop-1").await?.owner_references().is_empty());
    space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    let maps: Api<ConfigMap> = space.api();
    eventually(WAIT_TIMEOUT, "the version is gone", async || {
        maps.get_opt("shop-1").await.ok()?.is_none().then_some(())
    })
    .await?;
    assert!(maps.get_opt("shop").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn health_and_metrics_are_there() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    for path in ["/healthz", "/readyz"] {
        assert_eq!(replica.get(path).await?, (200, "ok\n".to_owned()));
    }
    assert_eq!(replica.get("/other").await?.0, 404);
    eventually(WAIT_TIMEOUT, "it leads", async || (replica.metric("nudge_leader").await.ok()? > 0.0).then_some(()))
        .await?;
    // Far from its end, and no watch is silent.
    assert!(replica.metric("nudge_certificate_expiry_timestamp_seconds").await? > 1_700_000_000.0);
    // The watches of an enabled namespace, and those of the whole cluster. That of Secrets is there where one lets
    // Nudge read them.
    let expected = [
        "configmaps of versions",
        "namespaces",
        "pods",
        "published configmaps",
        "rolloutpolicies",
        "serviceaccounts",
        "versionapprovals",
        "versionedconfigs",
    ];
    let _space = installation.enabled("health").await?;
    let ages = async || {
        let (_, text) = replica.get("/metrics").await.ok()?;
        let age = |watch: &str| {
            let series = format!("nudge_watch_age_seconds{{watch=\"{watch}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series))?.parse::<f64>().ok()
        };
        let ages = expected.map(age).into_iter().collect::<Option<Vec<f64>>>()?;
        ages.iter().all(|age| *age >= 0.0).then_some(ages)
    };
    let ages = eventually(WAIT_TIMEOUT, "every watch has an age", ages).await?;
    assert!(ages.iter().all(|age| (0.0..120.0).contains(age)), "{ages:?}");
    Ok(())
}
