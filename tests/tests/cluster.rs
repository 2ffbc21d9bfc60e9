//! The harness itself: a real API server whose rules, tokens, webhooks and faults other tests rely on.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_core::Stream as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams, WatchParams};
use nudge_tests::cluster::options::CONTROLLERS;
use nudge_tests::cluster::{self, Cluster, Options, space, tokens};
use nudge_tests::{eventually, tools};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

fn config_map(name: &str, value: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": value}}))?)
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

#[tokio::test]
async fn a_wire_can_go_silent_and_be_cut() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let wire = cluster.wire().await?;
    let client = cluster::client(&cluster.kubeconfig_by(&wire, &cluster.administrator())).await?;
    client.apiserver_version().await?;

    wire.hold();
    let brief = Duration::from_millis(300);
    assert!(tokio::time::timeout(brief, client.apiserver_version()).await.is_err());
    assert!(cluster.admin().await?.apiserver_version().await.is_ok());
    wire.release();
    client.apiserver_version().await?;

    let space = cluster.space("wire").await?;
    let config_maps = Api::<ConfigMap>::namespaced(client, &space.name);
    let mut events = pin!(config_maps.watch(&WatchParams::default(), "0").await?);
    wire.cut();
    // The events so far, if any, and then the end.
    let end = tokio::time::timeout(SOON, async {
        while let Some(Ok(_)) = poll_fn(|context| events.as_mut().poll_next(context)).await {}
    });
    end.await.context("the watch does not end")?;
    eventually(SOON, "a new connection", async || config_maps.list(&ListParams::default()).await.ok()).await?;
    Ok(())
}

#[tokio::test]
async fn servers_come_back_with_their_data_and_leave_nothing() -> Result<()> {
    let options = Options::default().controllers(&CONTROLLERS[..1]).flag("max-requests-inflight", "200");
    let Some(mut cluster) = Cluster::start(&options).await? else { return Ok(()) };
    let space = cluster.space("faults").await?;
    let config_maps = space.api::<ConfigMap>();
    let version = config_maps.create(&PostParams::default(), &config_map("one", "1")?).await?.metadata.resource_version;

    cluster.stop_apiserver().await?;
    config_maps.get("one").await.unwrap_err();
    cluster.start_apiserver().await?;
    // The first request may find that its connection is gone.
    eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;

    cluster.freeze_apiserver().await?;
    let brief = Duration::from_millis(300);
    assert!(tokio::time::timeout(brief, config_maps.get("one")).await.is_err());
    cluster.thaw_apiserver()?;
    eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;

    cluster.restart_etcd().await?;
    let one = eventually(SOON, "the object is there", async || config_maps.get("one").await.ok()).await?;
    assert_eq!(one.metadata.resource_version, version);

    eventually(SOON, "another is made", async || {
        config_maps.create(&PostParams::default(), &config_map("two", "2").ok()?).await.ok()
    })
    .await?;
    cluster.compact().await?;
    cluster.restart_apiserver().await?;
    let old = ListParams::default().matching(kube::api::VersionMatch::Exact).at(&version.context("a version")?);
    let gone = eventually(SOON, "an answer", async || match config_maps.list(&old).await {
        Err(error @ kube::Error::Api(_)) => Some(error),
        _ => None,
    });
    assert!(is_status(&gone.await?, 410));

    let (pids, folder) = (cluster.pids(), cluster.folder().to_owned());
    assert_eq!(pids.len(), if cluster.controls("namespace") { 3 } else { 2 });
    ensure!(pids.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists()), "a server has ended: {pids:?}");
    cluster.stop()?;
    ensure!(!pids.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()), "a server is left: {pids:?}");
    ensure!(!folder.exists(), "{} is left", folder.display());
    Ok(())
}

#[tokio::test]
async fn a_server_that_can_not_start_says_why() -> Result<()> {
    let options = Options::default().flag("no-such-flag", "1");
    let Err(error) = Cluster::start(&options).await else {
        tools::skipped("there is no API server");
        return Ok(());
    };
    let error = format!("{error:#}");
    assert!(error.contains("kube-apiserver has ended") && error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}
