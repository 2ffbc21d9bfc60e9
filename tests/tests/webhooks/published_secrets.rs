//! Configs with `Secret` in `spec.objects`: the Secret of the config's name has the type and the content of the current
//! version, is never taken from somebody else, and is decided about only by users who may update it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use nudge_api::{Consent, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{ACCOUNT, NAMESPACE, bind};
use nudge_tests::cluster::space::{account, group};
use nudge_tests::{Installation, Replica, eventually};
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const TLS: &str = "kubernetes.io/tls";
const PULL: &str = "kubernetes.io/dockerconfigjson";
/// A value that may stand in Secrets only.
const VALUE: &str = "hunter2-8fQz1";

type Shared = (Installation<'static>, Replica);

/// Returns an enabled namespace where Nudge may read Secrets, and publish them.
async fn home(purpose: &str) -> Result<Option<(&'static Shared, TestNamespace)>> {
    let Some(shared) = Installation::shared_with_webhooks().await? else { return Ok(None) };
    let space = shared.0.enabled(purpose).await?;
    for role in ["nudge-secrets", "nudge-publish-secrets"] {
        bind(&space, role).await?;
    }
    Ok(Some((shared, space)))
}

fn labels(config: &str, version: &str) -> Value {
    json!({"nudge.dev/config": config, "nudge.dev/version": version})
}

/// Returns a version of one Secret.
async fn version(space: &TestNamespace, config: &str, version: &str, type_: &str, data: Value) -> Result<Secret> {
    let metadata = json!({"name": format!("{config}-{version}"), "labels": labels(config, version)});
    let object = json!({"metadata": metadata, "type": type_, "immutable": true, "stringData": data});
    let object: Result<Secret> = space.create_object(object).await;
    object.with_context(|| format!("version {version} of {config}"))
}

/// Creates a config that publishes these kinds, at version 1.
async fn config(space: &TestNamespace, name: &str, objects: Value) -> Result<()> {
    let rollout = json!({"steps": [{"pods": "100%"}], "minReadySeconds": 0, "bakeSeconds": 0});
    let spec = json!({"version": "1", "objects": objects, "rollout": rollout});
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
}

async fn change(space: &TestNamespace, name: &str, spec: Value) -> Result<VersionedConfig, kube::Error> {
    let patch = Patch::Merge(json!({"spec": spec}));
    space.api::<VersionedConfig>().patch(name, &PatchParams::default(), &patch).await
}

/// Returns what the condition says: its status, its reason and its message.
fn condition_fields(status: &VersionedConfigStatus) -> (&str, &str, &str) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == "SecretPublished");
    condition.map_or(("", "", ""), |it| (&it.status, &it.reason, &it.message))
}

/// Waits until the version is published, and returns what the Secret holds.
async fn wait_until_published(space: &TestNamespace, name: &str, version: &str) -> Result<Secret> {
    space
        .config_status(name, &format!("version {version} of {name} is published"), |status| {
            status.published_secret_version.as_deref() == Some(version) && condition_fields(status).1 == "Published"
        })
        .await?;
    Ok(space.api::<Secret>().get(name).await?)
}

/// Waits for a refusal with the reason, and returns the message.
async fn wait_for_refusal(space: &TestNamespace, name: &str, reason: &str) -> Result<(String, Option<String>)> {
    let status = space
        .config_status(name, &format!("{name} is refused: {reason}"), |status| condition_fields(status).1 == reason)
        .await?;
    ensure!(condition_fields(&status).0 == "False", "{status:#?}");
    Ok((condition_fields(&status).2.to_owned(), status.published_secret_version))
}

