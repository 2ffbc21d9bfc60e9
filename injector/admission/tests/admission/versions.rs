//! Rules 1, 2 and 4: versions are valid when created, never changed, and kept while needed; and which of them are
//! marked.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::versions::is_marked;
use nudge_protocol::labels::MAY_ACTIVATE;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::configs::allow_devs;
use crate::guarded_cluster::{
    GuardedCluster, MISNUMBERED, SOON, config, key, message, message_of, number, part, sealed,
};

const GUARD: &str = "versions.nudge.dev";
const KEEPER: &str = "versions-delete.nudge.dev";

async fn made(space: &TestNamespace, object: Value) -> Result<ConfigMap> {
    space.create_object(object).await
}

async fn merged(space: &TestNamespace, name: &str, change: Value) -> Result<ConfigMap, kube::Error> {
    space.api::<ConfigMap>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

async fn deleted(space: &TestNamespace, name: &str) -> Result<(), kube::Error> {
    space.api::<ConfigMap>().delete(name, &DeleteParams::default()).await.map(drop)
}

#[tokio::test]
async fn versions_become_immutable() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("immutable").await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let tried: ConfigMap = space.api().create(&dry, &serde_json::from_value(part("a"))?).await?;
    assert_eq!(tried.immutable, Some(true));
    assert_eq!(made(&space, part("a")).await?.immutable, Some(true));
    let mut secret = part("b");
    secret["data"]["lives"] = json!("Mw==");
    assert_eq!(space.create_object::<Secret>(secret).await?.immutable, Some(true));
    let plain = json!({"metadata": {"name": "plain"}, "data": {"lives": "3"}});
    assert_eq!(made(&space, plain).await?.immutable, None);
    Ok(())
}

#[tokio::test]
async fn what_can_not_be_a_version_is_refused_with_a_message() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("shape").await?;
    let refused = async |pointer: &str, value: Value| {
        let mut object = part("a");
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        object.pointer_mut(parent).expect("it is there")[key.replace("~1", "/")] = value;
        message_of(GUARD, made(&space, object).await)
    };
    assert_eq!(
        refused("/metadata/labels/nudge.dev~1config", json!("Shop")).await,
        "ConfigMap a can't be a version: label nudge.dev/config: config \"Shop\" is not allowed: it must be a DNS name: \
         lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters; correct it"
    );
    assert_eq!(
        refused("/metadata/labels/nudge.dev~1version", json!("current")).await,
        "ConfigMap a can't be a version: label nudge.dev/version: version \"current\" is not allowed: 'current' stands for \
         the version that is current; choose another name; correct it"
    );
    for (label, annotation, expected) in MISNUMBERED {
        let mut object = part("a");
        number(&mut object, label, annotation);
        let refusal = message_of(GUARD, made(&space, object).await);
        assert_eq!(refusal, format!("ConfigMap a can't be a version: {expected}"));
    }
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}]);
    assert_eq!(
        refused("/metadata/ownerReferences", owner).await,
        "ConfigMap a, part of version 1.0.1 of config shop, belongs to Deployment web, and a version must have no owner because \
         it would be deleted together with it; remove metadata.ownerReferences"
    );
    assert_eq!(
        refused("/data/nudge.configs", json!("1")).await,
        "ConfigMap a, part of version 1.0.1 of config shop, can't be a version: key \"nudge.configs\" is not allowed: keys that \
         begin with 'nudge.' are reserved for Nudge; rename the key"
    );
    let token = json!({
        "metadata": {
            "name": "token", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1"},
            "annotations": {"kubernetes.io/service-account.name": "default"}
        },
        "type": "kubernetes.io/service-account-token"
    });
    assert_eq!(
        message_of(GUARD, space.create_object::<Secret>(token).await),
        "Secret token, part of version 1.0.1 of config shop, is of type kubernetes.io/service-account-token, which the cluster \
         itself fills in and changes; use the type Opaque"
    );
    let several = json!({
        "metadata": {
            "name": "a", "annotations": {"nudge.dev/parts": "2"},
            "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1", "nudge.dev/part": "2"}
        }
    });
    made(&space, several).await?;
    Ok(())
}

