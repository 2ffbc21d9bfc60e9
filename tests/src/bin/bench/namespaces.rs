//! `bench namespaces`: what watches of many enabled namespaces cost, with rights bound in each of them and with rights for the cluster.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::Cluster;
use nudge_tests::cluster::installation::{ACCOUNT, Installation, NAMESPACE, injected_pod};
use nudge_tests::procfs::{self, Memory};
use serde_json::json;

use crate::control_plane::{self, ControlPlane};
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Unit, float};

/// Namespaces that are made at the same time.
const CLIENTS: usize = 16;

#[derive(Args)]
pub(crate) struct Options {
    /// Enabled namespaces, one measurement for each number
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 300])]
    namespaces: Vec<usize>,
    /// Pods with an agent in each
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// How long each is watched
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    control_plane: ControlPlane,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What one replica costs.
struct Cost {
    ready: Duration,
    sockets: usize,
    memory: Memory,
    processor: Duration,
    watches: f64,
    lists: f64,
    failures: f64,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let cluster = control_plane::cluster().await?;
    let installation = control_plane::install(&cluster).await?;
    allow_cluster_reads(&cluster).await?;
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}; in each namespace 1 config, 1 version and {} pods with an agent; no Secrets. Each measured for {} s after it was ready; beside it the same with --reads=cluster",
        cluster.version(), options.pods, options.seconds
    ));
    let (mut made, mut counts) = (0, options.namespaces.clone());
    counts.sort_unstable();
    for count in counts {
        progress(&format!("{count} namespaces"));
        let mut making = stream::iter(made..count).map(|_| fill(&installation, options.pods)).buffer_unordered(CLIENTS);
        while let Some(one) = making.next().await {
            one?;
        }
        drop(making);
        made = count;
        let own = cost(&installation, &options, "namespaces").await?;
        let wide = cost(&installation, &options, "cluster").await?;
        let mut row = |what: &str, unit, value: fn(&Cost) -> f64| {
            let row = Row::new(format!("{count} namespaces: {what}"), unit, value(&own));
            report.row(row.beside("cluster", value(&wide)));
        };
        row("until ready", Unit::Millis, |cost| cost.ready.as_secs_f64() * 1000.0);
        row("sockets", Unit::Count, |cost| float(cost.sockets as u64));
        row("RssAnon", Unit::Kib, |cost| float(cost.memory.rss_anon) / 1024.0);
        row("VmRSS", Unit::Kib, |cost| float(cost.memory.vm_rss) / 1024.0);
        row("processor in that time", Unit::Millis, |cost| cost.processor.as_secs_f64() * 1000.0);
        row("watches begun in that time", Unit::Count, |cost| cost.watches);
        row("lists, all in all", Unit::Count, |cost| cost.lists);
        row("failures", Unit::Count, |cost| cost.failures);
    }
    report.print(options.json)
}

async fn cost(installation: &Installation<'_>, options: &Options, reads: &str) -> Result<Cost> {
    let mut replica_options = options.control_plane.replica_options()?;
    replica_options.arguments.push(format!("--reads={reads}"));
    let began = Instant::now();
    let mut replica = installation.replica(&replica_options).await?;
    let (ready, pid) = (began.elapsed(), replica.process.pid());
    let before = (procfs::cpu_time(pid)?, replica.metric("nudge_watches_total").await?);
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let cost = Cost {
        ready,
        sockets: procfs::sockets(pid)?,
        memory: procfs::memory(pid)?,
        processor: procfs::cpu_time(pid)?.saturating_sub(before.0),
        watches: replica.metric("nudge_watches_total").await? - before.1,
        lists: replica.metric("nudge_watch_lists_total").await?,
        failures: replica.metric("nudge_watch_failures_total").await?,
    };
    replica.process.stop()?;
    Ok(cost)
}

async fn fill(installation: &Installation<'_>, pods: usize) -> Result<()> {
    let space = installation.enabled("many").await?;
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": {}})).await?;
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1"});
    let version =
        json!({"metadata": {"name": "shop-1", "labels": labels}, "immutable": true, "data": {"key": "value"}});
    space.create_object::<ConfigMap>(version).await?;
    for number in 0..pods {
        injected_pod(&space, &format!("web-{number}"), "shop").await?;
    }
    Ok(())
}

/// What deploy/components/cluster-reads allows.
async fn allow_cluster_reads(cluster: &Cluster) -> Result<()> {
    let (admin, post) = (cluster.admin().await?, PostParams::default());
    let read = json!(["get", "list", "watch"]);
    let role = json!({"metadata": {"name": "bench-reads"}, "rules": [
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": read},
        {"apiGroups": [""], "resources": ["configmaps", "pods", "serviceaccounts"], "verbs": read},
    ]});
    Api::<ClusterRole>::all(admin.clone()).create(&post, &serde_json::from_value(role)?).await?;
    let binding = json!({"metadata": {"name": "bench-reads"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench-reads"}});
    Api::<ClusterRoleBinding>::all(admin).create(&post, &serde_json::from_value(binding)?).await?;
    Ok(())
}
