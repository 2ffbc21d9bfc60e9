//! The versions that a source makes of files, and of a secret of Vault.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::servers::git_content::{git_content, read_again};
use serde_json::json;

use crate::config_sources::scene::{
    condition, config_until, create_quick_source, enabled, is, source, until, versions, wait_until_current,
};
use crate::config_sources::vault::secret;

#[tokio::test]
async fn by_default_a_change_becomes_the_current_version() -> Result<()> {
    let Some(space) = enabled("default", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "shop-live", "one").await? else { return Ok(()) };
    source(&space, "shop", &content.from, &json!({})).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    ensure!(first.starts_with("src-"), "{first}");
    let created_versions = versions(&space, "shop").await?;
    ensure!(
        created_versions.len() == 1 && created_versions[0].name_any() == format!("shop-{first}"),
        "{created_versions:?}"
    );
    ensure!(
        created_versions[0].immutable == Some(true) && created_versions[0].owner_references().is_empty(),
        "{created_versions:?}"
    );
    ensure!(created_versions[0].data.as_ref().context("no data")?["key"] == "one", "{created_versions:?}");
    ensure!(created_versions[0].labels()["nudge.dev/prune"] == "3", "{created_versions:?}");
    // The next one comes a minute after the last.
    content.change("two").await?;
    let waiting = until(&space, "shop", "it waits", is("TooSoon")).await?;
    ensure!(waiting.waiting.is_some() && waiting.version.as_deref() == Some(&first), "{waiting:?}");
    super::scene::patched(&space, "shop", &json!({"metadata": {"annotations": {"nudge.dev/sync": "now"}}})).await?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    let config = space.api::<VersionedConfig>().get("shop").await?;
    ensure!(config.spec.version.as_deref() == Some(&second), "{config:?}");
    Ok(())
}

#[tokio::test]
async fn keys_are_chosen_and_the_published_config_map_follows() -> Result<()> {
    let Some(space) = enabled("keys", false).await? else { return Ok(()) };
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "web"}, "data": {"old": "1"}})).await?;
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    content.write([("app.yaml", "a"), ("app.bak", "b"), ("other", "c")]).await?;
    let extra_spec = json!({
        "configName": "web", "include": ["app.*"], "exclude": ["*.bak"], "prefix": "web.", "debounceSeconds": 0
    });
    source(&space, "any", &content.from, &extra_spec).await?;
    wait_until_current(&space, "any", None).await?;
    let configs = space.api::<VersionedConfig>();
    let config_object = configs.get("web").await?;
    ensure!(config_object.spec.objects.is_empty(), "{config_object:?}");
    let objects = Patch::Merge(json!({"spec": {"objects": ["ConfigMap"]}}));
    configs.patch("web", &PatchParams::default(), &objects).await?;
    config_until(&space, "web", "it is published", |_, status| status.published_version.is_some()).await?;
    let published = space.api::<ConfigMap>().get("web").await?.data.context("no data")?;
    ensure!(published == [("web.app.yaml".to_owned(), "a".to_owned())].into(), "{published:?}");
    Ok(())
}

#[tokio::test]
async fn a_secret_becomes_versions_that_say_nothing_of_its_values() -> Result<()> {
    let Some(space) = enabled("secret", true).await? else { return Ok(()) };
    let Some((bao, from)) = secret(&space, &["tls.crt=certificate", "tls.key=hunter2"]).await? else { return Ok(()) };
    create_quick_source(&space, "tls", &from).await?;
    let first = wait_until_current(&space, "tls", None).await?;
    let secrets = space.api::<Secret>();
    let created_secret = secrets.get(&format!("tls-{first}")).await?;
    ensure!(created_secret.type_.as_deref() == Some("Opaque") && created_secret.immutable == Some(true));
    ensure!(created_secret.data.as_ref().context("no data")?["tls.key"].0 == b"hunter2");
    bao.put("shop", &["tls.crt=certificate", "tls.key=hunter3"])?;
    read_again(&space.api()).await?;
    let second = wait_until_current(&space, "tls", Some(&first)).await?;
    // The same content has the same name again.
    bao.put("shop", &["tls.crt=certificate", "tls.key=hunter2"])?;
    read_again(&space.api()).await?;
    ensure!(wait_until_current(&space, "tls", Some(&second)).await? == first);
    // Another config has other names for it.
    create_quick_source(&space, "other", &from).await?;
    ensure!(wait_until_current(&space, "other", None).await? != first);
    let listed_secrets = secrets.list(&ListParams::default().labels("nudge.dev/config=tls")).await?;
    ensure!(listed_secrets.items.len() == 2, "{}", listed_secrets.items.len());
    let config = serde_json::to_string(&space.api::<VersionedConfig>().get("tls").await?)?;
    ensure!(!config.contains("hunter"), "{config}");
    Ok(())
}

#[tokio::test]
async fn by_hand_versions_are_made_and_somebody_chooses() -> Result<()> {
    let Some(space) = enabled("manual", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "one").await? else { return Ok(()) };
    let extra_spec = json!({"activate": "Manual", "debounceSeconds": 0, "minPeriodSeconds": 0});
    source(&space, "shop", &content.from, &extra_spec).await?;
    // The first version of a config is current without anybody's choice.
    let first = until(&space, "shop", "it is made", is("Made")).await?.version.context("no version")?;
    config_until(&space, "shop", "it is current", |_, status| status.current_version.as_ref() == Some(&first)).await?;
    content.change("two").await?;
    let made = until(&space, "shop", "the next is made", |status| {
        is("Made")(status) && status.version.as_ref() != Some(&first)
    });
    let made = made.await?;
    let version = made.version.clone().context("no version")?;
    ensure!(condition(&made, "Ready").2.contains(&format!("kubectl nudge use shop {version}")), "{made:?}");
    let config = space.api::<VersionedConfig>().get("shop").await?;
    ensure!(config.spec.version.is_none() && config.status.and_then(|status| status.current_version) == Some(first));
    Ok(())
}
