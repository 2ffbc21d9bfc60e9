//! Nudge in all namespaces.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use nudge_api::{VersionedConfig, VersionedConfigSpec};
use nudge_tests::cluster::installation::deploy;
use nudge_tests::ports;
use nudge_tests::{Cluster, Installation, ReplicaOptions, eventually};
use serde_json::{Value, json};

use crate::deploy::installing::by_address;
use crate::deploy::manifests::{documents, read, render};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn all_namespaces_are_enabled_but_the_systems_and_those_that_say_no() -> Result<()> {
    let Some(cluster) = Cluster::installed(&nudge_tests::cluster::Options::default()).await? else { return Ok(()) };
    let installation = Installation { cluster: &cluster };
    let (asked, said_no) =
        (cluster.space("any").await?, cluster.space_with("no", &[("nudge.dev/enabled", "false")]).await?);
    let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let addresses = (address()?, address()?, address()?);

    // On servers that label namespaces with their names, with the webhooks too.
    let rendered = if cluster.has(30, "the overlay `all-namespaces`") {
        render(&deploy().join("overlays/all-namespaces"))?
    } else {
        None
    };
    let webhooks = rendered.is_some();
    let text = match rendered {
        Some(text) => by_address(&text, addresses.0)?,
        None => read(&deploy().join("components/all-namespaces/rbac.yaml"))?,
    };
    cluster.kubectl_on(&["apply", "--server-side", "--force-conflicts"], &text).await?;
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::with(&["--all-namespaces"]) };
    let replica = installation.replica(&options).await?;

    // Where Nudge is at work, a config has a status.
    let config = async |namespace: &str| {
        let api: Api<VersionedConfig> = Api::namespaced(cluster.admin().await?, namespace);
        let config = VersionedConfig::new("seen", VersionedConfigSpec::default());
        let try_to_create = async || api.create(&PostParams::default(), &config).await.ok().map(drop);
        eventually(WAIT_TIMEOUT, "a config is made", try_to_create).await?;
        Ok::<_, anyhow::Error>(api)
    };
    let others = ["kube-system", "kube-public", "kube-node-lease", "nudge-system", &said_no.name];
    let mut not_seen = Vec::new();
    for namespace in others {
        not_seen.push((namespace, config(namespace).await?));
    }
    let later = cluster.space("later").await?;
    // `later` came in a round of its own, after that in which all of the others would have come.
    for namespace in [&asked.name, &later.name] {
        let api = config(namespace).await?;
        eventually(WAIT_TIMEOUT, "a config has a status", async || api.get("seen").await.ok()?.status.map(drop))
            .await?;
    }
    for (namespace, api) in not_seen {
        ensure!(api.get("seen").await?.status.is_none(), "{namespace}: {}", replica.log());
    }
    if !webhooks {
        return Ok(());
    }
    let asks = async |namespace: &str| {
        // Refused only by those who were asked: a name that can't be a label's value.
        let name = "a".repeat(64);
        let config = VersionedConfig::new(&name, VersionedConfigSpec::default());
        let api: Api<VersionedConfig> = Api::namespaced(cluster.admin().await?, namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        Ok::<_, anyhow::Error>(api.create(&dry, &config).await.err().map(|error| error.to_string()))
    };
    let refused = async || asks(&later.name).await.ok()?.filter(|said| said.contains("shorter name"));
    eventually(WAIT_TIMEOUT, "the webhooks are asked", refused).await?;
    for namespace in ["kube-system", "nudge-system", &said_no.name] {
        let message = asks(namespace).await?;
        ensure!(message.is_none(), "{namespace}: {message:?}");
    }
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "validatingadmissionpolicies");
    let policies: Api<DynamicObject> = Api::all_with(cluster.admin().await?, &resource);
    let stored = policies.get("nudge-configs").await?;
    let source = documents(&read(&deploy().join("components/all-namespaces/selector.yaml"))?)?.remove(0);
    let stored = &stored.data["spec"]["matchConstraints"]["namespaceSelector"];
    assert_eq!(stored, &source["namespaceSelector"]);
    let webhooks = "validatingwebhookconfigurations/nudge-injector";
    let shown = cluster.kubectl(&["get", webhooks, "-o", "json"]).await?.context("kubectl")?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    ensure!(shown["webhooks"][0]["clientConfig"]["caBundle"] != json!(null));
    Ok(())
}