#[tokio::test]
async fn a_version_is_never_changed() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("changes").await?;
    made(&space, part("a")).await?;
    merged(&space, "a", json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;
    let title = "ConfigMap a, part of version 1.0.1 of config shop,";
    assert_eq!(
        message(GUARD, merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/version": "2"}}})).await),
        format!(
            "{title} can't be changed, and so neither can its label nudge.dev/version; create another version, or delete \
                 this one"
        )
    );
    assert_eq!(
        message(GUARD, merged(&space, "a", json!({"metadata": {"annotations": {"nudge.dev/parts": "2"}}})).await),
        format!(
            "{title} can't be changed, and so neither can its annotation nudge.dev/parts; create another version, or delete \
                 this one"
        )
    );
    let unlabelled = merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/config": null}}})).await;
    assert!(message(GUARD, unlabelled).contains("can its label nudge.dev/config"));
    // The API server's own rule.
    let refused = merged(&space, "a", json!({"data": {"lives": "4"}})).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable when `immutable` is set"), "{refused}");

    made(&space, json!({"metadata": {"name": "plain"}, "data": {"lives": "3"}})).await?;
    let labels = json!({"metadata": {"labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}}});
    assert_eq!(
        message(GUARD, merged(&space, "plain", labels).await),
        "ConfigMap plain already exists and can't become a version by being labelled; create a new object with the labels \
         nudge.dev/config and nudge.dev/version"
    );
    let plain = space.api::<ConfigMap>().get("plain").await?;
    assert_eq!((plain.immutable, plain.metadata.labels), (None, None), "the attempt changed nothing");
    Ok(())
}

#[tokio::test]
async fn one_that_came_unseen_is_not_changed_either_and_becomes_immutable() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.cluster.space("unseen").await?;
    made(&space, part("a")).await?;
    made(&space, part("b")).await?;
    let enabled = Patch::Merge(json!({"metadata": {"labels": {"nudge.dev/enabled": "true"}}}));
    Api::<Namespace>::all(space.client.clone()).patch(&space.name, &PatchParams::default(), &enabled).await?;
    // Another object shows when that is known: each time with a label that it did not have.
    let mut count = 0;
    eventually(SOON, "the namespace is seen as enabled", async || {
        count += 1;
        let labels = json!({"metadata": {"labels": {"nudge.dev/version": count.to_string()}}});
        merged(&space, "b", labels).await.is_err().then_some(())
    })
    .await?;
    assert_eq!(
        message(GUARD, merged(&space, "a", json!({"data": {"lives": "4"}})).await),
        "ConfigMap a, part of version 1.0.1 of config shop, must not be changed, because a version never changes; create another \
         version with the new content"
    );
    let touched = merged(&space, "a", json!({"metadata": {"labels": {"team": "a"}}})).await?;
    assert_eq!(touched.immutable, Some(true));
    Ok(())
}

#[tokio::test]
async fn a_version_is_kept_while_it_is_needed() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("kept").await?;
    let own = made(&space, part("a")).await?;
    config(&space, "shop", json!({}), json!({"versions": [sealed("1.0.1", &[&own])]})).await?;
    let role = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &patch).await
    };
    let title = "ConfigMap a, part of version 1.0.1 of config shop, can't be deleted, because";
    role(json!({"currentVersion": "1.0.1"})).await?;
    assert_eq!(
        message(KEEPER, deleted(&space, "a").await),
        format!("{title} the version is current; make another version current first")
    );
    role(json!({"currentVersion": "2", "targetVersion": "1.0.1"})).await?;
    assert_eq!(
        message(KEEPER, deleted(&space, "a").await),
        format!("{title} pods are being moved to the version; make another version current first")
    );
    role(json!({"targetVersion": null, "previousVersion": "1.0.1"})).await?;
    assert_eq!(
        message(KEEPER, deleted(&space, "a").await),
        format!(
            "{title} it is the version before the current one, to which pods would return; delete it when another version has \
                 become current, or delete its VersionedConfig"
        )
    );
    let all = space.api::<ConfigMap>().delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert!(message(KEEPER, all.map(|_| ())).contains("to which pods would return"));
    role(json!({"previousVersion": null})).await?;
    let activation = Patch::Merge(json!({"spec": {"version": "1.0.1"}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &activation).await?;
    assert_eq!(
        message(KEEPER, deleted(&space, "a").await),
        format!("{title} the version is requested; make another version current first")
    );
    space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    deleted(&space, "a").await?;
    Ok(())
}

#[tokio::test]
async fn an_object_that_only_has_the_labels_goes() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("stranger").await?;
    let own = made(&space, part("a")).await?;
    made(&space, part("b")).await?;
    let status = json!({"currentVersion": "1.0.1", "versions": [sealed("1.0.1", &[&own])]});
    config(&space, "shop", json!({}), status).await?;
    deleted(&space, "b").await?;
    deleted(&space, "a").await.expect_err("it is current");
    Ok(())
}

#[tokio::test]
async fn parts_of_users_who_may_publish_are_marked_and_stay_marked() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("marked").await?;
    allow_devs(&space, "create", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]))
        .await?;
    let jane = guarded.cluster.client(&guarded.cluster.user("jane", &["devs"])).await?;
    let maps = Api::<ConfigMap>::namespaced(jane, &space.name);
    let own = made(&space, part("own")).await?;
    assert!(has_mark(&own), "{own:?}");

    // She copies the mark of another user's object; and nothing of hers is marked.
    let mut stolen = part("hers");
    stolen["metadata"]["annotations"] = json!({MAY_ACTIVATE: own.annotations()[MAY_ACTIVATE], "note": "x"});
    let stolen: ConfigMap = serde_json::from_value(stolen)?;
    let hers = async || maps.create(&PostParams::default(), &stolen).await.ok();
    let hers = eventually(SOON, "the role holds", hers).await?;
    assert_eq!(hers.annotations().keys().collect::<Vec<_>>(), ["note", "nudge.dev/made-by"]);

    // A text that lacks the mark, as `kubectl replace` sends, keeps it; another mark is refused.
    let mut text: ConfigMap = serde_json::from_value(part("own"))?;
    text.immutable = Some(true);
    let replaced = space.api::<ConfigMap>().replace("own", &PostParams::default(), &text).await?;
    assert!(has_mark(&replaced));
    let other = merged(&space, "hers", json!({"metadata": {"annotations": {MAY_ACTIVATE: "x"}}})).await;
    assert!(message(GUARD, other).contains("can its annotation nudge.dev/may-activate"));
    Ok(())
}

