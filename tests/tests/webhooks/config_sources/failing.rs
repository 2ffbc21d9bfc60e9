//! A version that fails.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::servers::git_content::git_content;
use serde_json::json;

use crate::config_sources::pod::Speaker;
use crate::config_sources::scene::{
    condition, config_until, create_quick_source, enabled, is, until, wait_until_current,
};

async fn requested_version(space: &TestNamespace) -> Result<String> {
    space.api::<VersionedConfig>().get("shop").await?.spec.version.context("nothing is requested")
}

/// Waits until the pod is moved to another version than this one, and returns that.
async fn moving_from(space: &TestNamespace, before: &str) -> Result<String> {
    let moved = config_until(space, "shop", "it is moved", |config, status| {
        status.rollout.stage.is_some()
            && status.target_version.as_deref() != Some(before)
            && config.spec.version == status.target_version
    });
    moved.await?.spec.version.context("no version")
}

#[tokio::test]
async fn a_rollout_is_not_interrupted_and_a_failed_version_is_not_tried_again() -> Result<()> {
    let Some((_, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let Some(space) = enabled("failing", false).await? else { return Ok(()) };
    let Some(content) = git_content(&space, "live", "good").await? else { return Ok(()) };
    create_quick_source(&space, "shop", &content.from).await?;
    let good = wait_until_current(&space, "shop", None).await?;
    let patch = json!({"spec": {"rollout": at_once()}});
    let config = space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(patch)).await?;
    let uid = config.uid().context("no uid")?;
    let pod = Speaker::new(&space, replica.hub).await?;
    pod.report_version(&uid, &good, None).await?;
    config_until(&space, "shop", "the pod runs it", |_, status| status.pods.summary == "1/1").await?;

    // While it is moved, only the newest content waits.
    content.change("bad").await?;
    let bad = moving_from(&space, &good).await?;
    content.change("lost").await?;
    let lost = until(&space, "shop", "it waits", |status| status.waiting.is_some()).await?.waiting;
    let lost = lost.context("nothing waits")?.version;
    content.change("next").await?;
    let waiting = until(&space, "shop", "the newest waits", |status| {
        status.waiting.as_ref().is_some_and(|waiting| waiting.version != lost)
    });
    let waiting = waiting.await?;
    ensure!(is("Progressing")(&waiting) && waiting.version.as_ref() == Some(&bad), "{waiting:?}");
    ensure!(requested_version(&space).await? == bad, "the rollout is interrupted");

    // It fails, and the newest comes next. That fails, too.
    pod.report_version(&uid, &bad, Some("Failed")).await?;
    config_until(&space, "shop", "it goes back", |_, status| status.rollout.failure.is_some()).await?;
    pod.report_version(&uid, &good, None).await?;
    let next = moving_from(&space, &bad).await?;
    ensure!(next != lost, "what lay between is made");
    pod.report_version(&uid, &next, Some("Failed")).await?;
    config_until(&space, "shop", "it goes back", |_, status| {
        status.rollout.failure.as_ref().is_some_and(|failure| failure.version == next)
    })
    .await?;
    pod.report_version(&uid, &good, None).await?;
    let failed = until(&space, "shop", "both have failed", |status| {
        is("Failed")(status) && status.failed_versions == [bad.clone(), next.clone()]
    });
    let failed = failed.await?;
    ensure!(condition(&failed, "Stalled").0 == "True", "{failed:?}");

    // What failed comes again.
    content.change("bad").await?;
    let again = until(&space, "shop", "it is refused", |status| status.observed_version.as_ref() == Some(&bad)).await?;
    ensure!(is("Failed")(&again) && requested_version(&space).await? == next, "{again:?}");
    // And what was good. It is there still.
    content.change("good").await?;
    config_until(&space, "shop", "it is requested", |config, status| {
        config.spec.version.as_ref() == Some(&good) && status.current_version.as_ref() == Some(&good)
    })
    .await?;
    Ok(())
}
