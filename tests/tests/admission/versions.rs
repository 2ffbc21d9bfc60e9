//! Rules 1, 2 and 4: versions are made whole, never changed, and kept while they are needed.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_injector::admission::DigestAlgorithm;
use nudge_injector::api::VersionedConfig;
use nudge_tests::cluster::Space;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene, config, digest, part, sentence, sentence_of};

const GUARD: &str = "versions.nudge.dev";
const KEEPER: &str = "versions-delete.nudge.dev";

async fn made(space: &Space, object: Value) -> Result<ConfigMap> {
    space.create_object(object).await
}

async fn merged(space: &Space, name: &str, change: Value) -> Result<ConfigMap, kube::Error> {
    space.api::<ConfigMap>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

async fn deleted(space: &Space, name: &str) -> Result<(), kube::Error> {
    space.api::<ConfigMap>().delete(name, &DeleteParams::default()).await.map(drop)
}

#[tokio::test]
async fn versions_become_immutable() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("immutable").await?;
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
async fn what_can_not_be_a_version_is_refused_with_a_sentence() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("shape").await?;
    let refused = async |pointer: &str, value: Value| {
        let mut object = part("a");
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        object.pointer_mut(parent).expect("it is there")[key.replace("~1", "/")] = value;
        sentence_of(GUARD, made(&space, object).await)
    };
    assert_eq!(
        refused("/metadata/labels/nudge.dev~1config", json!("Shop")).await,
        "ConfigMap a can't be a version: config \"Shop\" is not allowed: it must be a DNS name: lower-case letters, digits, '-' \
         and '.', beginning and ending with a letter or digit, at most 253 characters; correct its label nudge.dev/config"
    );
    assert_eq!(
        refused("/metadata/labels/nudge.dev~1version", json!("current")).await,
        "ConfigMap a can't be a version: version \"current\" is not allowed: 'current' stands for whatever version is current; \
         choose another name; correct its label nudge.dev/version"
    );
    assert_eq!(
        refused("/metadata/annotations", json!({"nudge.dev/parts": "2"})).await,
        "ConfigMap a is one of 2 parts of a version and must say which; add the label nudge.dev/part, from \"1\" to \"2\""
    );
    assert_eq!(
        refused("/metadata/annotations", json!({"nudge.dev/parts": "17"})).await,
        "ConfigMap a can't be a version: its annotation nudge.dev/parts must be a number from 1 to 16, not \"17\"; correct it"
    );
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1"}]);
    assert_eq!(
        refused("/metadata/ownerReferences", owner).await,
        "ConfigMap a, part of version 1.0.1 of config shop, belongs to Deployment web, and a version must have no owner because \
         it would be deleted together with it; remove metadata.ownerReferences"
    );
    assert_eq!(
        refused("/data/nudge.configs", json!("1")).await,
        "ConfigMap a, part of version 1.0.1 of config shop, can't be a version: key \"nudge.configs\" is not allowed: keys that \
         begin with 'nudge.' are Nudge's own; rename it"
    );
    let token = json!({
        "metadata": {
            "name": "token", "labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1.0.1"},
            "annotations": {"kubernetes.io/service-account.name": "default"}
        },
        "type": "kubernetes.io/service-account-token"
    });
    assert_eq!(
        sentence_of(GUARD, space.create_object::<Secret>(token).await),
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
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("changes").await?;
    made(&space, part("a")).await?;
    merged(&space, "a", json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;
    let title = "ConfigMap a, part of version 1.0.1 of config shop,";
    assert_eq!(
        sentence(GUARD, merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/version": "2"}}})).await),
        format!(
            "{title} can't be changed, and so neither can its label nudge.dev/version; create another version, or delete \
                 this one"
        )
    );
    assert_eq!(
        sentence(GUARD, merged(&space, "a", json!({"metadata": {"annotations": {"nudge.dev/parts": "2"}}})).await),
        format!(
            "{title} can't be changed, and so neither can its annotation nudge.dev/parts; create another version, or delete \
                 this one"
        )
    );
    let unlabelled = merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/config": null}}})).await;
    assert!(sentence(GUARD, unlabelled).contains("can its label nudge.dev/config"));
    // The API server's own rule.
    let refused = merged(&space, "a", json!({"data": {"lives": "4"}})).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable when `immutable` is set"), "{refused}");

    made(&space, json!({"metadata": {"name": "plain"}, "data": {"lives": "3"}})).await?;
    let labels = json!({"metadata": {"labels": {"nudge.dev/config": "shop", "nudge.dev/version": "1"}}});
    assert_eq!(
        sentence(GUARD, merged(&space, "plain", labels).await),
        "ConfigMap plain is there already and can't become a version by being labelled; create a new object with the labels \
         nudge.dev/config and nudge.dev/version"
    );
    let plain = space.api::<ConfigMap>().get("plain").await?;
    assert_eq!((plain.immutable, plain.metadata.labels), (None, None), "nothing is left of the try");
    Ok(())
}

#[tokio::test]
async fn one_that_came_unseen_is_not_changed_either_and_becomes_immutable() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.cluster.space("unseen").await?;
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
        sentence(GUARD, merged(&space, "a", json!({"data": {"lives": "4"}})).await),
        "ConfigMap a, part of version 1.0.1 of config shop, can't be changed, because a version never is; create another \
         version with the new content"
    );
    let touched = merged(&space, "a", json!({"metadata": {"labels": {"team": "a"}}})).await?;
    assert_eq!(touched.immutable, Some(true));
    Ok(())
}

