//! Two replicas of the control plane, and the servers below them, come and go while agents follow a config: nothing is
//! lost, and no agent ever goes back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{agent_token, at_once, create_part, hub_ca, injected_pod};
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Balancer, Cluster, Installation, Pod, ReplicaOptions, eventually, subscriber};
use serde_json::json;

/// A lease must run out first where the leader was killed.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

async fn create_versions(space: &TestNamespace, count: usize) -> Result<()> {
    for number in 1..=count {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": number.to_string()});
        let object = json!({
            "metadata": {"name": format!("shop-{number}"), "labels": labels}, "immutable": true,
            "data": {"number": number.to_string()},
        });
        create_part::<ConfigMap>(space, object).await?;
    }
    Ok(())
}

/// Returns a namespace with a config at version 1, and this many versions.
async fn create_shop(installation: &Installation<'_>, count: usize) -> Result<TestNamespace> {
    let space = installation.enabled("replicas").await?;
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "1", "rollout": at_once()}});
    space.create_object::<VersionedConfig>(config).await?;
    create_versions(&space, count).await?;
    let api = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, "all versions are sealed and 1 is current", async || {
        let status = api.get("shop").await.ok()?.status?;
        (status.versions.len() == count && status.current_version.as_deref() == Some("1")).then_some(())
    })
    .await?;
    Ok(space)
}

async fn activate(space: &TestNamespace, number: usize) -> Result<()> {
    let patch = json!({"spec": {"version": number.to_string()}});
    space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Waits until the number is proven.
async fn wait_until_current(space: &TestNamespace, number: usize) -> Result<()> {
    let api = space.api::<VersionedConfig>();
    eventually(WAIT_TIMEOUT, &format!("{number} is current"), async || {
        let status = api.get("shop").await.ok()?.status?;
        (status.current_version.as_deref() == Some(&*number.to_string())).then_some(())
    })
    .await
}

async fn web(space: &TestNamespace, hub: SocketAddr, name: &str) -> Result<Pod> {
    Ok(subscriber(space, hub, name, &json!({}), env!("CARGO_BIN_EXE_app")).await?.1)
}

/// Returns the numbers that the application has printed.
fn printed_numbers(pod: &Pod) -> Vec<usize> {
    let output = pod.app_output();
    let lines = output.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter_map(|(_, number)| number.parse().ok()).collect()
}

/// Waits until the application is at this number, and the number proven.
async fn wait_for_number(space: &TestNamespace, pod: &mut Pod, number: usize) -> Result<()> {
    let description = format!("the application is at {number}");
    let waited =
        eventually(WAIT_TIMEOUT, &description, async || (printed_numbers(pod).last() == Some(&number)).then_some(()))
            .await;
    waited.map_err(|error| pod.explain(&error))?;
    let numbers = printed_numbers(pod);
    ensure!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "it went back: {numbers:?}");
    wait_until_current(space, number).await
}

#[tokio::test]
async fn a_frozen_replica_costs_an_agent_one_request_in_five_seconds_and_serves_nothing_old() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let live = installation.replica(&ReplicaOptions::quick()).await?;
    let wire = cluster.wire().await?;
    let frozen = installation.replica_by(&wire, &ReplicaOptions::quick()).await?;
    let space = create_shop(&installation, 3).await?;
    let balancer = Balancer::start(&[frozen.hub]).await?;
    let mut pod = web(&space, balancer.address, "web").await?;
    // It knows version 1, the pod and its token, and then nothing more, and does not notice at first.
    wire.hold();
    balancer.set(&[live.hub]);
    activate(&space, 2).await?;
    // But then it sends the agent on to others.
    wait_for_number(&space, &mut pod, 2).await?;
    // From now on the agent finds only the frozen one.
    balancer.set(&[frozen.hub]);
    let polls = async || frozen.metric("nudge_hub_polls_total").await;
    let mut live = live;
    live.process.kill()?;
    let began = Instant::now();
    let before = polls().await?;
    eventually(WAIT_TIMEOUT, "the agent asked three times", async || {
        (polls().await.ok()? - before >= 3.0).then_some(())
    })
    .await?;
    let duration = began.elapsed();
    ensure!(duration >= Duration::from_secs(10), "three requests took {duration:?}");
    ensure!(printed_numbers(&pod) == [2], "{:?}", printed_numbers(&pod));
    wire.release();
    activate(&space, 3).await?;
    wait_for_number(&space, &mut pod, 3).await
}

#[tokio::test]
async fn agents_serve_and_start_without_any_replica_and_catch_up() -> Result<()> {
    let Some(cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let mut replica = installation.replica(&ReplicaOptions::quick()).await?;
    let space = create_shop(&installation, 2).await?;
    let balancer = Balancer::start(&[replica.hub]).await?;
    let mut old = web(&space, balancer.address, "old").await?;
    let object = injected_pod(&space, "new", "shop").await?;
    let mut new =
        Pod::of(format!("https://{}", balancer.address), &hub_ca(&space).await?, &agent_token(&space, &object).await?)?;
    replica.process.kill()?;
    balancer.set(&[]);

    new.mount("shop", "1", "1", &[("number", b"1")])?;
    let mut client = new.start().await?;
    ensure!(client.get("/config/number").await?.body == b"1"[..]);
    let mut client_of_old = old.client().await?;
    ensure!(client_of_old.get("/config/number").await?.body == b"1"[..]);
    activate(&space, 2).await?;
    let replica = installation.replica(&ReplicaOptions::quick()).await?;
    balancer.set(&[replica.hub]);
    wait_for_number(&space, &mut old, 2).await?;
    new.wait_until_served(&mut client, "shop=2").await?;
    Ok(())
}

#[tokio::test]
async fn the_servers_below_restart_and_forget_and_the_watch_is_cut() -> Result<()> {
    let Some(mut cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let wire = cluster.wire().await?;
    let replica = installation.replica_by(&wire, &ReplicaOptions::quick()).await?;
    let space = create_shop(&installation, 6).await?;
    let mut pod = web(&space, replica.hub, "web").await?;

    wire.cut();
    activate(&space, 2).await.context("after a cut")?;
    wait_for_number(&space, &mut pod, 2).await?;

    cluster.restart_apiserver().await?;
    activate(&space, 3).await.context("after the API server's restart")?;
    wait_for_number(&space, &mut pod, 3).await?;

    cluster.restart_etcd().await?;
    // The API server may need a moment to find etcd again.
    eventually(WAIT_TIMEOUT, "the API server writes again", async || activate(&space, 4).await.ok()).await?;
    wait_for_number(&space, &mut pod, 4).await?;

    // Silence, which no error shows, while changes are made and forgotten.
    wire.hold();
    activate(&space, 5).await?;
    cluster.compact().await?;
    activate(&space, 6).await?;
    wire.cut();
    wire.release();
    wait_for_number(&space, &mut pod, 6).await
}
