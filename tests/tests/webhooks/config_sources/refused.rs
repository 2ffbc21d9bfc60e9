//! Objects that can't become versions, and users who lack the right to make sources of objects.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::cluster::installation::SOURCES_ACCOUNT;
use nudge_tests::cluster::sources::may_read;
use nudge_tests::cluster::{Identity, TestNamespace};
use serde_json::{Value, json};

use crate::config_sources::scene::{
    changes, condition, create_quick_source, enabled, is, live, live_secret, patched, shared, until, versions,
    wait_until_current,
};

#[tokio::test]
async fn an_object_that_vanishes_leaves_the_last_version_and_may_come_back() -> Result<()> {
    let Some(space) = enabled("gone", false).await? else { return Ok(()) };
    create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let refused = until(&space, "shop", "it may not be read", is("NotAllowed")).await?;
    ensure!(condition(&refused, "Fetched").2.contains("--resource=configmaps --resource-name=live"), "{refused:?}");
    live(&space, "live", "1").await?;
    // It is asked again at once when somebody says so, and otherwise a little later.
    patched(&space, "shop", &json!({"metadata": {"annotations": {"nudge.dev/sync": "1"}}})).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    space.api::<ConfigMap>().delete("live", &DeleteParams::default()).await?;
    let gone = until(&space, "shop", "it is gone", is("SourceGone")).await?;
    ensure!(condition(&gone, "Stalled").0 == "True" && gone.version.as_ref() == Some(&first), "{gone:?}");
    let config = space.api::<VersionedConfig>().get("shop").await?;
    ensure!(config.status.and_then(|status| status.current_version).as_ref() == Some(&first));
    let again = json!({"metadata": {"name": "live"}, "data": {"key": "2"}});
    space.create_object::<ConfigMap>(again).await?;
    wait_until_current(&space, "shop", Some(&first)).await?;
    Ok(())
}

