//! Texts: an edit of a config's objects is a version, against a real API server. Without pods, each move ends at once.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

/// The time of two moves, which begin a minute apart.
const WAIT_TIMEOUT: Duration = Duration::from_secs(100);

async fn create_config(space: &TestNamespace, name: &str, mut spec: Value) -> Result<VersionedConfig> {
    spec["rollout"] = at_once();
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name}, "spec": spec});
    space.create_object(config).await
}

async fn create_map(space: &TestNamespace, name: &str, value: &str) -> Result<ConfigMap> {
    space.create_object(json!({"metadata": {"name": name}, "data": {"key": value}})).await
}

async fn edit(space: &TestNamespace, name: &str, value: &str) -> Result<ConfigMap> {
    let patch = Patch::Merge(json!({"data": {"key": value}}));
    Ok(space.api::<ConfigMap>().patch(name, &PatchParams::default(), &patch).await?)
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

/// Returns the value of the current version, from the object that it is made of.
async fn current_value(space: &TestNamespace, status: &VersionedConfigStatus) -> Option<String> {
    let current = status.version(status.current_version.as_deref()?)?;
    let map = space.api::<ConfigMap>().get(&current.parts.first()?.name).await.ok()?;
    map.data?.remove("key")
}

async fn wait_for_value(space: &TestNamespace, name: &str, value: &str) -> Result<VersionedConfigStatus> {
    let configs = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, &format!("config {name} has {value:?}"), async || {
        let status = configs.get(name).await.ok()?.status?;
        let is_proven = status.current_version == status.desired_version && status.rollout.stage.is_none();
        (is_proven && current_value(space, &status).await.as_deref() == Some(value)).then_some(status)
    })
    .await
}

fn reason(status: &VersionedConfigStatus, kind: &str) -> String {
    let condition = status.conditions.iter().find(|condition| condition.type_ == kind);
    condition.map(|condition| condition.reason.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_text_is_followed_whichever_way_it_is_written_and_nobody_else_writes_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("texts").await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap"]})).await?;
    status(&space, "web", "it has no text", |status| reason(status, "Fetched") == "NoText").await?;
    create_map(&space, "web", "one").await?;
    let first = wait_for_value(&space, "web", "one").await?;
    assert_eq!(first.current_version.as_deref(), Some("1.0.0"));
    // kubectl edit, apply or patch.
    edit(&space, "web", "two").await?;
    let second = wait_for_value(&space, "web", "two").await?;
    let version = second.current_version.as_deref().unwrap_or_default();
    assert!(version.starts_with("txt-") && second.version(version).is_some(), "{second:#?}");
    // kubectl replace takes the label away. A text that a version has already is this version.
    let maps = space.api::<ConfigMap>();
    let mut replaced: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "web"}, "data": {"key": "one"}}))?;
    replaced.metadata.resource_version = maps.get("web").await?.metadata.resource_version;
    maps.replace("web", &PostParams::default(), &replaced).await?;
    assert_eq!(wait_for_value(&space, "web", "one").await?.current_version.as_deref(), Some("1.0.0"));
    // kubectl replace --force.
    maps.delete("web", &DeleteParams::default()).await?;
    let gone = status(&space, "web", "the text is gone", |status| reason(status, "Fetched") == "NoText").await?;
    assert_eq!(gone.current_version.as_deref(), Some("1.0.0"), "what is current stays");
    create_map(&space, "web", "three").await?;
    wait_for_value(&space, "web", "three").await?;
    let labels = eventually(WAIT_TIMEOUT, "the new object has the label", async || {
        maps.get("web").await.ok()?.metadata.labels.filter(|labels| labels.contains_key("nudge.dev/follows"))
    })
    .await?;
    assert_eq!(labels, [("nudge.dev/follows".to_owned(), "web".to_owned())].into(), "and nothing else");
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_named_ends_following_until_it_is_not_named_any_more() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("named-texts").await?;
    create_map(&space, "web", "one").await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap"]})).await?;
    wait_for_value(&space, "web", "one").await?;
    let name = async |version: Value| {
        let patch = Patch::Merge(json!({"spec": {"version": version}}));
        space.api::<VersionedConfig>().patch("web", &PatchParams::default(), &patch).await
    };
    name(json!("1.0.0")).await?;
    let is_published = |status: &VersionedConfigStatus| status.internal.text.is_none() && status.publish_time.is_some();
    let named = status(&space, "web", "the version is published, no text is followed", is_published).await?;
    assert_eq!(reason(&named, "Fetched"), "", "{named:#?}");
    edit(&space, "web", "two").await?;
    let drifted = status(&space, "web", "the edit is noticed", |status| !reason(status, "Drifted").is_empty()).await?;
    assert_eq!(drifted.current_version.as_deref(), Some("1.0.0"));
    name(Value::Null).await?;
    wait_for_value(&space, "web", "two").await?;
    Ok(())
}

