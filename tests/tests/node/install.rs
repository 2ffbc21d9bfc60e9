//! Nudge installed, namespaces enabled and Nudge removed, by the commands of README.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use nudge_tests::cluster::installation::{NAMESPACE, deploy};
use serde_json::json;

use crate::place::{Place, succeed};
use crate::readme;
use nudge_tests::eventually;

/// How long the control plane may take until all of it is ready, and to be gone.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(3);

/// The namespace of the first act.
const FIRST: &str = "nudge-e2e-first";

/// Kubernetes from which on README says to apply `overlays/current`.
const CURRENT_MINOR: u32 = 30;

/// Runs one line of README, with this name for NAME.
pub(crate) fn type_in(place: &Place, line: &str, namespace: &str) -> Result<String> {
    let line = line
        .replace("-n NAME", &format!("-n {namespace}"))
        .replace("namespace NAME", &format!("namespace {namespace}"));
    succeed(place.command("sh").args(["-ec", &line])).with_context(|| format!("README: {line}"))
}

/// Installs, waits for what README says, and acts at once; then waits until every replica is ready.
pub(crate) async fn install(place: &Place, client: &Client) -> Result<()> {
    let folder = if minor(client).await? >= CURRENT_MINOR { "deploy/overlays/current" } else { "deploy/base" };
    let images = place.images();
    if images.is_empty() {
        type_in(place, &readme::command("Install", &format!("-k {folder} "))?, "")?;
    } else {
        // As the example of deploy/README.md does it: a kustomization of one's own next to the clone.
        let own = tempfile::tempdir_in(deploy().join(".."))?;
        let name = |image: &str| format!("- {{name: {image}, newName: {images}{image}}}\n");
        let names = ["nudge-injector", "nudge-agent", "nudge-agent-kill"].map(name).concat();
        let kind = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
        fs::write(own.path().join("kustomization.yaml"), format!("{kind}resources: [../{folder}]\nimages:\n{names}"))?;
        succeed(place.command("kubectl").args(["apply", "--server-side", "-k"]).arg(own.path()))?;
    }
    type_in(place, &readme::command("Install", "rollout status")?, "")?;
    first_act(place)?;
    for name in ["nudge-certs", "nudge-injector", "nudge-hub"] {
        wait_until_ready(client, name).await?;
    }
    Ok(())
}

/// The first act of a user after what README waits for, at once and without a second try: a namespace is enabled and
/// gets a config.
fn first_act(place: &Place) -> Result<()> {
    let kubectl = |arguments: &[&str]| succeed(place.command("kubectl").args(arguments));
    kubectl(&["create", "namespace", FIRST])?;
    enable(place, FIRST)?;
    let file = tempfile::NamedTempFile::new()?;
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "first"}, "spec": {}});
    fs::write(file.path(), config.to_string())?;
    succeed(place.command("kubectl").args(["create", "-n", FIRST, "-f"]).arg(file.path())).context("the first act")?;
    kubectl(&["delete", "namespace", FIRST]).map(drop)
}

/// Waits until every replica of a Deployment is ready.
pub(crate) async fn wait_until_ready(client: &Client, name: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(INSTALL_TIMEOUT, &format!("{name} is ready"), async || {
        let deployment = deployments.get(name).await.ok()?;
        let (expected, status) = (deployment.spec?.replicas?, deployment.status?);
        (status.ready_replicas == Some(expected) && status.updated_replicas == Some(expected)).then_some(())
    })
    .await
}

/// Enables a namespace.
pub(crate) fn enable(place: &Place, namespace: &str) -> Result<()> {
    for part in ["-k deploy/namespace ", "kubectl label"] {
        type_in(place, &readme::command("Enable a namespace", part)?, namespace)?;
    }
    Ok(())
}

/// Removes Nudge, and waits until its pods are gone.
pub(crate) async fn remove(place: &Place, client: &Client) -> Result<()> {
    let current = minor(client).await? >= CURRENT_MINOR;
    for line in readme::commands("Remove")? {
        // README removes what it has said to install on current servers.
        let line = if current { line } else { line.replace("-k deploy/overlays/current", "-k deploy/base") };
        type_in(place, &line, "")?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(INSTALL_TIMEOUT, "the control plane is gone", async || {
        pods.list(&ListParams::default()).await.ok().filter(|list| list.items.is_empty()).map(drop)
    })
    .await
}

/// Returns the second number of the server's version.
pub(crate) async fn minor(client: &Client) -> Result<u32> {
    let version = client.apiserver_version().await?;
    version.minor.trim_end_matches('+').parse().with_context(|| format!("the server is of version {version:?}"))
}
