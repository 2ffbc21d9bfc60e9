//! With the control plane away: nothing is decided, withdrawn or taken away meanwhile, and what is made meanwhile is
//! nobody's.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::Options;
use nudge_tests::{Cluster, Installation, ReplicaOptions};
use serde_json::json;

use crate::approval::scene::{Shop, assert_refused};

#[tokio::test]
async fn nobody_waits_for_an_outage() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut replica = installation.guarded_replica_with(ReplicaOptions::quick()).await?;
    let shop = Shop::new(&installation, json!({})).await?;
    let [alice, bob, carol] =
        [shop.user(&cluster, "alice").await?, shop.user(&cluster, "bob").await?, shop.user(&cluster, "carol").await?];
    shop.create_version(&alice, "2", "two").await?;
    let denial = shop.decide(&carol, "2", "Deny").await?;
    let made = shop.space.api::<ConfigMap>().get("shop-2").await?;
    let note = made.metadata.annotations.and_then(|mut all| all.remove("nudge.dev/made-by")).context("no author")?;
    ensure!(note.ends_with(" alice"), "{note}");
    let approval = shop.decision("2", "Approve").await?;

    let addresses = (replica.admission, replica.hub, replica.health);
    replica.process.kill()?;
    let away = "failed calling webhook";
    assert_refused(bob.decide(approval).await, away)?;
    assert_refused(alice.withdraw(&denial).await, away)?;
    assert_refused(alice.change(json!({"rollout": {"approval": null}})).await, away)?;
    assert_refused(alice.change(json!({"version": "2"})).await, away)?;
    let configs = alice.api::<VersionedConfig>();
    assert_refused(configs.delete("shop", &DeleteParams::default()).await.map(drop), away)?;
    // A part is created meanwhile, with a note that alice got for another part, and a note that somebody wrote.
    for (version, author) in [("3", note.clone()), ("4", note.replace("alice", "eve"))] {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let meta =
            json!({"name": format!("shop-{version}"), "labels": labels, "annotations": {"nudge.dev/made-by": author}});
        let part = json!({"metadata": meta, "immutable": true, "data": {"number": version}});
        bob.api::<ConfigMap>().create(&PostParams::default(), &serde_json::from_value(part)?).await?;
    }
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::quick() };
    let back = installation.replica(&options).await?;
    for version in ["3", "4"] {
        let sealed = |config: &VersionedConfig| config.status.as_ref().is_some_and(|it| it.version(version).is_some());
        shop.wait_for_status("it is sealed", sealed).await?;
        alice.change(json!({"version": version})).await?;
        shop.decide(&bob, version, "Approve").await?;
        shop.wait_for_approval_message("Nudge does not know who created it, so no approval counts").await?;
    }
    // The denial is still there.
    alice.change(json!({"version": "2"})).await?;
    shop.decide(&bob, "2", "Approve").await?;
    shop.wait_for_approval_message("carol denies version 2").await?;
    carol.withdraw(&denial).await?;
    shop.wait_until_current("2").await?;
    drop(back);
    Ok(())
}