#[tokio::test]
async fn an_object_beyond_the_bounds_is_refused_until_it_fits() -> Result<()> {
    let Some(space) = enabled("large", false).await? else { return Ok(()) };
    live(&space, "live", "1").await?;
    let first = create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    let patch = json!({"data": {"a key that no dictionary has": "x"}});
    let odd = space.api::<ConfigMap>().patch("live", &PatchParams::default(), &Patch::Merge(patch)).await;
    ensure!(odd.is_err(), "the API server takes no such key");
    let patch = json!({"data": {"nudge.reserved": "x"}});
    space.api::<ConfigMap>().patch("live", &PatchParams::default(), &Patch::Merge(patch)).await?;
    let refused = until(&space, "shop", "it is refused", is("SourceRefused")).await?;
    ensure!(condition(&refused, "Fetched").2.starts_with("ConfigMap live can't become a version"), "{refused:?}");
    ensure!(refused.version.as_ref() == Some(&version), "{refused:?}");
    patched(&space, "shop", &json!({"spec": {"exclude": ["nudge.*"]}})).await?;
    until(&space, "shop", "it fits", is("Activated")).await?;
    let many: serde_json::Map<_, _> = (0..8192).map(|number| (format!("many.{number}"), json!(""))).collect();
    let patch = json!({"data": many});
    space.api::<ConfigMap>().patch("live", &PatchParams::default(), &Patch::Merge(patch)).await?;
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

#[tokio::test]
async fn what_nudge_makes_is_no_source() -> Result<()> {
    let Some(space) = enabled("own", false).await? else { return Ok(()) };
    live(&space, "live", "1").await?;
    create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    // A version.
    let part = format!("shop-{version}");
    may_read(&space, "configmaps", &part).await?;
    create_quick_source(&space, "part", &json!({"configMap": {"name": part}})).await?;
    let refused = until(&space, "part", "it is refused", is("SourceRefused")).await?;
    ensure!(condition(&refused, "Ready").2.contains("is an object of a version"), "{refused:?}");
    // What may be published, by the name of a config.
    for (source, map) in [("shop2", "shop"), ("web", "web")] {
        let result = create_quick_source(&space, source, &json!({"configMap": {"name": map}})).await;
        let error = result.err().context("it is not refused")?.to_string();
        ensure!(error.contains(&format!("ConfigMap {map} is what Nudge publishes")), "{error}");
    }
    // And by its label, where the config came later.
    live(&space, "later", "1").await?;
    create_quick_source(&space, "late", &json!({"configMap": {"name": "later"}})).await?;
    wait_until_current(&space, "late", None).await?;
    let patch = json!({"metadata": {"labels": {"nudge.dev/published": "1"}}});
    space.api::<ConfigMap>().patch("later", &PatchParams::default(), &Patch::Merge(patch)).await?;
    until(&space, "late", "it is refused", is("SourceRefused")).await?;
    Ok(())
}

#[tokio::test]
async fn a_secret_may_change_its_type_but_not_to_one_of_kubernetes() -> Result<()> {
    let Some(space) = enabled("type", true).await? else { return Ok(()) };
    let data = json!({"tls.crt": "a", "tls.key": "b"});
    live_secret(&space, "live", "Opaque", data.clone()).await?;
    create_quick_source(&space, "tls", &json!({"secret": {"name": "live"}})).await?;
    let first = wait_until_current(&space, "tls", None).await?;
    let secrets = space.api::<Secret>();
    let replaced = async |kind: &str, data: Value| -> Result<()> {
        secrets.delete("live", &DeleteParams::default()).await?;
        let meta = json!({"name": "live", "annotations": {"kubernetes.io/service-account.name": "default"}});
        space.create_object::<Secret>(json!({"metadata": meta, "type": kind, "stringData": data})).await?;
        Ok(())
    };
    // The type is no data.
    replaced("kubernetes.io/tls", data.clone()).await?;
    until(&space, "tls", "it is the same", is("Activated")).await?;
    replaced("helm.sh/release.v1", data.clone()).await?;
    let refused = until(&space, "tls", "it is refused", is("SourceRefused")).await?;
    ensure!(condition(&refused, "Ready").2.contains("has the type helm.sh/release.v1"), "{refused:?}");
    replaced("kubernetes.io/tls", json!({"tls.crt": "a", "tls.key": "c"})).await?;
    wait_until_current(&space, "tls", Some(&first)).await?;
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
    let source = |from: &str| -> Result<ConfigSource> {
        let from =
            if from == "secret" { json!({"secret": {"name": "live"}}) } else { json!({"configMap": {"name": "live"}}) };
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
    let reads = rule("secrets", &["get"], &["live"]);
    for (user, rules, from, missing) in [
        ("blind", json!([makes, publishes, rule("secrets", &["create"], &[])]), "secret", "get Secret live"),
        ("idle", json!([makes, publishes, reads]), "secret", "create Secrets"),
        (
            "mute",
            json!([makes, rule("configmaps", &["get"], &["live"]), rule("configmaps", &["create"], &[])]),
            "map",
            "update ConfigMap shop",
        ),
        (
            "keeper",
            json!([
                makes,
                publishes,
                reads,
                rule("secrets", &["create"], &[]),
                rule("versionedconfigs", &["create", "patch"], &[])
            ]),
            "secret",
            "delete Secrets",
        ),
    ] {
        let result = sources_of(&space, user, rules).await?.create(&PostParams::default(), &source(from)?).await;
        let error = result.err().context("it is not refused")?.to_string();
        ensure!(error.contains(&format!("this needs the right to {missing} in namespace")), "{user}: {error}");
    }
    // A user who has all of them may, and one who changes it needs them, too.
    let configs = [rule("versionedconfigs", &["create"], &[]), rule("versionedconfigs", &["patch"], &["shop"])];
    let rules = json!([makes, publishes, reads, rule("secrets", &["create", "delete"], &[]), configs[0], configs[1]]);
    sources_of(&space, "able", rules).await?.create(&PostParams::default(), &source("secret")?).await?;
    let changer = sources_of(&space, "changer", json!([makes])).await?;
    let patch = Patch::Merge(json!({"spec": {"from": {"secret": {"name": "another"}}}}));
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
    live(&space, "live", "1").await?;
    create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let version = wait_until_current(&space, "shop", None).await?;
    // In another namespace the same content has the same name.
    let Some(other) = enabled("squatted", false).await? else { return Ok(()) };
    let name = format!("shop-{version}");
    other.create_object::<ConfigMap>(json!({"metadata": {"name": name}})).await?;
    live(&other, "live", "1").await?;
    create_quick_source(&other, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let conflict = until(&other, "shop", "the name is taken", is("Conflict")).await?;
    ensure!(condition(&conflict, "Ready").2.starts_with(&format!("ConfigMap {name} exists already")), "{conflict:?}");
    other.api::<ConfigMap>().delete(&name, &DeleteParams::default()).await?;
    wait_until_current(&other, "shop", None).await?;
    Ok(())
}

/// The account creates versions, and reads what somebody has allowed by its name alone.
#[tokio::test]
async fn the_account_of_sources_reads_nothing_by_itself() -> Result<()> {
    let Some(space) = enabled("account", false).await? else { return Ok(()) };
    let Some(installation) = shared().await? else { return Ok(()) };
    live(&space, "live", "1").await?;
    let token = installation.token(SOURCES_ACCOUNT).await?;
    let client = installation.cluster.client(&Identity::Token(&token)).await?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &space.name);
    let secrets = Api::<Secret>::namespaced(client, &space.name);
    let refused = |error: Option<kube::Error>| matches!(error, Some(kube::Error::Api(status)) if status.code == 403);
    ensure!(maps.get("live").await.is_ok());
    ensure!(
        refused(maps.get("kube-root-ca.crt").await.err()) && refused(maps.list(&ListParams::default()).await.err())
    );
    ensure!(refused(secrets.get("any").await.err()) && refused(secrets.list(&ListParams::default()).await.err()));
    ensure!(refused(maps.delete("live", &DeleteParams::default()).await.err()));
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "made"}}))?;
    ensure!(refused(secrets.create(&PostParams::default(), &secret).await.err()), "nobody has allowed that here");
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_not_enabled_takes_no_source() -> Result<()> {
    let Some(installation) = shared().await? else { return Ok(()) };
    let space = installation.cluster.space("plain").await?;
    let error = create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}}))
        .await
        .err()
        .context("it is not refused")?;
    ensure!(error.to_string().contains("is not enabled"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_name_of_a_source_is_no_name_for_anything_else() -> Result<()> {
    let Some(space) = enabled("forged", false).await? else { return Ok(()) };
    live(&space, "live", "1").await?;
    create_quick_source(&space, "shop", &json!({"configMap": {"name": "live"}})).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    changes(&space, "live", "2").await?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    let version = format!("src-{}", "0".repeat(40));
    let forged = json!({
        "metadata": {"name": "forged", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": version}},
        "immutable": true, "data": {"key": "3"}
    });
    let forged: ConfigMap = space.create_object(forged).await?;
    changes(&space, "live", "4").await?;
    let third = wait_until_current(&space, "shop", Some(&second)).await?;
    let status = space.api::<VersionedConfig>().get("shop").await?.status.context("no status")?;
    let label = &forged.labels()["nudge.dev/version"];
    ensure!(third != *label && status.version(label).is_none(), "{status:?}");
    Ok(())
}
