//! An approval that is withdrawn while pods are moved.

use anyhow::{Result, ensure};
use nudge_api::VersionedConfig;
use nudge_tests::{Installation, subscriber};
use serde_json::json;

use crate::approval::scene::Shop;

#[tokio::test]
async fn a_rollout_stops_where_it_is_when_an_approval_is_withdrawn() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let rollout = json!({"steps": [{"pods": 1}], "minReadySeconds": 3600, "bakeSeconds": 0});
    let shop = Shop::with(installation, json!({}), rollout).await?;
    let [alice, bob] = [shop.user(installation.cluster, "alice").await?, shop.user(installation.cluster, "bob").await?];
    let mut pods = Vec::new();
    for name in ["web-1", "web-2"] {
        pods.push(subscriber(&shop.space, replica.hub, name, &json!({}), env!("CARGO_BIN_EXE_app")).await?.1);
    }
    let updated = |summary: &'static str| {
        move |config: &VersionedConfig| config.status.as_ref().is_some_and(|status| status.pods.summary == summary)
    };
    shop.wait_for_status("both run it", updated("2/2")).await?;
    shop.create_version(&alice, "2", "two").await?;
    let approval = shop.decide(&bob, "2", "Approve").await?;
    alice.change(json!({"version": "2"})).await?;
    let first_step = |config: &VersionedConfig| {
        config.status.as_ref().is_some_and(|status| status.rollout.step == 1 && status.pods.summary == "1/2")
    };
    shop.wait_for_status("the first pod runs it", first_step).await?;
    bob.withdraw(&approval).await?;
    // Nothing else holds it.
    alice.change(json!({"rollout": {"minReadySeconds": 0}})).await?;
    shop.wait_for_approval_message("has 0 of 1 approval").await?;
    let status = shop.config().await?.status.unwrap_or_default();
    ensure!((status.rollout.step, status.current_version.as_deref()) == (1, Some("1")), "{status:#?}");
    // One that is denied stops too, and can be left.
    let denial = shop.decide(&bob, "2", "Deny").await?;
    shop.wait_for_approval_message("bob denies version 2").await?;
    alice.change(json!({"version": "1"})).await?;
    shop.wait_until_current("1").await?;
    shop.wait_for_status("both run it again", updated("2/2")).await?;
    bob.withdraw(&denial).await?;
    shop.decide(&bob, "2", "Approve").await?;
    alice.change(json!({"version": "2"})).await?;
    shop.wait_until_current("2").await?;
    drop(pods);
    Ok(())
}
