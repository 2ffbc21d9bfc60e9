//! From the release before there were roles (one process, one account, other Secrets) to this one, in the order that deploy/README.md gives,
//! with a pod at work: it goes on trusting the hub, it is notified of nothing but the next version, and what is left behind is what the page
//! says to delete.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{NAMESPACE, agent_token, at_once, create_part, deploy, hub_ca, injected_pod};
use nudge_tests::cluster::{Options, Space};
use nudge_tests::{Cluster, Finished, Installation, Pod, ReplicaOptions, binary, eventually, ports};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(1);
const BEFORE: &str = include_str!("before.yaml");
/// What is compared of an installation.
const KINDS: &str = "clusterroles,clusterrolebindings,roles,rolebindings,secrets,serviceaccounts,leases,services";

/// Runs kubectl, which must succeed.
async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let finished = cluster.kubectl(arguments).await?.context("no kubectl")?;
    ensure!(finished.code == Some(0), "kubectl {arguments:?}: {}", finished.stderr);
    Ok(finished.stdout)
}

/// The objects of Nudge's installation, as `kind/name`.
async fn objects(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let select = "--selector=app.kubernetes.io/name=nudge";
    let text = kubectl(cluster, &["get", KINDS, select, "--namespace", NAMESPACE, "--output=name"]).await?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The commands of the page in the section about this upgrade.
fn commands() -> Result<Vec<String>> {
    let page = fs::read_to_string(deploy().join("README.md"))?;
    let (_, section) = page.split_once("### From a release with one process\n").context("no such section")?;
    let section = section.split("\n#").next().unwrap_or_default();
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).context("no commands")?;
    Ok(block.lines().map(str::to_owned).collect())
}

async fn version(space: &Space, name: &str) -> Result<()> {
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": name});
    let part = json!({"metadata": {"name": format!("shop-{name}"), "labels": labels}, "immutable": true, "data": {"key": name}});
    create_part::<ConfigMap>(space, part).await.map(drop)
}

/// Leaves what the release before leaves: its roles, one Secret with the authority and the serving certificate, and a ConfigMap.
async fn as_before(cluster: &Cluster, space: &Space) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), NAMESPACE);
    let mut data = secrets.get("nudge-authority").await?.data.context("no authority")?;
    let serving = secrets.get("nudge-serving").await?.data.context("no serving certificate")?;
    let bundle = serving["ca.crt"].clone();
    data.extend(serving.into_iter().filter(|(name, _)| name != "ca.crt"));
    let labels = json!({"app.kubernetes.io/name": "nudge"});
    let before = json!({"metadata": {"name": "nudge-injector-tls", "labels": labels}, "type": "Opaque"});
    let before = Secret { data: Some(data), ..serde_json::from_value(before)? };
    secrets.create(&PostParams::default(), &before).await?;
    let ByteString(bundle) = bundle;
    space
        .create_object::<ConfigMap>(json!({
            "metadata": {"name": "nudge-hub-ca", "labels": labels}, "data": {"ca.crt": String::from_utf8(bundle)?},
        }))
        .await?;
    // All of this release, but for what the release before also had: the key and its Lease.
    let news = objects(cluster).await?;
    let kept = ["secret/nudge-content-key", "secret/nudge-injector-tls", "lease.coordination.k8s.io/nudge-injector"];
    let mut delete = vec!["--namespace", NAMESPACE, "delete"];
    delete.extend(news.iter().map(String::as_str).filter(|name| !kept.contains(name)));
    kubectl(cluster, &delete).await?;
    kubectl(cluster, &["delete", "clusterrolebinding,clusterrole", "--selector=app.kubernetes.io/name=nudge"]).await?;
    // Its Lease has no labels.
    kubectl(cluster, &["--namespace", NAMESPACE, "label", "lease", "nudge-injector", "app.kubernetes.io/name-"])
        .await?;
    cluster.kubectl_on(&["apply", "--server-side", "--validate=false"], BEFORE).await?;
    let bindings = space.api::<RoleBinding>();
    bindings.delete("nudge-namespace-hub", &DeleteParams::default()).await.map(drop)?;
    Ok(())
}

