//! Rules 4, 5 and 7: who may decide about the published ConfigMap, and when a config may be deleted.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::guarded_cluster::{
    GuardedCluster, SOON, config, decisive_changes, deleting_changes, may_not_delete, message, message_of, with_secret,
};

const GUARD: &str = "configs.nudge.dev";
const KEEPER: &str = "configs-delete.nudge.dev";

fn object(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": name},
        "spec": {"version": version}
    })
}

/// Grants the group `devs` the rules.
pub(crate) async fn allow_devs(space: &TestNamespace, name: &str, rules: Value) -> Result<()> {
    space.create_object::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    });
    space.create_object::<RoleBinding>(binding).await?;
    Ok(())
}

/// Returns the refusal of an act that jane lacks the right for.
fn not_permitted(space: &TestNamespace, what: &str) -> String {
    format!(
        "VersionedConfig shop: user \"jane\" may not {what}, because that decides what ConfigMap shop holds; this needs the right to update \
         ConfigMap shop in namespace {}",
        space.name
    )
}

#[tokio::test]
async fn a_user_who_decides_what_the_config_map_holds_must_be_allowed_to_update_it() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("authority").await?;
    allow_devs(
        &space,
        "configs",
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]}]),
    )
    .await?;
    let jane = guarded.cluster.client(&guarded.cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    let create = async |version: Value| {
        let mut shop = object("shop", "1");
        shop["spec"]["version"] = version;
        configs.create(&PostParams::default(), &serde_json::from_value(shop).expect("a config")).await
    };
    let listed = async || configs.list(&ListParams::default()).await.ok();
    eventually(SOON, "the role holds", listed).await?;
    for version in [Value::Null, json!("1")] {
        assert_eq!(message(GUARD, create(version).await), not_permitted(&space, "create it"));
    }
    space.create_object::<VersionedConfig>(object("shop", "1")).await?;
    let change = async |change: Value| configs.patch("shop", &PatchParams::default(), &Patch::Merge(change)).await;
    for (asked, what) in decisive_changes() {
        assert_eq!(message(GUARD, change(asked).await), not_permitted(&space, what));
    }
    for (asked, [what, _]) in deleting_changes() {
        assert_eq!(message(GUARD, change(asked).await), not_permitted(&space, what));
    }
    // A change that decides nothing.
    change(json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;

    let rules = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["shop"], "verbs": ["update"]
    }]);
    allow_devs(&space, "shop", rules).await?;
    eventually(SOON, "the role holds", async || change(json!({"spec": {"version": "3"}})).await.ok()).await?;
    for (asked, what) in decisive_changes() {
        change(asked).await.with_context(|| what)?;
    }
    for (asked, [_, what]) in deleting_changes() {
        assert_eq!(message(GUARD, change(asked).await), may_not_delete(&space, "shop", what, "ConfigMap"));
    }
    allow_devs(&space, "delete", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}]))
        .await?;
    let lowered = async || change(json!({"spec": {"historyLimit": 4}})).await.ok();
    eventually(SOON, "the role holds", lowered).await?;
    for (asked, [_, what]) in deleting_changes() {
        change(asked).await.with_context(|| what)?;
    }
    Ok(())
}

/// Nudge deletes the versions of a deleted config. So only a user who may delete the versions may delete the config.
#[tokio::test]
async fn a_config_goes_only_with_what_the_user_may_delete() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("deleting-secrets").await?;
    allow_devs(
        &space,
        "configs",
        json!([{"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["*"]}]),
    )
    .await?;
    let jane = guarded.cluster.client(&guarded.cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    eventually(SOON, "the role holds", async || configs.list(&ListParams::default()).await.ok()).await?;
    let delete = async |name: &str| configs.delete(name, &DeleteParams::default()).await.map(drop);
    config(&space, "empty", json!({}), json!({"observedGeneration": 1})).await?;
    delete("empty").await?;
    config(&space, "shop", json!({}), with_secret()).await?;
    let forced = Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &forced).await?;
    assert_eq!(message(KEEPER, delete("shop").await), may_not_delete(&space, "shop", "delete it", "ConfigMap"));
    let all = configs.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert_eq!(message(KEEPER, all.map(drop)), may_not_delete(&space, "shop", "delete it", "ConfigMap"));
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete", "update"]}]);
    allow_devs(&space, "maps", rules).await?;
    let refused = async || {
        let refused = message(KEEPER, delete("shop").await);
        (refused == may_not_delete(&space, "shop", "delete it", "Secret")).then_some(())
    };
    eventually(SOON, "the role holds", refused).await?;
    // In this namespace versions may have Secrets.
    let lowered = Patch::Merge(json!({"spec": {"historyLimit": 0}}));
    let lower = async || configs.patch("shop", &PatchParams::default(), &lowered).await;
    assert_eq!(message(GUARD, lower().await), may_not_delete(&space, "shop", "lower its historyLimit", "Secret"));
    let mut made = object("other", "1");
    made["spec"]["historyLimit"] = json!(0);
    let made = configs.create(&PostParams::default(), &serde_json::from_value(made)?).await;
    assert_eq!(message(GUARD, made), may_not_delete(&space, "other", "lower its historyLimit", "Secret"));
    allow_devs(&space, "secrets", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}])).await?;
    eventually(SOON, "the role holds", async || lower().await.ok()).await?;
    delete("shop").await?;

    // With the namespace everything goes.
    config(&space, "last", json!({}), with_secret()).await?;
    space.delete(SOON * 2).await
}

#[tokio::test]
async fn names_must_be_ones_that_versions_can_carry() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("names").await?;
    assert_eq!(
        message_of(GUARD, space.create_object::<VersionedConfig>(object("shop", "current")).await),
        "VersionedConfig shop: spec.version: version \"current\" is not allowed: 'current' stands for the \
         version that is current; choose another name"
    );
    let long = format!("{}.b", "a".repeat(62));
    assert_eq!(
        message_of(GUARD, space.create_object::<VersionedConfig>(object(&long, "1")).await),
        format!(
            "VersionedConfig {long}: metadata.name: versions have it in the label nudge.dev/config, where at most 63 characters are \
                 allowed; give it a shorter name"
        )
    );
    // A version that is not there is no reason to refuse: GitOps applies in any order.
    space.create_object::<VersionedConfig>(object("shop", "not-there-yet")).await?;
    Ok(())
}

#[tokio::test]
async fn a_config_is_kept_while_pods_subscribe() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("subscribed").await?;
    config(&space, "shop", json!({}), json!({"currentVersion": "1"})).await?;
    guarded.subscribe(&space, "shop", 7);
    let configs = space.api::<VersionedConfig>();
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    for parameters in [DeleteParams::default(), dry] {
        assert_eq!(
            message(KEEPER, configs.delete("shop", &parameters).await.map(|_| ())),
            "VersionedConfig shop can't be deleted, because 7 pods use it; delete or change them first, or set the annotation \
             nudge.dev/force-delete: \"true\" on it"
        );
    }
    let force = Patch::Merge(json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}}));
    configs.patch("shop", &PatchParams::default(), &force).await?;
    configs.delete("shop", &DeleteParams::default()).await?;
    Ok(())
}