fn text(secret: &Secret) -> Vec<(String, String)> {
    let pairs = secret.data.iter().flatten();
    pairs.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned())).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn it_has_the_type_and_exactly_the_keys_of_its_version_and_goes_back_with_it() -> Result<()> {
    let Some((_, space)) = home("types").await? else { return Ok(()) };
    let pull = |value: &str| json!({".dockerconfigjson": format!("{{\"auths\":{{\"{value}\":{{}}}}}}")});
    let tls = |value: &str| json!({"tls.crt": value, "tls.key": format!("{value}-key")});
    for (name, type_, one, two) in [
        ("opaque", "Opaque", json!({"password": "one", "old": "x"}), json!({"password": "two"})),
        ("tls", TLS, tls("one"), tls("two")),
        ("pull", PULL, pull("one"), pull("two")),
    ] {
        version(&space, name, "1", type_, one).await?;
        config(&space, name, json!(["ConfigMap", "Secret"])).await?;
        let first = wait_until_published(&space, name, "1").await?;
        ensure!(first.type_.as_deref() == Some(type_) && first.immutable.is_none(), "{name}");
        let created = text(&space.api::<Secret>().get(&format!("{name}-1")).await?);
        ensure!(text(&first) == created && !created.is_empty(), "{name}");
        version(&space, name, "2", type_, two).await?;
        change(&space, name, json!({"version": "2"})).await?;
        let second = wait_until_published(&space, name, "2").await?;
        ensure!(second.metadata.uid == first.metadata.uid, "{name} was created anew");
        ensure!(text(&second) == text(&space.api::<Secret>().get(&format!("{name}-2")).await?), "{name}");
        change(&space, name, json!({"version": "1"})).await?;
        ensure!(text(&wait_until_published(&space, name, "1").await?) == created, "{name} did not go back");
        ensure!(space.api::<ConfigMap>().get_opt(name).await?.is_none(), "nobody made a ConfigMap {name}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_published_any_more_stays_and_nothing_is_said_of_it() -> Result<()> {
    let Some((_, space)) = home("leaves").await? else { return Ok(()) };
    version(&space, "shop", "1", "Opaque", json!({"password": "one"})).await?;
    config(&space, "shop", json!(["Secret"])).await?;
    wait_until_published(&space, "shop", "1").await?;

    // A version without a Secret changes nothing.
    let metadata = json!({"name": "shop-2", "labels": labels("shop", "2")});
    space.create_object::<ConfigMap>(json!({"metadata": metadata, "immutable": true, "data": {"lives": "3"}})).await?;
    change(&space, "shop", json!({"version": "2"})).await?;
    let (message, held) = wait_for_refusal(&space, "shop", "NoSecretPart").await?;
    ensure!(message.contains("version 2 has no Secret part") && held.as_deref() == Some("1"), "{message} {held:?}");
    let secrets = space.api::<Secret>();
    ensure!(text(&secrets.get("shop").await?) == pairs(&[("password", "one")]));

    // One that was deleted is created again when the version changes.
    secrets.delete("shop", &DeleteParams::default()).await?;
    change(&space, "shop", json!({"version": "1"})).await?;
    wait_until_published(&space, "shop", "1").await?;

    change(&space, "shop", json!({"objects": []})).await?;
    let is_silent = |status: &VersionedConfigStatus| {
        status.published_secret_version.is_none() && condition_fields(status).1.is_empty()
    };
    space.config_status("shop", "nothing is said of the Secret", is_silent).await?;
    version(&space, "shop", "3", "Opaque", json!({"password": "three"})).await?;
    change(&space, "shop", json!({"version": "3"})).await?;
    space
        .config_status("shop", "version 3 is current", |status| status.current_version.as_deref() == Some("3"))
        .await?;
    ensure!(text(&secrets.get("shop").await?) == pairs(&[("password", "one")]), "it follows no more");

    change(&space, "shop", json!({"objects": ["Secret"]})).await?;
    wait_until_published(&space, "shop", "3").await?;
    space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    eventually(WAIT_TIMEOUT, "the versions are deleted", async || secrets.get("shop-3").await.err().map(drop)).await?;
    ensure!(text(&secrets.get("shop").await?) == pairs(&[("password", "three")]), "it stays without its config");
    Ok(())
}

#[tokio::test]
async fn one_of_somebody_else_or_with_another_type_is_never_adopted() -> Result<()> {
    let Some((_, space)) = home("adopted").await? else { return Ok(()) };
    let secrets = space.api::<Secret>();
    let theirs = pairs(&[("password", "theirs")]);
    let make = async |name: &str, labels: Value, owners: Value| {
        let metadata = json!({"name": name, "labels": labels, "ownerReferences": owners});
        space.create_object::<Secret>(json!({"metadata": metadata, "stringData": {"password": "theirs"}})).await
    };
    let labelled = json!({"nudge.dev/published": "1"});
    let owner = space.create_object::<ConfigMap>(json!({"metadata": {"name": "owner"}})).await?.metadata.uid;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]);
    make("unlabelled", json!({}), json!([])).await?;
    make("managed", labelled.clone(), json!([])).await?;
    make("owned", labelled, owner).await?;
    for (name, said) in [
        ("unlabelled", "without the label nudge.dev/published"),
        ("managed", "is managed by"),
        ("owned", "belongs to somebody else"),
    ] {
        version(&space, name, "1", "Opaque", json!({"password": "ours"})).await?;
        config(&space, name, json!(["Secret"])).await?;
        let (message, held) = wait_for_refusal(&space, name, "NotOurs").await?;
        ensure!(message.contains(said) && held.is_none(), "{message} {held:?}");
        space
            .config_status(name, "the version is current all the same", |it| it.current_version.as_deref() == Some("1"))
            .await?;
        ensure!(text(&secrets.get(name).await?) == theirs, "{name} was changed");
    }
    // Deleted, it is created; an empty one with the label is filled.
    secrets.delete("unlabelled", &DeleteParams::default()).await?;
    ensure!(text(&wait_until_published(&space, "unlabelled", "1").await?) == pairs(&[("password", "ours")]));
    secrets.delete("managed", &DeleteParams::default()).await?;
    space
        .create_object::<Secret>(json!({"metadata": {"name": "managed", "labels": {"nudge.dev/published": ""}}}))
        .await?;
    wait_until_published(&space, "managed", "1").await?;

    // A tool that applies it continues to do so.
    let applied =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "managed"}, "data": {"other": "eA=="}});
    secrets.patch("managed", &PatchParams::apply("external-secrets"), &Patch::Apply(&applied)).await?;
    version(&space, "managed", "2", "Opaque", json!({"password": "ours again"})).await?;
    change(&space, "managed", json!({"version": "2"})).await?;
    let (message, held) = wait_for_refusal(&space, "managed", "NotOurs").await?;
    ensure!(message.contains("managed by external-secrets") && held.is_none(), "{message} {held:?}");

    // A type can't be changed: the Secret keeps what it has until somebody deletes it.
    version(&space, "unlabelled", "2", TLS, json!({"tls.crt": "c", "tls.key": "k"})).await?;
    change(&space, "unlabelled", json!({"version": "2"})).await?;
    let (message, held) = wait_for_refusal(&space, "unlabelled", "OtherType").await?;
    ensure!(message.contains("has type Opaque and version 2 has kubernetes.io/tls"), "{message}");
    ensure!(held.as_deref() == Some("1") && text(&secrets.get("unlabelled").await?) == pairs(&[("password", "ours")]));
    secrets.delete("unlabelled", &DeleteParams::default()).await?;
    ensure!(wait_until_published(&space, "unlabelled", "2").await?.type_.as_deref() == Some(TLS));
    Ok(())
}