#[tokio::test]
async fn a_pod_at_work_is_not_notified_and_nothing_is_left_behind() -> Result<()> {
    let Some(cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let Some(installation) = Installation::apply(&cluster).await? else { return Ok(()) };
    let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let addresses = (address()?, address()?, address()?);
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::quick() };

    // One process, with a pod at work.
    let mut replica = installation.replica(&options).await?;
    let space = installation.enabled("upgraded").await?;
    for name in ["1", "2"] {
        version(&space, name).await?;
    }
    let config = json!({"metadata": {"name": "shop"}, "spec": {"current": "1", "rollout": at_once()}});
    space.create_object::<VersionedConfig>(config).await?;
    let object = injected_pod(&space, "web", "shop").await?;
    let anchor = hub_ca(&space).await?;
    let mut pod = Pod::of(format!("https://{}", replica.hub), &anchor, &agent_token(&space, &object).await?)?;
    pod.configs = "shop";
    let files = pod.path("files").to_str().context("a path")?.to_owned();
    let mut pod = pod.with(&["--mount-path", &files, "--notify", "app=SIGUSR1"]);
    pod.start_app(env!("CARGO_BIN_EXE_app"), &["--catch", "SIGUSR1", "--read", &format!("{files}/key")]).await?;
    let mut client = pod.start().await?;
    pod.serves(&mut client, "shop=1").await?;
    replica.process.stop()?;
    as_before(&cluster, &space).await?;

    // 1. The roles are bound.
    let mut enable = Command::new(binary::kubectl_nudge()?);
    enable.args(["enable", &space.name, "--kubeconfig"]).arg(cluster.kubeconfig());
    let enabled = Finished::of(&mut enable)?;
    ensure!(enabled.code == Some(0), "{}", enabled.stderr);
    // 2. This release is applied, and its processes begin.
    Installation::apply_apart(&cluster).await?.context("no kubectl")?;
    for file in ["user-roles", "services"] {
        let text = fs::read_to_string(deploy().join(format!("base/{file}.yaml")))?;
        cluster.kubectl_on(&["apply", "--server-side", "--validate=false"], &text).await?;
    }
    let apart = installation.apart(&options).await?;
    ensure!(apart.certs.log().contains("CA taken over from the Secret of the release before"), "{}", apart.certs.log());
    ensure!(hub_ca(&space).await? == anchor, "the authority is another one");
    // The agent comes back by itself, and its application hears of the next version only.
    let spec = Patch::Merge(json!({"spec": {"current": "2"}}));
    let configs = space.api::<VersionedConfig>();
    let switched = async || configs.patch("shop", &PatchParams::default(), &spec).await.ok().map(drop);
    eventually(SOON, "the webhooks are trusted", switched).await?;
    pod.app_says(1, "SIGUSR1 2").await?;
    pod.serves(&mut client, "shop=2").await?;
    ensure!(pod.app_output().matches("SIGUSR1").count() == 1, "notified too often: {}", pod.app_output());
    for process in [&apart.control, &apart.hub, &apart.certs] {
        // At the level of debugging, the log says that Secrets may not be read here.
        let log = process.log();
        let refused = log.lines().find(|line| !line.contains("\"DEBUG\"") && line.contains("forbidden"));
        ensure!(refused.is_none(), "{refused:?}");
    }

    // 3. What is left is what the page deletes.
    let after = objects(&cluster).await?;
    for line in commands()? {
        let kubectl = cluster.kubectl_program().context("no kubectl")?;
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(kubectl, folder.path().join("kubectl"))?;
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
        shell.args(["-ec", &line]).env("PATH", path).env("KUBECONFIG", cluster.kubeconfig());
        let finished = Finished::of(&mut shell)?;
        ensure!(finished.code == Some(0), "{line}: {}", finished.stderr);
    }
    let left = objects(&cluster).await?;
    let deleted: Vec<_> = after.difference(&left).map(String::as_str).collect();
    assert_eq!(deleted, ["clusterrole.rbac.authorization.k8s.io/nudge-admin", "secret/nudge-injector-tls"]);
    assert_eq!(left, of_this_release()?, "more or less than this release applies");
    let maps = space.api::<ConfigMap>().list(&ListParams::default()).await?;
    let names: BTreeSet<_> = maps.iter().filter_map(|map| map.metadata.name.as_deref()).collect();
    ensure!(names.contains("nudge-hub-ca"), "for agents of the release before: {names:?}");
    ensure!(Api::<Namespace>::all(space.client.clone()).get(&space.name).await?.metadata.deletion_timestamp.is_none());
    Ok(())
}

/// What the files of this release hold of these kinds.
fn of_this_release() -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for file in ["rbac", "rbac-namespace", "state", "user-roles", "services"] {
        let path = Path::new("base").join(format!("{file}.yaml"));
        for object in serde_saphyr::from_multiple::<Value>(&fs::read_to_string(deploy().join(path))?)? {
            let kind = object["kind"].as_str().context("no kind")?.to_lowercase();
            let group = match object["apiVersion"].as_str().context("no version")?.split_once('/') {
                Some((group, _)) => format!(".{group}"),
                None => String::new(),
            };
            all.insert(format!("{kind}{group}/{}", object["metadata"]["name"].as_str().context("no name")?));
        }
    }
    Ok(all)
}
