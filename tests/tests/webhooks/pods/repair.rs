//! Pods that opt in but have no agent.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Cluster, Installation, Replica, ReplicaOptions, eventually};
use serde_json::{Value, json};

use crate::pods::injecting_cluster::{WAIT_TIMEOUT, create, events, opted_in, pod_without_opt_in};

const FAST: [&str; 2] = ["--repair-seconds=1", "--repair-age-seconds=0"];

/// Returns a pod as a controller creates it; no controller runs here that would delete it.
fn owned_pod(name: &str, owner: &str) -> Value {
    let mut pod = opted_in(name);
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

/// Waits for two more looks at everything.
async fn looked_twice(replica: &Replica) -> Result<()> {
    let looks = async || replica.metric("nudge_repair_scans_total").await.ok();
    let before = looks().await.context("no metric")?;
    eventually(WAIT_TIMEOUT, "it is looked again", async || (looks().await? >= before + 2.0).then_some(())).await
}

async fn names(space: &TestNamespace) -> Result<Vec<String>> {
    Ok(space.api::<Pod>().list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
}

#[tokio::test]
async fn pods_without_an_agent_are_counted_and_reported_once() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let space = installation.enabled("repair").await?;
    let elsewhere = cluster.space("elsewhere").await?;
    // Without webhooks nothing is injected.
    create(&space, &opted_in("lost")).await?;
    create(&space, &owned_pod("lost-too", "web")).await?;
    create(&space, &pod_without_opt_in("plain")).await?;
    let mut done = opted_in("done");
    done["metadata"]["labels"]["nudge.dev/agent"] = json!("0.1.0");
    create(&space, &done).await?;
    create(&elsewhere, &opted_in("not-enabled")).await?;
    let replica = installation.replica(&ReplicaOptions::with(&FAST)).await?;
    let counted = async || ((replica.metric("nudge_pods_without_agent").await.ok()? - 2.0).abs() < 0.5).then_some(());
    eventually(WAIT_TIMEOUT, "two pods lack an agent", counted).await.with_context(|| replica.log())?;
    let reported = async || {
        let mut reported = events(&space, "AgentMissing").await.ok()?;
        reported.sort();
        (reported.len() == 2).then_some(reported)
    };
    let reported = eventually(WAIT_TIMEOUT, "they are reported", reported).await.with_context(|| replica.log())?;
    assert_eq!((reported[0].0.as_str(), reported[1].0.as_str()), ("lost", "lost-too"));
    assert!(reported[0].1.contains("delete the pod") && reported[0].1.contains(&space.name), "{reported:?}");
    looked_twice(&replica).await?;
    assert_eq!(events(&space, "AgentMissing").await?.len(), 2);
    assert_eq!(names(&space).await?.len(), 4, "nothing is evicted unless it is requested");
    Ok(())
}

#[tokio::test]
async fn on_request_they_are_evicted_at_a_limited_rate() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let space = installation.enabled("evict").await?;
    bind(&space, "nudge-restart").await?;
    create(&space, &opted_in("bare")).await?;
    let guarded = create(&space, &owned_pod("a-guarded", "guarded")).await?;
    space.run(&guarded).await?;
    let group = if cluster.version().minor < 21 { "v1beta1" } else { "v1" };
    let budget = json!({
        "apiVersion": format!("policy/{group}"), "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": space.name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"nudge.dev/inject": "true"}}},
    });
    cluster.kubectl_on(&["apply"], &budget.to_string()).await?;
    for number in 0..4 {
        create(&space, &owned_pod(&format!("web-{number}"), &format!("web-{number}"))).await?;
    }
    let evicting = async |per_minute: &str| {
        installation.replica(&ReplicaOptions::with(&[&FAST[..], &["--repair=evict", per_minute]].concat())).await
    };
    // The oldest has a PodDisruptionBudget. Trying it counts, so that it takes the only try of every minute.
    let mut slow = evicting("--repair-per-minute=1").await?;
    let tried = async || slow.log().contains("pod not evicted; retrying").then_some(());
    eventually(WAIT_TIMEOUT, "the oldest is tried", tried).await.with_context(|| slow.log())?;
    looked_twice(&slow).await?;
    assert_eq!(names(&space).await?.len(), 6, "{}", slow.log());
    slow.process.stop()?;
    let fast = evicting("--repair-per-minute=100").await?;
    let evicted = async || (fast.metric("nudge_repair_evictions_total").await.ok()? >= 4.0).then_some(());
    eventually(WAIT_TIMEOUT, "pods are evicted", evicted).await.with_context(|| fast.log())?;
    looked_twice(&fast).await?;
    assert_eq!(names(&space).await?, ["a-guarded", "bare"], "{}", fast.log());
    assert_eq!(events(&space, "AgentMissingEvicted").await?.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_does_not_allow_it_is_logged_once() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let space = installation.enabled("forbid").await?;
    create(&space, &owned_pod("a", "a")).await?;
    create(&space, &owned_pod("b", "b")).await?;
    // Looked at afterwards, by its name.
    let allowing = installation.enabled("granted").await?;
    assert!(space.name < allowing.name);
    bind(&allowing, "nudge-restart").await?;
    create(&allowing, &owned_pod("c", "c")).await?;
    let arguments = [&FAST[..], &["--repair=evict", "--repair-per-minute=1"]].concat();
    let replica = installation.replica(&ReplicaOptions::with(&arguments)).await?;
    let binding = format!(
        "kubectl create rolebinding nudge-restart --clusterrole=nudge-restart --serviceaccount=nudge-system:nudge-injector \
         --namespace={}",
        space.name
    );
    eventually(WAIT_TIMEOUT, "the log names what to bind", async || replica.log().contains(&binding).then_some(()))
        .await?;
    looked_twice(&replica).await?;
    assert_eq!(replica.log().matches(&binding).count(), 1);
    assert_eq!(names(&space).await?.len(), 2);
    assert!(names(&allowing).await?.is_empty(), "what is forbidden took the rate of others: {}", replica.log());
    Ok(())
}