fn has_mark(object: &ConfigMap) -> bool {
    let content = object.data.clone().unwrap_or_default();
    is_marked(&key(), PartKind::ConfigMap, &object.metadata, &content)
}

#[tokio::test]
async fn a_namespace_that_is_not_enabled_is_left_alone() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.cluster.space("foreign").await?;
    let mut object = part("a");
    object["metadata"]["labels"]["nudge.dev/version"] = json!("current");
    assert_eq!(made(&space, object).await?.immutable, None);
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_a_current_version_is_deleted() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("terminating").await?;
    let own = made(&space, part("a")).await?;
    let status = json!({"currentVersion": "1.0.1", "versions": [sealed("1.0.1", &[&own])]});
    config(&space, "shop", json!({"version": "1.0.1"}), status).await?;
    guarded.subscribe(&space, "shop", 1);
    deleted(&space, "a").await.expect_err("it is current");
    space.delete(SOON * 2).await
}

#[tokio::test]
async fn the_largest_objects_are_reviewed() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("large").await?;
    // Each of these is six bytes in JSON as the API server writes it.
    let mut object = part("a");
    object["data"]["lives"] = json!("<".repeat(1024 * 1024 - 1024));
    assert_eq!(made(&space, object).await?.immutable, Some(true));
    let relabelled = merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/version": "2"}}})).await;
    assert!(message(GUARD, relabelled).contains("can its label nudge.dev/version"));
    Ok(())
}
