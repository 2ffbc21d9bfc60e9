//! The command, run against the control plane that the tests share.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{agent_token, hub_ca, injected_pod};
use nudge_tests::{Finished, Installation, Pod, Replica, binary};
use serde_json::{Value, json};

pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the command with these arguments in the namespace, with a kubeconfig.
pub(crate) async fn run_by(kubeconfig: &Path, space: &TestNamespace, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(arguments).arg("--namespace").arg(&space.name).arg("--kubeconfig").arg(kubeconfig);
    tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
}

pub(crate) async fn run(
    installation: &Installation<'_>,
    space: &TestNamespace,
    arguments: &[&str],
) -> Result<Finished> {
    run_by(&installation.cluster.kubeconfig(), space, arguments).await
}

/// Runs the command, which must end with this exit code, and returns its output.
pub(crate) async fn run_expecting(
    installation: &Installation<'_>,
    space: &TestNamespace,
    code: i32,
    arguments: &[&str],
) -> Result<Finished> {
    let finished = run(installation, space, arguments).await?;
    ensure!(finished.code == Some(code), "kubectl nudge {arguments:?} did not end with {code}: {finished:?}");
    Ok(finished)
}

pub(crate) async fn run_successfully(
    installation: &Installation<'_>,
    space: &TestNamespace,
    arguments: &[&str],
) -> Result<String> {
    Ok(run_expecting(installation, space, 0, arguments).await?.stdout)
}

pub(crate) async fn run_failing(
    installation: &Installation<'_>,
    space: &TestNamespace,
    arguments: &[&str],
) -> Result<String> {
    Ok(run_expecting(installation, space, 1, arguments).await?.stderr)
}

/// Waits until the status meets the condition.
pub(crate) async fn status(
    space: &TestNamespace,
    name: &str,
    what: &str,
    expected: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<()> {
    let is_expected = |config: &VersionedConfig| config.status.as_ref().is_some_and(&expected);
    space.object_until(WAIT_TIMEOUT, name, what, is_expected).await.map(drop)
}

pub(crate) async fn becomes_current(space: &TestNamespace, name: &str, version: &str) -> Result<()> {
    status(space, name, "it is current", |status| status.current_version.as_deref() == Some(version)).await
}

/// Returns a pod of config `game` whose agent runs version 1.
pub(crate) async fn pod(installation: &Installation<'_>, replica: &Replica, space: &TestNamespace) -> Result<Pod> {
    run_successfully(installation, space, &["create", "game", "1", "--from-literal=lives=3"]).await?;
    becomes_current(space, "game", "1").await?;
    let object = injected_pod(space, "web", "game").await?;
    let hub = format!("https://{}", replica.hub);
    let mut pod = Pod::of(hub, &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.configs = "game";
    let mut client = pod.start().await?;
    pod.wait_until_served(&mut client, "game=1").await?;
    let applied = |status: &VersionedConfigStatus| status.pods.summary == "1/1";
    status(space, "game", "the pod is counted", applied).await?;
    Ok(pod)
}

pub(crate) async fn set_rollout(space: &TestNamespace, rollout: Value) -> Result<()> {
    let patch = json!({"spec": {"rollout": rollout}});
    space.api::<VersionedConfig>().patch("game", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

pub(crate) async fn set_ready(space: &TestNamespace, ready: bool) -> Result<()> {
    space.set_ready("web", ready).await
}