#[tokio::test]
async fn a_version_is_kept_while_it_is_needed() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("kept").await?;
    made(&space, part("a")).await?;
    config(&space, "shop", json!({}), json!({"phase": "Current"})).await?;
    let role = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &patch).await
    };
    let title = "ConfigMap a, part of version 1.0.1 of config shop, can't be deleted, because";
    role(json!({"current": "1.0.1"})).await?;
    assert_eq!(
        sentence(KEEPER, deleted(&space, "a").await),
        format!("{title} the version is current; make another version current first")
    );
    role(json!({"current": "2", "target": "1.0.1"})).await?;
    assert_eq!(
        sentence(KEEPER, deleted(&space, "a").await),
        format!("{title} pods are being moved to the version; make another version current first")
    );
    role(json!({"target": null, "previous": "1.0.1"})).await?;
    assert_eq!(
        sentence(KEEPER, deleted(&space, "a").await),
        format!(
            "{title} it is the version before the current one, to which pods would return; it can go once yet another \
                 version has become current, or with its VersionedConfig"
        )
    );
    let all = space.api::<ConfigMap>().delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert!(sentence(KEEPER, all.map(|_| ())).contains("to which pods would return"));
    role(json!({"previous": null})).await?;
    let wanted = Patch::Merge(json!({"spec": {"current": "1.0.1"}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &wanted).await?;
    assert_eq!(
        sentence(KEEPER, deleted(&space, "a").await),
        format!("{title} spec.current names the version; make another version current first")
    );
    space.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    deleted(&space, "a").await?;
    Ok(())
}

#[tokio::test]
async fn a_sealed_version_takes_nothing_but_its_own() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("sealed").await?;
    let content = [("lives".to_owned(), b"3".to_vec())].into();
    let sealed = json!({"phase": "Current", "versions": [{
        "version": "1.0.1", "state": "Available", "keys": 1, "bytes": 1,
        "parts": [{"kind": "ConfigMap", "name": "a", "uid": "1", "digest": digest(&content, DigestAlgorithm::Sha256)}]
    }]});
    config(&space, "shop", json!({}), sealed).await?;
    assert_eq!(
        sentence_of(GUARD, made(&space, part("b")).await),
        "ConfigMap b can't be part of version 1.0.1 of config shop, which is complete with ConfigMap a; give it another \
         nudge.dev/version"
    );
    let mut other = part("a");
    other["data"]["lives"] = json!("4");
    assert_eq!(
        sentence_of(GUARD, made(&space, other.clone()).await),
        "ConfigMap a can be put back into version 1.0.1 of config shop only with the content it had; give other content another \
         version"
    );
    let mut renamed = part("a");
    renamed["metadata"]["labels"]["nudge.dev/version"] = json!("2");
    assert_eq!(
        sentence_of(GUARD, made(&space, renamed).await),
        "ConfigMap a can't be part of version 2 of config shop, because an object of that name is part of version 1.0.1; give it \
         another name"
    );
    made(&space, part("a")).await?;

    let retired = json!({
        "versions": null, "retired": [{"version": "1.0.1", "digests": [digest(&content, DigestAlgorithm::HmacSha256)]}]
    });
    let patch = Patch::Merge(json!({"status": retired}));
    space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &patch).await?;
    deleted(&space, "a").await?;
    assert_eq!(
        sentence_of(GUARD, made(&space, other).await),
        "ConfigMap a can't be part of version 1.0.1 of config shop, which was deleted and may come back only with the content it \
         had, because nodes may still hold that; give other content another version"
    );
    made(&space, part("a")).await?;
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_not_enabled_is_left_alone() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.cluster.space("foreign").await?;
    let mut object = part("a");
    object["metadata"]["labels"]["nudge.dev/version"] = json!("current");
    assert_eq!(made(&space, object).await?.immutable, None);
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_a_current_version_is_deleted() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("going").await?;
    made(&space, part("a")).await?;
    config(&space, "shop", json!({"current": "1.0.1"}), json!({"phase": "Current", "current": "1.0.1"})).await?;
    scene.subscribe(&space, "shop", &["web-1"]);
    deleted(&space, "a").await.expect_err("it is current");
    space.delete(SOON * 2).await
}

#[tokio::test]
async fn the_largest_objects_are_reviewed() -> Result<()> {
    let Some(scene) = Scene::shared().await? else { return Ok(()) };
    let space = scene.space("large").await?;
    // Each of these is six bytes in JSON as the API server writes it.
    let mut object = part("a");
    object["data"]["lives"] = json!("<".repeat(1024 * 1024 - 1024));
    assert_eq!(made(&space, object).await?.immutable, Some(true));
    let relabelled = merged(&space, "a", json!({"metadata": {"labels": {"nudge.dev/version": "2"}}})).await;
    assert!(sentence(GUARD, relabelled).contains("can its label nudge.dev/version"));
    Ok(())
}
