//! `kubectl nudge export` and `import`: a cluster that has lost all gets its configs back, and no application hears of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use nudge_api::{Phase, RolloutStage, VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::assigned::assigned;
use nudge_tests::cluster::installation::{at_once, bind, create_part};
use nudge_tests::cluster::{Options, Space};
use nudge_tests::{
    Cluster, Finished, Installation, Pod, Replica, ReplicaOptions, binary, eventually, ports, subscriber,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(2);

/// Runs the command with this kubeconfig.
async fn run_by(kubeconfig: &Path, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
    tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
}

async fn ends(cluster: &Cluster, code: i32, arguments: &[&str]) -> Result<Finished> {
    let finished = run_by(&cluster.kubeconfig(), arguments).await?;
    ensure!(finished.code == Some(code), "kubectl nudge {arguments:?} did not end with {code}: {finished:?}");
    Ok(finished)
}

fn addresses() -> Result<(SocketAddr, SocketAddr, SocketAddr)> {
    let free = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    Ok((free()?, free()?, free()?))
}

/// The control plane with its webhooks, at addresses that stay the same for agents.
async fn control_plane<'a>(
    cluster: &'a Cluster,
    addresses: (SocketAddr, SocketAddr, SocketAddr),
) -> Result<Option<(Installation<'a>, Replica)>> {
    let Some(installation) = Installation::apply(cluster).await? else { return Ok(None) };
    installation.apply_file("base/user-roles.yaml").await?;
    installation.apply_webhooks(addresses.0).await?;
    let options = ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::quick() };
    let replica = installation.replica(&options).await?;
    Ok(Some((installation, replica)))
}

/// A config with its subscribers.
struct Shop {
    space: Space,
    pods: Vec<(String, Pod)>,
}

impl Shop {
    async fn new(installation: &Installation<'_>, purpose: &str, rollout: &Value) -> Result<Self> {
        let space = installation.enabled(purpose).await?;
        space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"number": "0"}})).await?;
        let spec = json!({"current": "1", "rollout": rollout});
        let create = async || {
            let config = json!({"metadata": {"name": "shop"}, "spec": spec});
            space.create_object::<VersionedConfig>(config).await.ok().map(drop)
        };
        eventually(LONG, "the webhooks are at work", create).await?;
        let shop = Self { space, pods: Vec::new() };
        shop.make("1").await?;
        shop.until("version 1 is current", |status| status.current.as_deref() == Some("1")).await?;
        Ok(shop)
    }

    async fn make(&self, version: &str) -> Result<()> {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let object = json!({
            "metadata": {"name": format!("shop-{version}"), "labels": labels}, "immutable": true, "data": {"number": version},
        });
        create_part::<ConfigMap>(&self.space, object).await.map(drop)
    }

    async fn populate(&mut self, hub: SocketAddr, count: usize) -> Result<()> {
        for number in 0..count {
            let app = env!("CARGO_BIN_EXE_app");
            let (object, pod) = subscriber(&self.space, hub, &format!("web-{number}"), &json!({}), app).await?;
            self.pods.push((object.uid().context("no uid")?, pod));
        }
        let all = format!("{count}/{count}");
        self.until("all pods run it", |status| status.pods.summary == all).await.map(drop)
    }

    async fn set(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.space.api::<VersionedConfig>().patch("shop", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn until(&self, what: &str, is: impl Fn(&VersionedConfigStatus) -> bool) -> Result<VersionedConfigStatus> {
        let is = |config: &VersionedConfig| config.status.as_ref().is_some_and(&is);
        self.space.object_until(LONG, "shop", what, is).await?.status.context("no status")
    }

    /// What every application was notified of, by pod.
    fn notified(&self) -> Vec<Vec<String>> {
        let of = |pod: &Pod| {
            let output = pod.app_output();
            output.lines().filter_map(|line| Some(line.rsplit_once("SIGUSR1 ")?.1.to_owned())).collect()
        };
        self.pods.iter().map(|(_, pod)| of(pod)).collect()
    }

    /// The version that the status assigns to each pod.
    fn assigned(&self, status: &VersionedConfigStatus) -> Vec<Option<String>> {
        let identity = status.identity.clone().unwrap_or_default();
        let uuid = [&identity[..8], &identity[8..12], &identity[12..16], &identity[16..20], &identity[20..]].join("-");
        let of = |uid: &str| assigned(status, &uuid, uid, "", &BTreeMap::new()).map(str::to_owned);
        self.pods.iter().map(|(uid, _)| of(uid)).collect()
    }
}

/// An export of all namespaces, in a folder of its own.
async fn export(cluster: &Cluster, more: &[&str]) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("nudge.yaml");
    let arguments = [&["export", "-A", "-o", file.to_str().context("a path")?][..], more].concat();
    ends(cluster, 0, &arguments).await?;
    Ok((folder, file))
}

/// What an empty etcd is given back by others: namespaces, pods as kubelets run them with their accounts, and the Secrets of Nudge.
fn kept(spaces: &[&Space]) -> Vec<String> {
    let of_nudge = ["namespaces/nudge-system", "secrets/nudge-system/"].map(str::to_owned);
    let of_spaces = spaces.iter().flat_map(|space| {
        ["namespaces/NAME", "pods/NAME/", "serviceaccounts/NAME/"].map(|prefix| prefix.replace("NAME", &space.name))
    });
    of_nudge.into_iter().chain(of_spaces).map(|prefix| format!("/registry/{prefix}")).collect()
}

