//! Features of the tests' own cluster that no other test would miss at once: a connection that goes silent, a start
//! that fails, and an end that leaves nothing.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_core::Stream as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use nudge_tests::cluster::{self, Cluster, Options};
use nudge_tests::{eventually, tools};

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_way_can_go_silent_and_be_cut_and_in_the_end_nothing_is_left() -> Result<()> {
    let Some(mut cluster) = Cluster::installed(&Options::default()).await? else { return Ok(()) };
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
    let end = tokio::time::timeout(WAIT_TIMEOUT, async {
        while let Some(Ok(_)) = poll_fn(|context| events.as_mut().poll_next(context)).await {}
    });
    end.await.context("the watch does not end")?;
    eventually(WAIT_TIMEOUT, "a new connection", async || config_maps.list(&ListParams::default()).await.ok()).await?;

    cluster.freeze_apiserver().await?;
    assert!(tokio::time::timeout(brief, config_maps.list(&ListParams::default())).await.is_err());
    cluster.thaw_apiserver()?;
    eventually(WAIT_TIMEOUT, "it continues", async || config_maps.list(&ListParams::default()).await.ok()).await?;

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