#[tokio::test]
async fn a_secret_is_a_text_too_and_both_objects_are_one_version() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("secret-texts").await?;
    create_map(&space, "web", "one").await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap", "Secret"]})).await?;
    let unread = |status: &VersionedConfigStatus| ["TextNotTaken", "NoText"].contains(&&*reason(status, "Fetched"));
    status(&space, "web", "the Secret is missing", unread).await?;
    for role in ["nudge-secrets", "nudge-publish-secrets"] {
        bind(&space, role).await?;
    }
    let secret = |pin: &str| json!({"metadata": {"name": "web"}, "stringData": {"pin": pin}});
    space.create_object::<Secret>(secret("hunter2")).await?;
    let first = wait_for_value(&space, "web", "one").await?;
    let current = first.version("1.0.0").context("no 1.0.0")?;
    assert_eq!((current.parts.len(), current.keys), (2, 2), "{current:?}");
    let patch = Patch::Merge(json!({"stringData": {"pin": "hunter3"}}));
    space.api::<Secret>().patch("web", &PatchParams::default(), &patch).await?;
    let renewed = |status: &VersionedConfigStatus| {
        let version = status.current_version.as_deref();
        version.is_some_and(|version| version.starts_with("txt-")) && status.rollout.stage.is_none()
    };
    let second = status(&space, "web", "the renewed Secret is current", renewed).await?;
    let text = serde_json::to_string(&second)?;
    assert!(!text.contains("hunter"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_text_that_can_be_no_version_says_why_and_changes_nothing() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("odd-texts").await?;
    create_map(&space, "web", "one").await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap"]})).await?;
    wait_for_value(&space, "web", "one").await?;
    let patch = Patch::Merge(json!({"data": {"nudge.key": "x"}}));
    space.api::<ConfigMap>().patch("web", &PatchParams::default(), &patch).await?;
    let refused = status(&space, "web", "the key is refused", |status| reason(status, "Fetched") == "NoText").await?;
    assert_eq!((refused.current_version.as_deref(), refused.versions.len()), (Some("1.0.0"), 1));
    let condition = refused.conditions.iter().find(|condition| condition.type_ == "Fetched").context("no condition")?;
    assert!(condition.message.contains("nudge.key"), "{}", condition.message);
    Ok(())
}

#[tokio::test]
async fn data_that_another_manager_applies_is_not_written() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("applied-texts").await?;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"key": "one"}});
    let maps = space.api::<ConfigMap>();
    maps.patch("web", &PatchParams::apply("argocd"), &Patch::Apply(&applied)).await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap"]})).await?;
    wait_for_value(&space, "web", "one").await?;
    edit(&space, "web", "two").await?;
    wait_for_value(&space, "web", "two").await?;
    let patch = Patch::Merge(json!({"spec": {"version": "1.0.0"}}));
    space.api::<VersionedConfig>().patch("web", &PatchParams::default(), &patch).await?;
    // The other manager has lost the field to the edit, and applies it again.
    maps.patch(
        "web",
        &PatchParams::apply("argocd").force(),
        &Patch::Apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"key": "three"}})),
    )
    .await?;
    let refused = status(&space, "web", "it is left alone", |status| reason(status, "Published") == "NotOurs").await?;
    let condition =
        refused.conditions.iter().find(|condition| condition.type_ == "Published").context("no condition")?;
    assert!(condition.message.contains("is managed by argocd"), "{}", condition.message);
    assert_eq!(maps.get("web").await?.data.unwrap_or_default()["key"], "three");
    Ok(())
}