#[tokio::test]
async fn a_cluster_that_lost_all_is_restored_and_nobody_is_notified() -> Result<()> {
    let Some(mut cluster) = Cluster::start(&Options::default()).await? else { return Ok(()) };
    let addresses = addresses()?;
    let (mut calm, mut moving, before, file, _folder);
    {
        let Some((installation, mut replica)) = control_plane(&cluster, addresses).await? else { return Ok(()) };
        calm = Shop::new(&installation, "calm", &at_once()).await?;
        calm.populate(addresses.1, 1).await?;
        calm.make("2").await?;
        calm.set(json!({"current": "2"})).await?;
        calm.until("2 is current", |status| status.phase == Phase::Current && status.current.as_deref() == Some("2"))
            .await?;
        // The first step is watched until somebody says otherwise.
        let rollout = json!({"steps": [{"pods": 1}], "minReadySeconds": 600, "bakeSeconds": 0});
        moving = Shop::new(&installation, "moving", &rollout).await?;
        moving.populate(addresses.1, 3).await?;
        moving.make("2").await?;
        moving.set(json!({"current": "2"})).await?;
        let step = |status: &VersionedConfigStatus| {
            status.rollout.stage == Some(RolloutStage::Moving)
                && status.rollout.step == 1
                && status.pods.summary == "3/3"
        };
        let status = moving.until("one pod runs 2", step).await?;
        before = (calm.until("it is at rest", |_| true).await?, status);
        ensure!(moving.assigned(&before.1).iter().flatten().filter(|it| *it == "2").count() == 1);
        (_folder, file) = export(&cluster, &[]).await?;
        replica.process.stop()?;
    }
    let notified = (calm.notified(), moving.notified());
    ensure!(notified.0 == [["2"]] && notified.1.concat() == ["2"], "{notified:?}");

    cluster.empty_etcd(&kept(&[&calm.space, &moving.space])).await?;
    let Some((_installation, replica)) = control_plane(&cluster, addresses).await? else { return Ok(()) };
    for shop in [&calm, &moving] {
        bind(&shop.space, "nudge-namespace").await?;
        ensure!(shop.space.api::<VersionedConfig>().get_opt("shop").await?.is_none());
    }
    // The agents hear that there is no such config.
    let polls = async || replica.metric("nudge_hub_polls_total").await.ok().filter(|polls| *polls >= 4.0).map(drop);
    eventually(LONG, "all agents have asked", polls).await?;

    let file = file.to_str().context("a path")?;
    let planned = ends(&cluster, 0, &["import", file, "--dry-run"]).await?.stdout;
    ensure!(planned.contains(&format!("create: VersionedConfig {}/shop", calm.space.name)), "{planned}");
    ensure!(calm.space.api::<VersionedConfig>().get_opt("shop").await?.is_none(), "a dry run changes nothing");
    let imported = ends(&cluster, 0, &["import", file]).await?;
    ensure!(imported.stdout.starts_with("imported 2 configs"), "{imported:?}");

    let runs = |of: &'static str| {
        move |status: &VersionedConfigStatus| status.observed_generation.is_some() && status.pods.summary == of
    };
    let after = (calm.until("it runs 2", runs("1/1")).await?, moving.until("it goes on", runs("3/3")).await?);
    for (shop, before, after) in [(&calm, &before.0, &after.0), (&moving, &before.1, &after.1)] {
        ensure!(shop.assigned(before) == shop.assigned(after), "{after:#?}");
        ensure!(
            (&before.identity, &before.current, &before.previous) == (&after.identity, &after.current, &after.previous)
        );
        ensure!((&before.target, before.rollout.stage) == (&after.target, after.rollout.stage), "{after:#?}");
        let thresholds = |status: &VersionedConfigStatus| (status.rollout.threshold, status.rollout.workloads.clone());
        ensure!(thresholds(before) == thresholds(after) && before.rollout.revision == after.rollout.revision);
    }
    ensure!((calm.notified(), moving.notified()) == notified, "{:?} {:?}", calm.notified(), moving.notified());
    ensure!(calm.space.api::<ConfigMap>().get("shop").await?.data.context("no data")?["number"] == "2");

    // The rollout goes on where it was: each pod is notified of 2 once.
    moving.set(json!({"rollout": {"minReadySeconds": 0}})).await?;
    moving
        .until("2 is current", |status| status.phase == Phase::Current && status.current.as_deref() == Some("2"))
        .await?;
    let once = async || moving.notified().iter().all(|all| *all == ["2"]).then_some(());
    eventually(LONG, "each pod was notified once", once)
        .await
        .map_err(|error| error.context(format!("{:?}", moving.notified())))?;
    ensure!(calm.notified() == notified.0);
    // What moved on is not overwritten; what is as it was is there already.
    let refused = ends(&cluster, 1, &["import", file]).await?;
    let differs = format!(
        "VersionedConfig {}/shop exists and differs: spec; status.current: 1 in the export, 2 in",
        moving.space.name
    );
    ensure!(refused.stdout.contains(&differs) && refused.stderr.contains("nothing was changed"), "{refused:?}");
    Ok(())
}
