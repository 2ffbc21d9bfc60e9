//! `bench sources`: memory of the role sources with as many sources as its bounds let in, while nothing that it reads
//! can be sealed, so that content fills its bound. The programs that fetch have bounds of their own, which the kernel
//! keeps (`nudge_git::PROCESS_MIB`).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use kube::Api;
use kube::api::ListParams;
use nix::sys::signal::Signal;
use nudge_api::{ConditionType, ConfigSource, VersionedConfig, find_condition};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::bind;
use nudge_tests::procfs;
use nudge_tests::servers::git_repository::Repository;
use nudge_tests::servers::git_server::GitServer;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::control_plane::{self, ControlPlane};
use crate::crowd::make;
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};

/// The memory that is allowed for the process itself and content that is not sealed, in MiB: the limit of the pod
/// without what is for fetches.
const ALLOWED_MIB: f64 = 768.0;
/// Namespaces, and those of them with large content.
const NAMESPACES: usize = 10;
const LARGE_NAMESPACES: usize = 4;
/// How long it is watched after the last change of what its sources say.
const WATCH_DURATION: Duration = Duration::from_secs(20);
const WAIT_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Args)]
pub(crate) struct Options {
    /// Sources of each namespace; the role takes 100
    #[arg(long, default_value_t = 100)]
    sources: usize,
    /// KiB of the content of each source in the namespaces with large content; the role keeps 64 MiB of a namespace
    #[arg(long, default_value_t = 700)]
    kib: usize,
    #[command(flatten)]
    control_plane: ControlPlane,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let replica_options = options.control_plane.replica_options()?;
    let cluster = control_plane::cluster().await?;
    let installation = control_plane::install(&cluster).await?;
    let replica = installation.guarded_replica_with(replica_options.clone()).await?;
    installation.apply_sources().await?;
    let server = GitServer::start_outside("").await?.context("no git server")?;
    let mut spaces = Vec::new();
    for number in 0..NAMESPACES {
        let space = installation.enabled(&format!("sources-{number}")).await?;
        let kib = if number < LARGE_NAMESPACES { options.kib } else { 1 };
        progress(&format!("{} sources of {kib} KiB in namespace {}", options.sources, number + 1));
        prepare(&space, &server, options.sources, kib * 1024).await?;
        spaces.push(space);
    }
    // From now on no version can be made, and no source changed.
    replica.signal(Signal::SIGSTOP)?;
    let sources = installation.sources(&replica_options).await?;
    let empty = procfs::memory(sources.process.pid())?;
    let (mut highest, mut looked, began) = (empty.peak, Instant::now(), Instant::now());
    let mut refused = 0;
    while looked.elapsed() < WATCH_DURATION || refused == 0 {
        if began.elapsed() > WAIT_TIMEOUT {
            bail!("no source is refused for want of room, or memory grows: {:?}", reasons(&spaces[0].api()).await?);
        }
        sleep(Duration::from_secs(1)).await;
        let peak = procfs::memory(sources.process.pid())?.peak;
        let mut now_refused = 0;
        for space in &spaces[..LARGE_NAMESPACES] {
            now_refused += reasons(&space.api()).await?.get("OverLimit").copied().unwrap_or_default();
        }
        if peak > highest || now_refused != refused {
            (highest, refused, looked) = (peak, now_refused, Instant::now());
        }
    }
    replica.signal(Signal::SIGCONT)?;
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, {NAMESPACES} namespaces of {} sources, in {LARGE_NAMESPACES} of them of {} KiB each; {refused} sources say that \
         there is no room for their content",
        cluster.version(),
        options.sources,
        options.kib
    ));
    let mib = |bytes: u64| float(bytes) / 1024.0 / 1024.0;
    let row = Row::new("VmHWM of the role sources", Unit::Mib, mib(highest)).beside("at its start", mib(empty.peak));
    report.row(row.target(Target::AtMost(ALLOWED_MIB)));
    report.print(options.json)
}

/// One repository for the namespace, with a file of this size, and configs each with a source of it.
async fn prepare(space: &TestNamespace, server: &GitServer, count: usize, bytes: usize) -> Result<()> {
    bind(space, "nudge-sources").await?;
    let repository = Repository::new(server.root(), &space.name)?;
    repository.write("content/key", "x".repeat(bytes))?;
    repository.commit("the content")?;
    let git = json!({"url": server.url(&format!("open/{}", space.name)), "path": "content", "ca": server.ca()});
    make::<VersionedConfig>(space, count, |number| {
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": format!("config-{number}")}, "spec": {}})
    })
    .await?;
    make::<ConfigSource>(space, count, |number| {
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": format!("config-{number}")},
            "spec": {"from": {"git": git}, "debounceSeconds": 0, "minPeriodSeconds": 0}})
    })
    .await
    .with_context(|| format!("in namespace {}", space.name))
}

/// Returns how many sources of a namespace say what.
async fn reasons(api: &Api<ConfigSource>) -> Result<BTreeMap<String, usize>> {
    let mut reasons = BTreeMap::new();
    for source in api.list(&ListParams::default()).await?.items {
        let conditions = source.status.map(|status| status.conditions).unwrap_or_default();
        let ready = find_condition(&conditions, ConditionType::Ready);
        *reasons.entry(ready.map_or_else(|| "none".to_owned(), |ready| ready.reason.clone())).or_default() += 1;
    }
    Ok(reasons)
}