#[tokio::test]
async fn an_edit_by_others_is_reported_and_overwritten_by_the_next_version() -> Result<()> {
    let Some((_, space)) = home("drift").await? else { return Ok(()) };
    version(&space, "shop", "1", "Opaque", json!({"password": "one"})).await?;
    config(&space, "shop", json!(["Secret"])).await?;
    wait_until_published(&space, "shop", "1").await?;
    let edit = Patch::Merge(json!({"stringData": {"password": "edited", "more": "x"}}));
    space.api::<Secret>().patch("shop", &PatchParams::default(), &edit).await?;
    // A change of the spec has it looked at before the five minutes are over.
    change(&space, "shop", json!({"historyLimit": 20})).await?;
    let (message, held) = wait_for_refusal(&space, "shop", "ChangedByOthers").await?;
    ensure!(message.contains("make a version of it") && held.as_deref() == Some("1"), "{message} {held:?}");
    version(&space, "shop", "2", "Opaque", json!({"password": "two"})).await?;
    change(&space, "shop", json!({"version": "2"})).await?;
    ensure!(text(&wait_until_published(&space, "shop", "2").await?) == pairs(&[("password", "two")]));
    Ok(())
}

#[tokio::test]
async fn types_that_stand_for_more_than_content_are_refused() -> Result<()> {
    let Some((_, space)) = home("refused").await? else { return Ok(()) };
    for (name, type_) in [("helm", "helm.sh/release.v1"), ("bootstrap", "bootstrap.kubernetes.io/token")] {
        version(&space, name, "1", type_, json!({"release": "x"})).await?;
        config(&space, name, json!(["Secret"])).await?;
        let (message, held) = wait_for_refusal(&space, name, "TypeNotAllowed").await?;
        ensure!(message.contains(type_) && held.is_none(), "{message} {held:?}");
        ensure!(space.api::<Secret>().get_opt(name).await?.is_none(), "{name} was made");
    }
    // Parts of several types make no Secret.
    for (part, type_, data) in [("1", "Opaque", json!({"a": "x"})), ("2", "example.com/own", json!({"b": "x"}))] {
        let mut all_labels = labels("mixed", "1");
        all_labels["nudge.dev/part"] = part.into();
        let metadata =
            json!({"name": format!("mixed-1-{part}"), "labels": all_labels, "annotations": {"nudge.dev/parts": "2"}});
        space
            .create_object::<Secret>(
                json!({"metadata": metadata, "type": type_, "immutable": true, "stringData": data}),
            )
            .await?;
    }
    config(&space, "mixed", json!(["Secret"])).await?;
    let (message, _) = wait_for_refusal(&space, "mixed", "TypeNotAllowed").await?;
    ensure!(message.contains("Opaque and example.com/own"), "{message}");
    Ok(())
}

