//! So many decisions that there is no room for more: of the one who made them, and of nobody else.

use anyhow::{Result, ensure};
use nudge_api::VersionApproval;
use nudge_tests::{Installation, eventually};
use serde_json::json;

use crate::approval::scene::{Shop, WAIT_TIMEOUT, assert_refused};

#[tokio::test]
async fn who_decides_too_often_is_stopped_and_others_are_not() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let shop = Shop::new(installation, json!({})).await?;
    let [alice, bob, carol] = [
        shop.user(installation.cluster, "alice").await?,
        shop.user(installation.cluster, "bob").await?,
        shop.user(installation.cluster, "carol").await?,
    ];
    shop.create_version(&alice, "2", "two").await?;
    let spec = shop.decision("2", "Approve").await?;
    let mut names = Vec::new();
    // What admission counts it observes, so some more may pass.
    let full = eventually(WAIT_TIMEOUT, "there is no room", async || match bob.decide(spec.clone()).await {
        Ok(name) => {
            names.push(name);
            None
        }
        Err(error) => Some(error),
    });
    let full = full.await?.to_string();
    ensure!(names.len() >= 16, "{}", names.len());
    let names_one = names.iter().any(|name| full.contains(&format!("kubectl delete versionapproval {name})")));
    ensure!(full.contains("you have 16 VersionApprovals of config shop") && names_one, "{full}");
    shop.decide(&carol, "2", "Approve").await?;
    alice.change(json!({"version": "2"})).await?;
    shop.wait_until_current("2").await?;
    for name in &names {
        bob.withdraw(name).await?;
    }
    let anew = eventually(WAIT_TIMEOUT, "there is room again", async || bob.decide(spec.clone()).await.ok()).await?;
    bob.api::<VersionApproval>().get(&anew).await?;
    assert_refused(carol.withdraw(&anew).await, "may not withdraw what user \"bob\" has decided")
}
