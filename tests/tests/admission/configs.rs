//! Rules 4, 5 and 7: who may choose a config's version, and when a config may go.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nudge_injector::api::VersionedConfig;
use nudge_tests::cluster::Space;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene, config, sentence, sentence_of};

const GUARD: &str = "configs.nudge.dev";
const KEEPER: &str = "configs-delete.nudge.dev";

fn object(name: &str, current: &str) -> Value {
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
        "spec": {"current": current}
    })
}

/// Allows the group `devs` what the rules say.
pub(crate) async fn allow_devs(space: &Space, name: &str, rules: Value) -> Result<()> {
    space.create_object::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    });
    space.create_object::<RoleBinding>(binding).await?;
    Ok(())
}

#[tokio::test]
async fn whoever_makes_the_first_version_must_be_allowed_to_update_the_config_map() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("first").await?;
    let create = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    allow_devs(&space, "create", create).await?;
    let jane = scene.cluster.client(&scene.cluster.user("jane", &["devs"])).await?;
    let maps = Api::<ConfigMap>::namespaced(jane, &space.name);
    let version: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "shop-1", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}},
        "immutable": true, "data": {"key": "value"},
    }))?;
    let refusal = format!(
        "ConfigMap shop-1: version 1 of config shop becomes current as soon as it is complete, which also writes ConfigMap shop, so \
         user \"jane\" needs the right to update that ConfigMap in namespace {}",
        space.name
    );
    let made = async || maps.create(&PostParams::default(), &version).await.err().map(|error| error.to_string());
    eventually(SOON, "the role holds and the guard refuses", async || made().await?.contains(&refusal).then_some(()))
        .await?;
    let update =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["shop"], "verbs": ["update"]}]);
    allow_devs(&space, "update", update).await?;
    eventually(SOON, "it passes", async || made().await.is_none().then_some(())).await
}

#[tokio::test]
async fn whoever_sets_the_version_must_be_allowed_to_update_the_config_map() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("authority").await?;
    allow_devs(
        &space,
        "configs",
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]}]),
    )
    .await?;
    let jane = scene.cluster.client(&scene.cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    let create = async |current: Value| {
        let mut shop = object("shop", "1");
        shop["spec"]["current"] = current;
        configs.create(&PostParams::default(), &serde_json::from_value(shop).expect("a config")).await
    };
    eventually(SOON, "the role holds", async || create(Value::Null).await.ok()).await?;
    configs.delete("shop", &DeleteParams::default()).await?;

    let refusal = format!(
        "VersionedConfig shop: user \"jane\" may not set spec.current, because that also writes ConfigMap shop; it needs the right \
         to update ConfigMap shop in namespace {}",
        space.name
    );
    assert_eq!(sentence(GUARD, create(json!("1")).await), refusal);
    create(Value::Null).await?;
    let choose = async |current: Value| {
        let patch = Patch::Merge(json!({"spec": {"current": current, "historyLimit": 3}}));
        configs.patch("shop", &PatchParams::default(), &patch).await
    };
    assert_eq!(sentence(GUARD, choose(json!("1")).await), refusal);
    choose(Value::Null).await?;

    let rules = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["shop"], "verbs": ["update"]
    }]);
    allow_devs(&space, "shop", rules).await?;
    eventually(SOON, "the role holds", async || choose(json!("1")).await.ok()).await?;
    Ok(())
}

#[tokio::test]
async fn names_must_be_ones_that_versions_can_carry() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("names").await?;
    assert_eq!(
        sentence_of(GUARD, space.create_object::<VersionedConfig>(object("shop", "current")).await),
        "VersionedConfig shop can't have that spec.current: version \"current\" is not allowed: 'current' stands for whatever \
         version is current; choose another name"
    );
    let long = format!("{}.b", "a".repeat(62));
    assert_eq!(
        sentence_of(GUARD, space.create_object::<VersionedConfig>(object(&long, "1")).await),
        format!(
            "VersionedConfig {long} can't be made: its versions have its name in the label nudge.dev/config, where 63 \
                 characters are allowed; give it a shorter name"
        )
    );
    // A version that is not there is no reason to refuse: GitOps applies in any order.
    space.create_object::<VersionedConfig>(object("shop", "not-there-yet")).await?;
    Ok(())
}

#[tokio::test]
async fn a_config_is_kept_while_pods_subscribe() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("subscribed").await?;
    config(&space, "shop", json!({}), json!({"phase": "Current"})).await?;
    scene.subscribe(&space, "shop", &["web-7", "web-1", "web-2", "web-3", "web-4", "web-5", "web-6"]);
    let configs = space.api::<VersionedConfig>();
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    for parameters in [DeleteParams::default(), dry] {
        assert_eq!(
            sentence(KEEPER, configs.delete("shop", &parameters).await.map(|_| ())),
            "VersionedConfig shop can't be deleted, because pods web-1, web-2, web-3, web-4, web-5 and 2 more subscribe to it; \
             delete or change them first, or set the annotation nudge.dev/force-delete: \"true\" on it"
        );
    }
    let force = Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}}));
    configs.patch("shop", &PatchParams::default(), &force).await?;
    configs.delete("shop", &DeleteParams::default()).await?;
    Ok(())
}
