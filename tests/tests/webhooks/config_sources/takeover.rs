//! The leader is killed in the middle of a change.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use nudge_tests::cluster::Options;
use nudge_tests::cluster::sources::leads;
use nudge_tests::servers::git_content::git_content;
use nudge_tests::{Cluster, Installation, ReplicaOptions, eventually};
use serde_json::json;

use crate::config_sources::scene::{
    WAIT_TIMEOUT, create_quick_source, enabled_of, until, versions, wait_until_current,
};

#[tokio::test]
async fn another_replica_continues_and_one_version_is_made() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let _control = installation.guarded_replica().await?;
    installation.apply_sources().await?;
    let options = ReplicaOptions::with(&["--lease-seconds=3"]);
    let mut leader = installation.sources(&options).await?;
    let mut next = installation.more_sources(&options).await?;
    let space = enabled_of(&installation, "takeover", false).await?;
    let Some(content) = git_content(&space, "live", "1").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let first = wait_until_current(&space, "shop", None).await?;
    let of_versions = async || -> Result<BTreeSet<String>> {
        let parts = versions(&space, "shop").await?;
        Ok(parts.iter().map(|part| part.labels()["nudge.dev/version"].clone()).collect())
    };

    // With two objects to create. The leader is killed when the first is there.
    let params = WatchParams::default().labels("nudge.dev/config=shop").timeout(60);
    let maps = space.api::<ConfigMap>();
    let since = maps.list(&ListParams::default()).await?.metadata.resource_version.context("no version")?;
    let mut events = Box::pin(maps.watch(&params, &since).await?);
    content.write([("key", "2"), ("one", &*"x".repeat(600_000)), ("other", &*"x".repeat(420_000))]).await?;
    loop {
        if let WatchEvent::Added(_) = events.try_next().await?.context("the watch has ended")? {
            break;
        }
    }
    leader.process.kill()?;
    let second = wait_until_current(&space, "shop", Some(&first)).await?;
    ensure!(leads(&next), "nobody else leads");
    ensure!(
        of_versions().await? == [first.clone(), second.clone()].into() && versions(&space, "shop").await?.len() == 3
    );

    // And before anything is made of a change that has to stay as it is for a while.
    let last = installation.more_sources(&options).await?;
    super::scene::patched(&space, "shop", &json!({"spec": {"debounceSeconds": 2}})).await?;
    content.change("3").await?;
    next.process.kill()?;
    let third = wait_until_current(&space, "shop", Some(&second)).await?;
    eventually(WAIT_TIMEOUT, "another one leads", async || leads(&last).then_some(())).await?;
    ensure!(of_versions().await? == [first, second, third.clone()].into());
    let status = until(&space, "shop", "all is done", |status| status.waiting.is_none()).await?;
    ensure!(status.version == Some(third) && status.failed_versions.is_empty(), "{status:?}");
    Ok(())
}