#[tokio::test]
async fn without_the_rights_the_status_says_so_and_no_value_is_written_down() -> Result<()> {
    let Some(shared) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = shared.0.enabled("no-right").await?;
    bind(&space, "nudge-secrets").await?;
    version(&space, "shop", "1", "Opaque", json!({"password": VALUE})).await?;
    config(&space, "shop", json!(["Secret"])).await?;
    let (message, held) = wait_for_refusal(&space, "shop", "NotAllowed").await?;
    ensure!(message.contains("bind ClusterRole nudge-publish-secrets") && held.is_none(), "{message} {held:?}");
    ensure!(message.contains("kubectl nudge enable NAMESPACE --secrets --publish-secrets"), "{message}");
    space
        .config_status("shop", "the version is current all the same", |it| it.current_version.as_deref() == Some("1"))
        .await?;
    let events = space.api::<Event>();
    let noted = async || {
        let listed_events = events.list(&ListParams::default()).await.ok()?.items;
        listed_events.iter().any(|event| event.reason.as_deref() == Some("NotPublished")).then_some(listed_events)
    };
    eventually(WAIT_TIMEOUT, "an Event says so", noted).await?;

    // One that somebody has made for it needs no right but for this one.
    version(&space, "made", "1", "Opaque", json!({"password": VALUE})).await?;
    config(&space, "made", json!(["Secret"])).await?;
    wait_for_refusal(&space, "made", "NotAllowed").await?;
    space.create_object::<Secret>(json!({"metadata": {"name": "made", "labels": {"nudge.dev/published": ""}}})).await?;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["made"], "verbs": ["update"]}]);
    space.grant("made", rules, account(ACCOUNT, NAMESPACE)).await?;
    ensure!(text(&wait_until_published(&space, "made", "1").await?) == pairs(&[("password", VALUE)]));

    // Bound, it is published without a change of anything else.
    bind(&space, "nudge-publish-secrets").await?;
    ensure!(text(&wait_until_published(&space, "shop", "1").await?) == pairs(&[("password", VALUE)]));
    let events = events.list(&ListParams::default()).await?.items;
    let config = space.api::<VersionedConfig>().get("shop").await?;
    let secret = space.api::<Secret>().get("shop").await?.metadata;
    for (place, text) in [
        ("the log", shared.1.log()),
        ("Events", serde_json::to_string(&events)?),
        ("the config", serde_json::to_string(&config)?),
        ("the Secret's metadata", serde_json::to_string(&(secret.labels, secret.annotations))?),
    ] {
        ensure!(!text.is_empty() && !text.contains(VALUE), "{place} has the value");
        ensure!(!text.contains("aHVudGVyMi04ZlF6MQ"), "{place} has the value in base64");
    }
    Ok(())
}

