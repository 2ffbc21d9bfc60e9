//! A restart by a user: the way to make pods without an agent take what is current, without a move.

use super::*;

#[tokio::test]
async fn a_restart_by_a_user_brings_what_is_current_and_moves_nothing() -> Result<()> {
    let Some((installation, _)) = installation().await? else { return Ok(()) };
    // Nudge restarts the pods of the second config itself, so they have the version before.
    for (purpose, policy) in [("user-alone", "Ignore"), ("user-too", "Restart")] {
        let space = shop(installation, purpose, json!({"agentlessPolicy": policy})).await?;
        bind(&space, "nudge-restart").await?;
        deployment(&space, "web", json!({})).await?;
        let _kubelet = Kubelet::start(&space, |_| true);
        wait_until_available(&space, &["web"]).await?;
        let before = uids(&space).await?;
        create_and_request(&space, "2").await?;
        wait_until_current(&space, "2").await?;
        wait_until_available(&space, &["web"]).await?;
        ensure!((uids(&space).await? == before) == (policy == "Ignore"), "{policy}");
        let (status, old) = (observed(&space).await?, uids(&space).await?);
        let generation = space.api::<Deployment>().get("web").await?.metadata.generation;
        let restart = ["rollout", "restart", "deployment/web", "--namespace", &space.name];
        let Some(finished) = installation.cluster.kubectl(&restart).await? else { return Ok(()) };
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        eventually(WAIT_TIMEOUT, "all pods are new", async || {
            let new = uids(&space).await.ok()?;
            let is_done = space.api::<Deployment>().get("web").await.ok()?.status?.updated_replicas == Some(2);
            (is_done && new.len() == 2 && new.iter().all(|uid| !old.contains(uid))).then_some(())
        })
        .await?;
        wait_until_available(&space, &["web"]).await?;
        ensure!(space.api::<ConfigMap>().get("shop").await?.data.context("data")?["key"] == "2");
        let after = observed(&space).await?;
        ensure!(after == status, "{policy}: {after:?} after {status:?}");
        let last = space.api::<Deployment>().get("web").await?.metadata.generation;
        ensure!(last == generation.map(|generation| generation + 1), "{policy}: Nudge has restarted it, too");
    }
    Ok(())
}

/// Returns what a move would change: the current version, the revision, and the number of releases.
async fn observed(space: &TestNamespace) -> Result<(Option<String>, String, usize)> {
    let status = space.api::<VersionedConfig>().get("shop").await?.status.context("no status")?;
    ensure!(status.state() == ConfigState::Current, "{status:#?}");
    Ok((status.current_version, format!("{:?}", status.internal.revision), status.releases.len()))
}

/// Returns the uids of the pods that are not being deleted.
async fn uids(space: &TestNamespace) -> Result<Vec<String>> {
    let pods = space.api::<Pod>().list(&ListParams::default()).await?.items;
    let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut uids: Vec<String> = living.filter_map(kube::ResourceExt::uid).collect();
    uids.sort();
    Ok(uids)
}
