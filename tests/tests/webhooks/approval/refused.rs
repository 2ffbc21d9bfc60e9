//! The guard itself: who activates can't take it away, in one request or several.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::Installation;
use nudge_tests::cluster::installation::overridden;
use serde_json::{Value, json};

use crate::approval::scene::{Shop, WAIT_TIMEOUT, assert_refused};

#[tokio::test]
async fn who_activates_does_not_take_the_guard_away() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({"required": 2})).await?;
    let alice = shop.user(installation.cluster, "alice").await?;
    shop.create_version(&alice, "2", "two").await?;
    let overrides = overridden("2", "mine");
    for (rollout, said) in [
        (json!({"approval": null}), "that removes spec.rollout.approval"),
        (
            json!({"approval": {"required": 1, "notAuthor": false}}),
            "that requires 1 approval instead of 2 and lets authors",
        ),
        (Value::Null, "that removes spec.rollout.approval"),
        (json!({"override": overrides}), "may not set spec.rollout.override"),
    ] {
        assert_refused(alice.change(json!({"version": "2", "rollout": rollout})).await, said)?;
        assert_refused(alice.change(json!({"rollout": rollout})).await, said)?;
    }
    let api = alice.api::<VersionedConfig>();
    let force = json!({"metadata": {"annotations": {"nudge.dev/force-delete": "true"}}});
    api.patch("shop", &PatchParams::default(), &Patch::Merge(force)).await?;
    assert_refused(api.delete("shop", &DeleteParams::default()).await.map(drop), "that removes its guards (approval)")?;
    // Server-side apply without it gives up what it owned, and the guard is another's.
    let apply = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "2"}
    });
    api.patch("shop", &PatchParams::apply("gitops").force(), &Patch::Apply(apply)).await?;
    ensure!(shop.wait_for_approval_message("has 0 of 2 approvals").await?.contains("kubectl nudge approve shop 2"));
    // Who may override does it, and that is in the record.
    shop.set(json!({"rollout": {"override": overridden("2", "an outage")}})).await?;
    let release = shop.wait_until_current("2").await?.releases.pop().unwrap();
    ensure!(
        release.overridden.is_some_and(|it| it.requested_by.as_deref() == Some("admin"))
            && release.approvals.is_empty()
    );
    let logged = async || {
        let log = replica.log();
        let line = log.lines().find(|line| line.contains("guards overridden") && line.contains(&shop.space.name))?;
        (line.contains("audit") && line.contains("set spec.rollout.override")).then_some(())
    };
    nudge_tests::eventually(WAIT_TIMEOUT, "the audit trail has it", logged).await
}
