//! Content that can't become versions, and users who lack the rights that a source uses.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::cluster::installation::SOURCES_ACCOUNT;
use nudge_tests::cluster::{Identity, TestNamespace};
use nudge_tests::servers::git_content::git_content;
use serde_json::{Value, json};

use crate::config_sources::scene::{
    condition, create_quick_source, enabled, is, patched, shared, until, versions, wait_until_current,
};

#[tokio::test]
async fn content_beyond_the_bounds_is_refused_until_it_fits() -> Result<()> {
    let Some(space) = enabled("large", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    let first = create_quick_source(&space, "shop", &content.from).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    content.write([("nudge.reserved", "x")]).await?;
    let refused = until(&space, "shop", "it is refused", is("SourceRefused")).await?;
    ensure!(condition(&refused, "Fetched").2.contains(" can't become a version: "), "{refused:?}");
    ensure!(refused.version.as_ref() == Some(&version), "{refused:?}");
    patched(&space, "shop", &json!({"spec": {"exclude": ["nudge.*"]}})).await?;
    until(&space, "shop", "it fits", is("Activated")).await?;
    let many: Vec<_> = (0..8192).map(|number| format!("many.{number}")).collect();
    content.write(many.iter().map(|name| (name.as_str(), ""))).await?;
    let large = until(&space, "shop", "it is too large", is("SourceRefused")).await?;
    ensure!(condition(&large, "Fetched").2.contains("has 8193 keys"), "{large:?}");
    patched(&space, "shop", &json!({"spec": {"exclude": ["nudge.*", "many.*"]}})).await?;
    until(&space, "shop", "it fits again", is("Activated")).await?;
    // Nothing is left of it.
    patched(&space, "shop", &json!({"spec": {"include": ["none"]}})).await?;
    let empty = until(&space, "shop", "it is empty", is("SourceRefused")).await?;
    ensure!(condition(&empty, "Fetched").2.contains("at least one key"), "{empty:?}");
    ensure!(first.config() == "shop" && versions(&space, "shop").await?.len() == 1);
    Ok(())
}

/// Returns the API of sources as this user.
pub(crate) async fn sources_of(space: &TestNamespace, user: &str, rules: Value) -> Result<Api<ConfigSource>> {
    let Some(installation) = shared().await? else { anyhow::bail!("no cluster") };
    space.service_account(user).await?;
    space.allow(user, rules).await?;
    let token = space.token(user, nudge_tests::cluster::servers::ISSUER, None).await?;
    let client = installation.cluster.client(&Identity::Token(&token)).await?;
    Ok(Api::namespaced(client, &space.name))
}

#[tokio::test]
async fn a_source_lends_no_right_that_its_maker_lacks() -> Result<()> {
    let Some(space) = enabled("lends", true).await? else { return Ok(()) };
    let vault = |account: &str| {
        let auth = json!({"kubernetes": {"role": "shop", "serviceAccount": account}});
        json!({"vault": {"address": "https://vault.example.com", "auth": auth, "kv": {"path": "shop"}}})
    };
    let git = json!({"git": {"url": "https://git.example.com/shop"}});
    let source = |from: &Value| -> Result<ConfigSource> {
        let object = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"}, "spec": {"from": from}
        });
        Ok(serde_json::from_value(object)?)
    };
    let rule = |resource: &str, verbs: &[&str], names: &[&str]| {
        let group = if ["configsources", "versionedconfigs"].contains(&resource) { "nudge.dev" } else { "" };
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names})
    };
    let makes = rule("configsources", &["create", "update", "patch"], &[]);
    let publishes = rule("configmaps", &["update"], &["shop"]);
    let logs_in = rule("serviceaccounts/token", &["create"], &["live"]);
    let secret = vault("live");
    for (user, rules, from, missing) in [
        (
            "blind",
            json!([makes, publishes, rule("secrets", &["create"], &[])]),
            &secret,
            "create tokens of ServiceAccount live",
        ),
        ("idle", json!([makes, publishes, logs_in]), &secret, "create Secrets"),
        ("mute", json!([makes, rule("configmaps", &["create"], &[])]), &git, "update ConfigMap shop"),
        (
            "keeper",
            json!([
                makes,
                publishes,
                logs_in,
                rule("secrets", &["create"], &[]),
                rule("versionedconfigs", &["create", "patch"], &[])
            ]),
            &secret,
            "delete Secrets",
        ),
    ] {
        let result = sources_of(&space, user, rules).await?.create(&PostParams::default(), &source(from)?).await;
        let error = result.err().context("it is not refused")?.to_string();
        ensure!(error.contains(&format!("this needs the right to {missing} in namespace")), "{user}: {error}");
    }
    // A user who has all of them may, and one who changes it needs them, too.
    let configs = [rule("versionedconfigs", &["create"], &[]), rule("versionedconfigs", &["patch"], &["shop"])];
    let rules = json!([makes, publishes, logs_in, rule("secrets", &["create", "delete"], &[]), configs[0], configs[1]]);
    sources_of(&space, "able", rules).await?.create(&PostParams::default(), &source(&secret)?).await?;
    let changer = sources_of(&space, "changer", json!([makes])).await?;
    let patch = Patch::Merge(json!({"spec": {"from": vault("another")}}));
    let error = changer.patch("shop", &PatchParams::default(), &patch).await.err().context("it is not refused")?;
    ensure!(error.to_string().contains("may not change its spec"), "{error}");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/sync": "now"}}}));
    let error = changer.patch("shop", &PatchParams::default(), &patch).await.err().context("it is not refused")?;
    ensure!(error.to_string().contains("may not set its annotation nudge.dev/sync"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_object_that_has_the_name_of_a_part_is_named() -> Result<()> {
    let Some(space) = enabled("squatted", false).await? else { return Ok(()) };
    let Some(first) = git_content(&space, "live", "1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &first.from).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    // In another namespace the same content has the same name.
    let Some(other) = enabled("squatted", false).await? else { return Ok(()) };
    let name = format!("shop-{version}");
    other.create_object::<ConfigMap>(json!({"metadata": {"name": name}})).await?;
    create_quick_source(&other, "shop", &first.from).await?;
    let conflict = until(&other, "shop", "the name is taken", is("Conflict")).await?;
    ensure!(condition(&conflict, "Ready").2.starts_with(&format!("ConfigMap {name} exists already")), "{conflict:?}");
    other.api::<ConfigMap>().delete(&name, &DeleteParams::default()).await?;
    wait_until_current(&other, "shop", None).await?;
    Ok(())
}

#[tokio::test]
async fn the_account_of_sources_reads_nothing_by_itself() -> Result<()> {
    let Some(space) = enabled("account", false).await? else { return Ok(()) };
    let Some(installation) = shared().await? else { return Ok(()) };
    let token = installation.token(SOURCES_ACCOUNT).await?;
    let client = installation.cluster.client(&Identity::Token(&token)).await?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &space.name);
    let secrets = Api::<Secret>::namespaced(client, &space.name);
    let refused = |error: Option<kube::Error>| matches!(error, Some(kube::Error::Api(status)) if status.code == 403);
    ensure!(
        refused(maps.get("kube-root-ca.crt").await.err()) && refused(maps.list(&ListParams::default()).await.err())
    );
    ensure!(refused(secrets.get("any").await.err()) && refused(secrets.list(&ListParams::default()).await.err()));
    ensure!(refused(maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.err()));
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "made"}}))?;
    ensure!(refused(secrets.create(&PostParams::default(), &secret).await.err()), "nobody has allowed that here");
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_not_enabled_takes_no_source() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let space = installation.cluster.space("plain").await?;
    let git = json!({"git": {"url": "https://git.example.com/shop"}});
    let error = create_quick_source(&space, "shop", &git).await.err().context("it is not refused")?;
    ensure!(error.to_string().contains("is not enabled"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_name_of_a_source_is_no_name_for_anything_else() -> Result<()> {
    let Some(space) = enabled("forged", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    content.change("2").await?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    let version = format!("src-{}", "0".repeat(40));
    let forged = json!({
        "metadata": {"name": "forged", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}},
        "immutable": true, "data": {"key": "3"}
    });
    let forged: ConfigMap = space.create_object(forged).await?;
    content.change("4").await?;
    let third = wait_until_current(&space, "shop", Some(&second)).await?;
    let status = space.api::<VersionedConfig>().get("shop").await?.status.context("no status")?;
    let label = &forged.labels()["nudge.dev/version"];
    ensure!(third != *label && status.version(label).is_none(), "{status:?}");
    Ok(())
}
