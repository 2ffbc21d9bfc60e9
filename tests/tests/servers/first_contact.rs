//! The first contact: who waits for the role certs after an installation may act at once.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{ListParams, PostParams};
use nix::sys::signal::Signal;
use nudge_api::{VersionedConfig, VersionedConfigSpec};
use nudge_tests::cluster::Options;
use nudge_tests::cluster::installation::NAMESPACE;
use nudge_tests::{Cluster, Finished, Installation, ReplicaOptions, binary, eventually, ports};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns what the readiness probe of `deploy/base/certs.yaml` runs.
fn ready(socket: &Path) -> Result<Finished> {
    let mut probe = Command::new(binary::injector()?);
    Finished::within(WAIT_TIMEOUT, probe.args(["health", "ready"]).env("NUDGE_HEALTH_SOCKET", socket))
}

#[tokio::test]
async fn certs_is_ready_when_the_api_server_trusts_the_webhooks_and_stays_so() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply_apart(&cluster).await? else { return Ok(()) };
    let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (admission, hub) = (address()?, address()?);
    installation.apply_webhooks(admission).await?;
    let space = installation.enabled("first").await?;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("health.sock");
    let certs = installation.certs(&ReplicaOptions::with(&[&format!("--health-socket={}", socket.display())])).await?;
    // What the others mount is made meanwhile.
    let mounted = installation.mount(&certs).await?;
    let waits = async || {
        let finished = ready(&socket).ok()?;
        (finished.code != Some(0) && finished.stderr.contains("failed calling webhook")).then_some(())
    };
    let waited = eventually(WAIT_TIMEOUT, "certs says why it is not ready", waits).await;
    waited.with_context(|| format!("{:?}\n{}", ready(&socket), certs.log()))?;

    let control =
        installation.control(&ReplicaOptions::with(&mounted.each_ref().map(String::as_str)), admission, hub).await?;
    let is_ready = async || ready(&socket).ok().filter(|finished| finished.code == Some(0)).map(drop);
    eventually(WAIT_TIMEOUT, "certs is ready", is_ready).await.with_context(|| certs.log())?;
    // The first act, once.
    let config = VersionedConfig::new("shop", VersionedConfigSpec::default());
    space.api::<VersionedConfig>().create(&PostParams::default(), &config).await.context("the first act")?;

    // Only the first time: it has no part in what comes later.
    control.signal(Signal::SIGKILL)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let finished = ready(&socket)?;
    ensure!(finished.code == Some(0), "{finished:?}");
    let own_configs: Api<VersionedConfig> = Api::namespaced(cluster.admin().await?, NAMESPACE);
    ensure!(own_configs.list(&ListParams::default()).await?.items.is_empty(), "a question is never stored");
    Ok(())
}
