//! `bench namespaces`: the cost of watches of many enabled namespaces for each role, with rights bound in each
//! namespace and with rights for the cluster, compared with one process with all roles.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::injected_pod;
use nudge_tests::procfs::{self, Memory};
use nudge_tests::{Apart, Installation, Replica};
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

/// What one process costs.
struct Cost {
    sockets: usize,
    memory: Memory,
    processor: Duration,
    /// None where the process has no endpoint for metrics: it watches nothing.
    watches: Option<Watches>,
}

/// What a process says of its watches.
#[derive(Clone, Copy)]
struct Watches {
    open: f64,
    begun: f64,
    lists: f64,
    failures: f64,
}

impl Watches {
    async fn of(replica: &Replica) -> Result<Self> {
        Ok(Self {
            open: replica.metric("nudge_watches_open").await?,
            begun: replica.metric("nudge_watches_total").await?,
            lists: replica.metric("nudge_watch_lists_total").await?,
            failures: replica.metric("nudge_watch_failures_total").await?,
        })
    }
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let cluster = control_plane::cluster().await?;
    let installation = control_plane::install(&cluster).await?;
    installation.apply_file("components/cluster-reads/rbac.yaml").await?;
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}; in each namespace 1 config, 1 version and {} pods with an agent; no Secrets. A process for each role, and beside each the one process that has all roles. Each watched for {} s after it was ready",
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
        for reads in ["namespaces", "cluster"] {
            measure(&installation, &options, count, reads, &mut report).await?;
        }
    }
    report.print(options.json)
}

/// Adds the rows of this many namespaces, read like this.
async fn measure(
    installation: &Installation<'_>,
    options: &Options,
    count: usize,
    reads: &str,
    report: &mut Report,
) -> Result<()> {
    let mut replica_options = options.control_plane.replica_options()?;
    replica_options.arguments.push(format!("--reads={reads}"));
    let seconds = Duration::from_secs(options.seconds);

    let began = Instant::now();
    let mut replica = installation.replica(&replica_options).await?;
    let one_ready = began.elapsed();
    let one = cost(&replica, seconds).await?;
    replica.process.stop()?;

    let began = Instant::now();
    let Apart { mut control, mut hub, mut certs } = installation.apart(&replica_options).await?;
    let ready = began.elapsed();
    let roles = tokio::try_join!(cost(&control, seconds), cost(&hub, seconds), cost(&certs, seconds))?;
    for replica in [&mut control, &mut hub, &mut certs] {
        replica.process.stop()?;
    }
    // Nobody answers them any more, and more namespaces are to be filled.
    let webhooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    let deleted = installation.cluster.kubectl(&["delete", webhooks, "nudge-injector"]).await?;
    ensure!(deleted.is_some_and(|done| done.code == Some(0)), "the webhooks can't be deleted");

    let title = format!("{count} namespaces, --reads={reads}");
    let mut row = |what: &str, unit, value: f64, peer: f64| {
        report.row(Row::new(format!("{title}: {what}"), unit, value).beside("one process", peer));
    };
    row("until all are ready", Unit::Millis, millis(ready), millis(one_ready));
    for (role, cost) in [("control", roles.0), ("hub", roles.1), ("certs", roles.2)] {
        let kib = |bytes: u64| float(bytes) / 1024.0;
        row(&format!("{role}: sockets"), Unit::Count, float(cost.sockets as u64), float(one.sockets as u64));
        row(&format!("{role}: RssAnon"), Unit::Kib, kib(cost.memory.rss_anon), kib(one.memory.rss_anon));
        row(&format!("{role}: VmRSS"), Unit::Kib, kib(cost.memory.vm_rss), kib(one.memory.vm_rss));
        let processor = (millis(cost.processor), millis(one.processor));
        row(&format!("{role}: processor in that time"), Unit::Millis, processor.0, processor.1);
        let (Some(watches), Some(of_one)) = (cost.watches, one.watches) else { continue };
        row(&format!("{role}: watches open"), Unit::Count, watches.open, of_one.open);
        row(&format!("{role}: watches begun in that time"), Unit::Count, watches.begun, of_one.begun);
        row(&format!("{role}: lists, all in all"), Unit::Count, watches.lists, of_one.lists);
        row(&format!("{role}: failures, all in all"), Unit::Count, watches.failures, of_one.failures);
    }
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Watches a process for a while.
async fn cost(replica: &Replica, during: Duration) -> Result<Cost> {
    let pid = replica.process.pid();
    // The role certs listens to nobody.
    let watches = async || if replica.health.port() == 0 { Ok(None) } else { Watches::of(replica).await.map(Some) };
    let (before, processor) = (watches().await?, procfs::cpu_time(pid)?);
    tokio::time::sleep(during).await;
    let after = watches().await?;
    Ok(Cost {
        sockets: procfs::sockets(pid)?,
        memory: procfs::memory(pid)?,
        processor: procfs::cpu_time(pid)?.saturating_sub(processor),
        watches: after.zip(before).map(|(after, before)| Watches { begun: after.begun - before.begun, ..after }),
    })
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
