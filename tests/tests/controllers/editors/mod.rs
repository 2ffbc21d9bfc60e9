//! The editors of the objects of a config that follows their text: people and their tools, in the middle of moves and
//! behind gates. Nudge is none of them.

mod followed;
mod gated;
mod operator;
mod together;
mod tools;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use nudge_api::{ConditionType, ReleaseOutcome, ReleaseRequester};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::{Cluster, Installation};

use self::followed::{Followed, Origin, last_release, reason};
use self::tools::{HelmChart, Tool};

/// Returns a namespace that makes configs of all its ConfigMaps, with a label for policies.
async fn baseline_space(cluster: &Cluster, purpose: &str) -> Result<TestNamespace> {
    let labels = [("nudge.dev/enabled", "true"), ("nudge.dev/baseline", "all"), ("team", purpose)];
    let space = cluster.space_with(purpose, &labels).await?;
    bind(&space, "nudge-namespace").await?;
    space.service_account("app").await?;
    Ok(space)
}

#[tokio::test]
async fn every_tool_writes_in_the_middle_of_a_move_and_nobody_else_writes() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let helm = tokio::task::spawn_blocking(HelmChart::find).await??;
    let space = baseline_space(installation.cluster, "editors").await?;
    let is_there =
        |(tool, ..): &(Tool, &str, Origin)| helm.is_some() || ![Tool::HelmUpgrade, Tool::HelmRollback].contains(tool);
    try_join_all(Tool::ALL.into_iter().filter(is_there).map(async |(tool, name, origin)| {
        let mut followed = Followed::new(installation.cluster, space.clone(), name, origin).await?;
        tool.write(&followed, helm.as_ref(), 0).await?;
        followed.start(replica.hub).await?;
        tool.write(&followed, helm.as_ref(), 1).await?;
        let second = followed.wait_for_first_step().await?;
        tool.write(&followed, helm.as_ref(), 2).await?;
        let is_left = |status: &nudge_api::VersionedConfigStatus| status.desired_version.as_ref() != Some(&second);
        followed.wait_for("the move is left", is_left).await?;
        followed.set(serde_json::json!({"rollout": at_once()})).await?;
        let last = tool.texts()[2];
        let status = followed.wait_until_current(last).await?;
        let left = last_release(&status, &second).context("no release")?;
        ensure!(left.outcome == Some(ReleaseOutcome::Left), "{tool:?}: {status:#?}");
        let ReleaseRequester::Managers([manager]) = left.requester() else { bail!("{tool:?}: {left:#?}") };
        ensure!(tool.manager().is_none_or(|expected| manager == expected), "{tool:?}: {manager}");
        ensure!(reason(&status, ConditionType::Fetched) == "TextRead", "{tool:?}: {status:#?}");
        ensure!(followed.serves(last), "{tool:?}");
        followed.check_text(last).await
    }))
    .await?;
    Ok(())
}
