//! Pods that were unhealthy before, whose node is away, or that have finished. Nothing waits for them, and they never
//! count against a version.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use nudge_api::VersionedConfigStatus;
use nudge_tests::Installation;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::injected_pod;
use serde_json::json;

use super::rollout_under_test::RolloutUnderTest;

/// How often the application crashes, and for how long pods are watched, which is longer.
const CRASH_INTERVAL: Duration = Duration::from_millis(700);
const WATCH_SECONDS: u32 = 4;

/// Returns a node that has stopped to report.
async fn lost_node(space: &TestNamespace) -> Result<String> {
    let nodes: Api<Node> = Api::all(space.client.clone());
    let name = format!("lost-{}", space.name);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status =
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(name)
}

/// Ends the application again and again.
async fn crash_repeatedly(rollout: &RolloutUnderTest, name: &str) -> Result<VersionedConfigStatus> {
    let mut turns = tokio::time::interval(CRASH_INTERVAL);
    loop {
        turns.tick().await;
        rollout.crash(name, true).await?;
    }
}

#[tokio::test]
async fn sick_and_lost_and_finished_pods_are_not_waited_for_and_not_blamed() -> Result<()> {
    let Some((installation, replica)) = Installation::shared().await? else { return Ok(()) };
    let rollout = RolloutUnderTest::new(installation, replica.hub, 16, &["1", "25%"]).await?;
    let crashing = rollout.members[0].name.clone();
    let lost = rollout.members[2].name.clone();

    // One crashes again and again, from before the rollout on.
    rollout.crash(&crashing, true).await?;
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

    // Held while all are watched, so that it can be looked at.
    rollout.set(json!({"rollout": {"minReadySeconds": WATCH_SECONDS, "bakeSeconds": 3600}})).await?;
    rollout.request_version("2").await?;
    let all = |status: &VersionedConfigStatus| status.conditions.iter().any(|condition| condition.reason == "Baking");
    let status = tokio::select! {
        status = rollout.wait_for_status("all that count are notified", all) => status?,
        failed = crash_repeatedly(&rollout, &crashing) => failed?,
    };
    ensure!(status.rollout.failure.is_none(), "{status:#?}");
    for member in rollout.members.iter().filter(|member| ![&crashing, &lost].contains(&&member.name)) {
        ensure!(member.was_notified("2"), "{} does not have it", member.name);
    }
    let evidence = status.rollout.evidence.unwrap_or_default();
    ensure!((evidence.harmed, evidence.not_waited_for, status.pods.total) == (0, 2, 16), "{evidence:?}");

    rollout.set(json!({"rollout": {"minReadySeconds": 1, "bakeSeconds": 0}})).await?;
    rollout.wait_until_current("2").await?;
    // Its agent is well, whatever becomes of its application.
    rollout.all_end_with("2").await
}
