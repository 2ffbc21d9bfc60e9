//! Content that breaks a rule of its config.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::{ConfigSource, ConfigSourceStatus, VersionedConfig};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::eventually;
use nudge_tests::servers::git_content::{git_content, read_again};
use serde_json::{Value, json};

use crate::config_sources::scene::{
    WAIT_TIMEOUT, condition, create_quick_source, enabled, is, patched, until, versions, wait_until_current,
};
use crate::config_sources::vault::secret;

/// Creates a config whose content must follow these rules.
async fn create_config_with_rules(space: &TestNamespace, validation: Value) -> Result<()> {
    let spec = json!({"rollout": at_once(), "validation": validation});
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": spec});
    space.create_object::<VersionedConfig>(config).await?;
    Ok(())
}

/// Returns the message of a source whose content breaks a rule, which holds no value.
fn refusal_message(status: &ConfigSourceStatus) -> Result<String> {
    let [valid, ready, stalled] = ["Valid", "Ready", "Stalled"].map(|kind| condition(status, kind));
    ensure!((&*valid.0, &*valid.1) == ("False", "Invalid") && stalled.0 == "True", "{status:?}");
    ensure!(ready.2 == valid.2 && !valid.2.contains("hunter"), "{ready:?}");
    Ok(ready.2)
}

#[tokio::test]
async fn content_that_breaks_a_rule_becomes_no_version() -> Result<()> {
    let Some(space) = enabled("rule", false).await? else { return Ok(()) };
    create_config_with_rules(&space, json!([{"name": "number", "key": "key", "format": "int"}])).await?;
    let Some(content) = git_content(&space, "live", "hunter1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let message = refusal_message(&until(&space, "shop", "it is invalid", is("Invalid")).await?)?;
    let expected = "the content breaks a rule of spec.validation: key key: ";
    ensure!(message.starts_with(expected) && message.ends_with("correct it, or change the rules"), "{message}");
    ensure!(versions(&space, "shop").await?.is_empty());
    // It is corrected.
    content.change("1").await?;
    let first = wait_until_current(&space, "shop", None).await?;
    // The next mistake leaves what is there.
    content.change("hunter2").await?;
    let wrong = until(&space, "shop", "it is invalid", is("Invalid")).await?;
    refusal_message(&wrong)?;
    ensure!(wrong.version.as_ref() == Some(&first) && wrong.observed_version.as_ref() != Some(&first), "{wrong:?}");
    ensure!(versions(&space, "shop").await?.len() == 1);
    // Or the rules are changed.
    let rules = json!({"spec": {"validation": [{"name": "keys", "required": ["key"]}]}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(rules)).await?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    let status = space.api::<ConfigSource>().get("shop").await?.status.context("no status")?;
    ensure!(second != first && condition(&status, "Valid").0 == "True", "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_secret_that_breaks_a_rule_becomes_no_version_and_its_value_is_not_shown() -> Result<()> {
    let Some(space) = enabled("rule", true).await? else { return Ok(()) };
    let schema = json!({"inline": {"type": "integer", "maximum": 9999}});
    create_config_with_rules(&space, json!([{"name": "pin", "key": "pin", "schema": schema}])).await?;
    let Some((bao, from)) = secret(&space, &["pin=hunter2"]).await? else { return Ok(()) };
    create_quick_source(&space, "shop", &from).await?;
    let message = refusal_message(&until(&space, "shop", "it is invalid", is("Invalid")).await?)?;
    ensure!(message.contains("key pin"), "{message}");
    let secrets = space.api::<Secret>();
    let list_params = ListParams::default().labels("nudge.dev/config=shop");
    ensure!(secrets.list_metadata(&list_params).await?.items.is_empty());
    bao.put("shop", &["pin=1234"])?;
    read_again(&space.api()).await?;
    wait_until_current(&space, "shop", None).await?;
    ensure!(secrets.list_metadata(&list_params).await?.items.len() == 1);
    Ok(())
}

/// The role sources may not read the schema, so others judge: admission where the version is one object, and the gate
/// before sealing.
#[tokio::test]
async fn content_that_others_refuse_is_not_made_again_and_again() -> Result<()> {
    let Some(space) = enabled("schema", false).await? else { return Ok(()) };
    let schema = json!({"type": "integer"}).to_string();
    let map = json!({"metadata": {"name": "schema"}, "immutable": true, "data": {"of-key": schema}});
    space.create_object::<ConfigMap>(map).await?;
    let schema = json!({"configMapKeyRef": {"name": "schema", "key": "of-key"}});
    create_config_with_rules(&space, json!([{"name": "number", "key": "key", "schema": schema}])).await?;
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let first = wait_until_current(&space, "shop", None).await?;

    content.change("hunter2").await?;
    let message = refusal_message(&until(&space, "shop", "admission refuses it", is("Invalid")).await?)?;
    ensure!(message.contains("breaks a rule of spec.validation: key key"), "{message}");
    ensure!(versions(&space, "shop").await?.len() == 1);

    // What needs two objects is made, and is not sealed.
    let (one, other) = ("x".repeat(600_000), "x".repeat(420_000));
    let write = async |value: &str| content.write([("key", value), ("one", &*one), ("other", &*other)]).await;
    let becomes = async |value: &str| -> Result<ConfigSourceStatus> {
        let before = space.api::<ConfigSource>().get("shop").await?.status.context("no status")?.observed_version;
        write(value).await?;
        let invalid = |status: &ConfigSourceStatus| is("Invalid")(status) && status.observed_version != before;
        until(&space, "shop", "the gate refuses it", invalid).await
    };
    let third = becomes("hunter3").await?;
    let message = refusal_message(&third)?;
    let version = third.version.clone().context("nothing is made")?;
    ensure!(message.starts_with(&format!("version {version} breaks a rule of spec.validation: key key")), "{message}");
    let parts = async |version: &str| -> Result<Vec<Option<String>>> {
        let maps = versions(&space, "shop").await?;
        Ok(maps.iter().filter(|map| map.labels()["nudge.dev/version"] == version).map(ResourceExt::uid).collect())
    };
    let created_parts = parts(&version).await?;
    ensure!(created_parts.len() == 2, "{created_parts:?}");
    // Another one, after which the older one is deleted. What is there is not made again, whatever else the source is
    // requested.
    let fourth = becomes("hunter4").await?.version.context("nothing is made")?;
    eventually(WAIT_TIMEOUT, "the older one is deleted", async || parts(&version).await.ok()?.is_empty().then_some(()))
        .await?;
    let created_parts = parts(&fourth).await?;
    patched(&space, "shop", &json!({"metadata": {"annotations": {"nudge.dev/sync": "1"}}})).await?;
    until(&space, "shop", "it was looked at again", |status| status.synced.as_deref() == Some("1")).await?;
    ensure!(created_parts.len() == 2 && parts(&fourth).await? == created_parts, "{created_parts:?}");
    let config = space.api::<VersionedConfig>().get("shop").await?;
    ensure!(config.spec.version.as_ref() == Some(&first) && config.status.context("no status")?.invalid.len() == 1);
    // It is corrected.
    write("2").await?;
    wait_until_current(&space, "shop", Some(&fourth)).await?;
    Ok(())
}
