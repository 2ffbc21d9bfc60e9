//! What the page is shown of: configs that the control plane moves, and others whose status a test writes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::{Identity, TestNamespace};
use nudge_tests::{Finished, Installation, Replica, binary};
use serde_json::{Value, json};

use crate::ui::browser::Browser;
use crate::ui::page::Page;
use crate::ui::tab::Tab;

/// How long anything may take on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);

/// Returns the cluster with the control plane, and the browser; `None` if one is missing, and the test is to be
/// skipped.
pub(crate) async fn stage() -> Result<Option<(&'static Installation<'static>, &'static Replica, &'static Browser)>> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(None) };
    let Some(browser) = Browser::shared(installation.cluster).await? else { return Ok(None) };
    Ok(Some((installation, replica, browser)))
}

/// Returns the page as the administrator sees it, and a tab that shows it.
pub(crate) async fn open_page(installation: &Installation<'_>, browser: &'static Browser) -> Result<(Page, Tab)> {
    let page = Page::start(&installation.cluster.kubeconfig(), &[]).await?;
    let tab = browser.tab().await?;
    tab.size(1200, 900).await?;
    tab.open(&page.address).await?;
    tab.wait_for_text("#link", "live").await?;
    Ok((page, tab))
}

/// Shows a config, or what stands behind its name.
pub(crate) async fn show_config(tab: &Tab, space: &TestNamespace, rest: &str) -> Result<()> {
    tab.run(&format!("location.hash = {}", json!(format!("#/{}/{rest}", space.name)))).await
}

/// Runs `kubectl nudge` in the namespace, which must work, and returns what it prints.
pub(crate) async fn nudge(
    installation: &Installation<'_>,
    space: &TestNamespace,
    arguments: &[&str],
) -> Result<String> {
    let mut command = std::process::Command::new(binary::kubectl_nudge()?);
    command.args(arguments).args(["-n", &space.name, "--kubeconfig"]).arg(installation.cluster.kubeconfig());
    let finished = tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??;
    ensure!(finished.code == Some(0), "{arguments:?}: {finished:?}");
    Ok(finished.stdout)
}

/// Returns a namespace with the config `shop`, whose versions 1.0.0 and 1.0.1 are complete and whose first one is
/// current.
pub(crate) async fn shop(installation: &Installation<'_>) -> Result<TestNamespace> {
    let space = installation.enabled("ui").await?;
    bind(&space, "nudge-secrets").await?;
    nudge(installation, &space, &["create", "shop", "1.0.0", "--from-literal=number=1", "--from-literal=text=a b"])
        .await?;
    until(&space, "1.0.0 is current", |status| status.current_version.as_deref() == Some("1.0.0")).await?;
    let secret = "--secret-from-literal=pin=hidden-4711";
    nudge(
        installation,
        &space,
        &["create", "shop", "1.0.1", "--from-literal=number=2", "--from-literal=text=<b>x</b>", secret],
    )
    .await?;
    until(&space, "1.0.1 is complete", |status| status.version("1.0.1").is_some()).await?;
    Ok(space)
}

/// Waits until the status of `shop` is as expected.
pub(crate) async fn until(
    space: &TestNamespace,
    what: &str,
    expected: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<VersionedConfig> {
    space
        .object_until(WAIT_TIMEOUT, "shop", what, |config: &VersionedConfig| {
            config.status.as_ref().is_some_and(&expected)
        })
        .await
}

/// Returns a namespace that nobody works in, with a config and its status.
pub(crate) async fn create_pictured(
    installation: &Installation<'_>,
    name: &str,
    spec: Value,
    status: Value,
) -> Result<TestNamespace> {
    let space = installation.cluster.space("painted").await?;
    paint(&space, name, spec, status).await?;
    Ok(space)
}

/// Creates a config with its status, in a namespace where nobody works.
pub(crate) async fn paint(space: &TestNamespace, name: &str, spec: Value, status: Value) -> Result<()> {
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": name}, "spec": spec})).await?;
    repaint(space, name, status).await
}

/// Writes the status.
pub(crate) async fn repaint(space: &TestNamespace, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    space.api::<VersionedConfig>().patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns a pod of the config with an agent, which no node runs.
pub(crate) fn pod(name: &str, config: &str, workload: &str) -> Value {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload, "uid": workload, "controller": true});
    let agent = json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": config}]});
    let app = json!({"name": "app", "image": "test"});
    json!({
        "metadata": {"name": name, "labels": {"nudge.dev/agent": "0.1.0"}, "ownerReferences": [owner]},
        "spec": {"serviceAccountName": "app", "automountServiceAccountToken": false, "containers": [agent, app]},
    })
}

/// Returns what its kubelet and the hub say of it.
pub(crate) fn pod_status(ready: bool, state: &str, reason: &str, message: &str) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready},
        {"type": "nudge.dev/ConfigCurrent", "status": state, "reason": reason, "message": message}]})
}

/// Writes its status.
pub(crate) async fn report(space: &TestNamespace, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    space.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns a kubeconfig file for somebody.
pub(crate) fn kubeconfig(installation: &Installation<'_>, who: &Identity<'_>, name: &str) -> Result<PathBuf> {
    let file = installation.cluster.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&file, installation.cluster.kubeconfig_of(who)).context("the kubeconfig")?;
    Ok(file)
}
