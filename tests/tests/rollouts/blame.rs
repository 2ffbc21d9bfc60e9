//! Pods that were sick before, whose node is away, or that have finished: skipped, and never held against a version.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nudge_api::VersionedConfigStatus;
use nudge_tests::cluster::Space;
use nudge_tests::cluster::installation::injected_pod;
use nudge_tests::{Installation, eventually};
use serde_json::json;

use super::rollout_under_test::{LONG, RolloutUnderTest};

/// A node that has stopped to report.
async fn lost_node(space: &Space) -> Result<String> {
    let nodes: Api<Node> = Api::all(space.client.clone());
    let name = format!("lost-{}", space.name);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status =
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(name)
}

/// Ends a container of the pod once more, as its kubelet reports it.
async fn crash(rollout: &RolloutUnderTest, name: &str) -> Result<()> {
    let pod = rollout.space.api::<Pod>().get(name).await?;
    let mut statuses = pod.status.and_then(|status| status.container_statuses).context("no containers")?;
    let app = statuses.iter_mut().find(|status| status.name == "app").context("no app")?;
    app.restart_count += 1;
    let now = Timestamp::now().to_string();
    let mut app = serde_json::to_value(&app)?;
    app["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": now}});
    rollout.patch_pod(name, &json!({"containerStatuses": [app]})).await?;
    rollout.make_ready(name, false).await?;
    rollout.make_ready(name, true).await
}

fn skipped(status: &VersionedConfigStatus) -> Vec<(&str, &str)> {
    status.rollout.skipped.iter().map(|skipped| (skipped.name.as_str(), skipped.reason.as_str())).collect()
}

#[tokio::test]
async fn sick_and_lost_and_finished_pods_are_skipped_and_not_blamed() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 16, "25%").await?;
    let crashing = rollout.members[0].name.clone();
    let lost = rollout.members[2].name.clone();
    ensure!(rollout.members[0].workload == rollout.members[2].workload, "not of one workload");

    // One crashes again and again, from before the rollout on.
    crash(&rollout, &crashing).await?;
    // One was Ready, and its node has gone silent.
    let node = lost_node(&rollout.space).await?;
    let binding = json!({"metadata": {"name": lost}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let bound: serde_json::Value =
        rollout.space.api::<Pod>().create_subresource("binding", &lost, &PostParams::default(), &binding).await?;
    ensure!(bound["status"] == "Success", "{bound}");
    rollout.make_ready(&lost, false).await?;
    // And one pod of a Job has done its work.
    injected_pod(&rollout.space, "finished", "shop").await?;
    rollout.patch_pod("finished", &json!({"phase": "Succeeded"})).await?;

    rollout.wants("2").await?;
    let others: Vec<_> = rollout.members.iter().filter(|member| ![&crashing, &lost].contains(&&member.name)).collect();
    // Held while all are watched, so that it can be looked at.
    rollout.set(json!({"rollout": {"bakeSeconds": 3600}})).await?;
    for member in &others {
        eventually(LONG, "the others are notified", async || member.was_notified("2").then_some(())).await?;
        crash(&rollout, &crashing).await?;
    }
    let all = |status: &VersionedConfigStatus| status.conditions.iter().any(|condition| condition.reason == "Baking");
    let status = rollout.stands("all that count are notified", all).await?;
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    let skipped = skipped(&status);
    ensure!(skipped.iter().any(|(name, _)| *name == crashing), "{skipped:?}");
    ensure!(
        skipped.contains(&(lost.as_str(), "NodeNotReady")) || skipped.contains(&(lost.as_str(), "NotReady")),
        "{skipped:?}"
    );
    ensure!(skipped.len() == 2 && status.pods.total == 16, "{skipped:?} of {:?}", status.pods);

    rollout.set(json!({"rollout": {"bakeSeconds": 0}})).await?;
    rollout.is_current("2").await?;
    // Its agent is well, whatever becomes of its application.
    rollout.all_end_with("2").await
}