#[tokio::test]
async fn nobody_decides_about_it_who_may_not_update_it() -> Result<()> {
    let Some((shared, space)) = home("decides").await? else { return Ok(()) };
    version(&space, "shop", "1", "Opaque", json!({"password": "one"})).await?;
    config(&space, "shop", json!(["ConfigMap"])).await?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]},
    ]);
    space.grant("devs", rules, group("devs")).await?;
    let client = shared.0.cluster.client(&shared.0.cluster.user("jane", &["devs"])).await?;
    let jane = TestNamespace { client, name: space.name.clone() };
    eventually(WAIT_TIMEOUT, "the role holds", async || {
        jane.api::<VersionedConfig>().list(&ListParams::default()).await.ok()
    })
    .await?;
    let forbidden = |made: Result<VersionedConfig, kube::Error>| {
        let error = made.err().context("jane could")?.to_string();
        ensure!(error.contains("may not change its spec, because that decides what Secret shop holds"), "{error}");
        Ok(())
    };
    // She may change the spec, but not once a Secret is published.
    change(&jane, "shop", json!({"historyLimit": 20})).await?;
    forbidden(change(&jane, "shop", json!({"objects": ["ConfigMap", "Secret"]})).await)?;
    change(&space, "shop", json!({"objects": ["ConfigMap", "Secret"]})).await?;
    wait_until_published(&space, "shop", "1").await?;
    for spec in [json!({"version": "2"}), json!({"objects": ["ConfigMap"]}), json!({"historyLimit": 30})] {
        forbidden(change(&jane, "shop", spec).await)?;
    }
    // Nor does it happen by itself: spec.version has named version 2 before she makes it.
    change(&space, "shop", json!({"version": "2"})).await?;
    version(&jane, "shop", "2", "Opaque", json!({"password": "hers"})).await?;
    let stalled = |status: &VersionedConfigStatus| {
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Stalled" && condition.reason == "VersionNotAuthorized")
    };
    space.config_status("shop", "her version waits for somebody who may", stalled).await?;
    ensure!(text(&wait_until_published(&space, "shop", "1").await?) == pairs(&[("password", "one")]));

    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["shop"], "verbs": ["update"]}]);
    space.grant("publishers", rules, group("devs")).await?;
    eventually(WAIT_TIMEOUT, "the role holds", async || change(&jane, "shop", json!({"version": "1"})).await.ok())
        .await?;
    // To name it again is consent once it was seen not to be named.
    let is_unnamed = |status: &VersionedConfigStatus| {
        status.version("2").is_some_and(|version| version.consent == Some(Consent::Needed))
    };
    space.config_status("shop", "another version is named", is_unnamed).await?;
    change(&jane, "shop", json!({"version": "2"})).await?;
    ensure!(text(&wait_until_published(&space, "shop", "2").await?) == pairs(&[("password", "hers")]));
    Ok(())
}
