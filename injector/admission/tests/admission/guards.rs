//! Who may do all with a config but `override` it can't switch its guards off, by one request or several.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::VersionedConfig;
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::configs::allow_devs;
use crate::guarded_cluster::{
    GuardedCluster, SOON, all_guards, at_once, config, may_not_override, message, open_guards, strict_changes,
    weakening_changes,
};

const GUARD: &str = "configs.nudge.dev";
const KEEPER: &str = "configs-guarded-delete.nudge.dev";
const LABEL: &str = "nudge.dev/guarded";

/// All that a user may do with configs and their versions, but `override`.
pub(crate) fn all_but_override() -> Value {
    json!([
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"],
         "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"]},
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}
    ])
}

#[tokio::test]
async fn guards_are_switched_off_by_nobody_who_may_not_override_them() -> Result<()> {
    let Some(guarded) = GuardedCluster::shared().await? else { return Ok(()) };
    let space = guarded.space("guards").await?;
    allow_devs(&space, "devs", all_but_override()).await?;
    let jane = guarded.cluster.client(&guarded.cluster.user("jane", &["devs"])).await?;
    let configs = Api::<VersionedConfig>::namespaced(jane, &space.name);
    eventually(SOON, "the role holds", async || configs.list(&ListParams::default()).await.ok()).await?;
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        configs.patch("shop", &PatchParams::default(), &patch).await
    };
    let made = config(&space, "shop", json!({"version": "1"}), json!({"currentVersion": "1"})).await?;
    assert_eq!(made.metadata.labels, None);
    let made = change(open_guards()).await.context("anybody adds guards")?;
    assert_eq!(made.metadata.labels.unwrap_or_default()[LABEL], "true");
    let refused = |what, because| may_not_override(&space, "shop", what, because);
    let protects = "that protects spec.rollout.hold";
    assert_eq!(message(GUARD, change(all_guards()).await), refused("change its spec", protects));
    let held = VersionedConfig::new("held", serde_json::from_value(json!({"rollout": all_guards()["rollout"]}))?);
    assert_eq!(
        message(GUARD, configs.create(&PostParams::default(), &held).await),
        may_not_override(&space, "held", "create it", protects)
    );
    let by_admin = Patch::Merge(json!({"spec": all_guards()}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &by_admin).await?;
    for (rollout, because) in weakening_changes() {
        for version in ["1", "2"] {
            let spec = json!({"version": version, "rollout": rollout});
            assert_eq!(message(GUARD, change(spec).await), refused("change its spec", because), "{rollout}");
        }
    }
    let mut bare = configs.get("shop").await?;
    bare.spec.rollout = nudge_api::RolloutSpec::default();
    let replaced = configs.replace("shop", &PostParams::default(), &bare).await;
    assert!(message(GUARD, replaced).contains("removes spec.rollout.approval and removes spec.rollout.windows and"));
    // Neither the label nor an owner helps.
    for meta in [json!({"labels": {LABEL: null}}), json!({"labels": {LABEL: "false"}})] {
        let patch = Patch::Merge(json!({"metadata": meta}));
        let after = configs.patch("shop", &PatchParams::default(), &patch).await?;
        assert_eq!(after.metadata.labels.unwrap_or_default()[LABEL], "true");
    }
    let gone = "delete it";
    let because = "that removes its guards (approval, windows, hold, analysis)";
    let deleted = async || configs.delete("shop", &DeleteParams::default()).await.map(drop);
    assert_eq!(message(KEEPER, deleted().await), refused(gone, because));
    let all = configs.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    assert_eq!(message(KEEPER, all.map(drop)), refused(gone, because));

    // All pods at once.
    let set = refused("set spec.rollout.override", "that version then waits for no step, approval, window or hold");
    assert_eq!(message(GUARD, change(json!({"version": "2", "rollout": at_once("2", "mine")})).await), set);
    let mut with = VersionedConfig::new("with", serde_json::from_value(json!({"rollout": at_once("1", "mine")}))?);
    assert_eq!(
        message(GUARD, configs.create(&PostParams::default(), &with).await),
        may_not_override(
            &space,
            "with",
            "set spec.rollout.override",
            "that version then waits for no step, approval, window or hold"
        )
    );
    with.spec.rollout.overridden = None;
    configs.create(&PostParams::default(), &with).await?;
    let by_admin = Patch::Merge(json!({"spec": {"version": "3", "rollout": at_once("2", "an outage")}}));
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &by_admin).await?;
    let again = "request version 2, which spec.rollout.override names";
    assert_eq!(
        message(GUARD, change(json!({"version": "2"})).await),
        refused(again, "that version then waits for no step, approval, window or hold")
    );
    assert_eq!(message(GUARD, change(json!({"rollout": at_once("2", "another")})).await), set);
    change(json!({"version": "2", "rollout": {"override": null}})).await.context("anybody removes an override")?;

    for rollout in strict_changes() {
        change(json!({"rollout": rollout})).await.with_context(|| rollout.to_string())?;
    }
    let rules = json!([{
        "apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "resourceNames": ["shop"], "verbs": ["override"]
    }]);
    allow_devs(&space, "override", rules).await?;
    let may = async || change(json!({"rollout": at_once("2", "an outage")})).await.ok();
    eventually(SOON, "the role holds", may).await?;
    let bare = change(json!({"rollout": null})).await?;
    assert!(bare.metadata.labels.is_none_or(|labels| !labels.contains_key(LABEL)));
    change(all_guards()).await?;
    deleted().await?;

    // With the namespace it goes.
    config(&space, "shop", all_guards(), json!({"currentVersion": "1"})).await?;
    space.delete(SOON * 2).await
}