#[tokio::test]
async fn a_text_that_breaks_a_rule_gives_way_once_where_a_pod_reads_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("invalid-texts").await?;
    create_map(&space, "web", "one").await?;
    let from = json!([{"configMapRef": {"name": "web"}}]);
    let pod = json!({"metadata": {"name": "api"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "test", "envFrom": from}]}});
    space.create_object::<Pod>(pod).await?;
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    space.api::<Pod>().patch_status("api", &PatchParams::default(), &running).await?;
    let rules = json!([{"name": "short", "rule": "data.key.size() < 5", "message": "key must be short"}]);
    create_config(&space, "web", json!({"objects": ["ConfigMap"], "validation": rules})).await?;
    let is_read = |status: &VersionedConfigStatus| !status.internal.readers.is_empty();
    status(&space, "web", "the reader is named", is_read).await?;

    edit(&space, "web", "a long text").await?;
    let refused = |status: &VersionedConfigStatus| !status.internal.written_back.is_empty();
    let first = status(&space, "web", "the text gave way", refused).await?;
    let version = first.internal.written_back[0].clone();
    assert!(first.invalid.iter().any(|invalid| invalid.version == version), "{first:#?}");
    assert!(first.version(&version).is_none(), "it is sealed: {first:#?}");
    let map = space.api::<ConfigMap>().get("web").await?;
    assert_eq!(map.data.unwrap_or_default()["key"], "one");
    let is_back = |status: &VersionedConfigStatus| status.desired_version.as_deref() == Some("1.0.0");
    status(&space, "web", "the text is the current version", is_back).await?;

    // The user who writes it again has the last word.
    edit(&space, "web", "a long text").await?;
    let stays = |status: &VersionedConfigStatus| reason(status, "Published") == "OtherText";
    let second = status(&space, "web", "the text stays", stays).await?;
    assert_eq!(second.internal.written_back, [version]);
    let map = space.api::<ConfigMap>().get("web").await?;
    assert_eq!(map.data.unwrap_or_default()["key"], "a long text");
    Ok(())
}

#[tokio::test]
async fn two_managers_with_keys_of_their_own_write_one_text_and_history_names_who_changed_it() -> Result<()> {
    let Some((installation, _)) = Installation::shared().await? else { return Ok(()) };
    let space = installation.enabled("shared-texts").await?;
    let maps = space.api::<ConfigMap>();
    let apply = async |manager: &str, value: &str| {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {manager: value}});
        maps.patch("web", &PatchParams::apply(manager), &Patch::Apply(&map)).await
    };
    let text = async |expected: [&str; 2]| {
        eventually(WAIT_TIMEOUT, &format!("{expected:?} is current"), async || {
            let status = space.api::<VersionedConfig>().get("web").await.ok()?.status?;
            let current = status.version(status.current_version.as_deref()?)?.parts.first()?.name.clone();
            let data = maps.get(&current).await.ok()?.data?;
            let is_expected = data.len() == 2 && [&data["team-a"], &data["team-b"]] == expected;
            (is_expected && status.rollout.stage.is_none()).then_some(status)
        })
        .await
    };
    let managers = |status: &VersionedConfigStatus| -> Result<Vec<String>> {
        let release = status.releases.last().context("no release")?;
        assert_eq!(release.requested_by, None, "nobody has verified who it is");
        let mut managers = release.unverified_managers.clone();
        managers.sort_unstable();
        Ok(managers)
    };
    apply("team-a", "1").await?;
    apply("team-b", "1").await?;
    create_config(&space, "web", json!({"objects": ["ConfigMap"]})).await?;
    text(["1", "1"]).await?;
    apply("team-b", "2").await?;
    assert_eq!(managers(&text(["1", "2"]).await?)?, ["team-b"]);
    // Both before the text has settled.
    apply("team-a", "3").await?;
    apply("team-b", "3").await?;
    let status = text(["3", "3"]).await?;
    assert_eq!(managers(&status)?, ["team-a", "team-b"]);
    assert_eq!(status.releases.len(), 3, "{:#?}", status.releases);
    Ok(())
}
