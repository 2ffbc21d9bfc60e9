//! `bench text`: from a write of the ConfigMap that a config follows to the sealed version of it, and to the
//! application's signal handler, through a real API server with the webhooks, compared with the raw watch events of
//! that ConfigMap in the same run. Moves to texts begin a minute apart, so this takes a minute for each change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_tests::clock::Monotonic;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::at_once;
use nudge_tests::{Pod, binary, eventually};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::activation::{CONFIG, DICTIONARY_BYTES, Seen, WAIT_TIMEOUT, next, pod_log, rows, subscribe, watch};
use crate::control_plane::{self, ControlPlane};
use crate::payload::entries;
use crate::progress;
use crate::report::Report;
use crate::samples::Samples;
use crate::subscriber::Reports;

/// The time between two changes: that between moves to texts, and a little more.
const CHANGE_INTERVAL: Duration = Duration::from_secs(62);

#[derive(Args)]
pub(crate) struct Options {
    /// How many changes
    #[arg(long, default_value_t = 30)]
    count: usize,
    /// The agent's program, instead of building its release
    #[arg(long)]
    agent: Option<PathBuf>,
    #[command(flatten)]
    control_plane: ControlPlane,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the JSON to this file
    #[arg(long)]
    save: Option<PathBuf>,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    let replica_options = options.control_plane.replica_options()?;
    let agent = match &options.agent {
        Some(agent) => agent.clone(),
        None => binary::release()?,
    };
    let cluster = control_plane::cluster().await?;
    let installation = control_plane::install(&cluster).await?;
    let replica = installation.guarded_replica_with(replica_options).await?;
    let space = installation.enabled("bench").await?;
    prepare(&space).await?;

    let (reports, _subscriber, mut pod) = subscribe(&space, format!("https://{}", replica.hub), agent).await?;
    pod.start().await?;
    let (watched, map) = (watch(space.api(), 1).await?, watch_map(space.api()).await?);
    let mut way = Way { watched, map, reports, pod };
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, one replica, one agent, {DICTIONARY_BYTES} bytes; the floor is a watch of the same ConfigMap by a \
         client that does nothing else",
        cluster.version()
    ));
    progress(&format!("changes: {}", options.count));
    let mut times = Times::default();
    for number in 0..options.count {
        tokio::time::sleep(CHANGE_INTERVAL).await;
        if let Err(error) = way.change(&space, &number.to_string(), &mut times).await {
            let config = space.api::<VersionedConfig>().get(CONFIG).await?.status;
            return Err(error.context(format!("change {number}; the config says {config:?}")));
        }
    }
    times.show(&mut report);
    if let Some(path) = options.save {
        std::fs::write(&path, report.json()?).with_context(|| format!("can't write {}", path.display()))?;
    }
    report.print(options.json)
}

/// The ConfigMap and its config, of which the first version is current.
async fn prepare(space: &TestNamespace) -> Result<()> {
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": CONFIG},
        "spec": {"rollout": at_once(), "objects": ["ConfigMap"]},
    });
    space.create_object::<VersionedConfig>(config).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": CONFIG}, "data": data("first")})).await?;
    let configs = space.api::<VersionedConfig>();
    let current = async || configs.get(CONFIG).await.ok()?.status?.current_version.map(drop);
    eventually(WAIT_TIMEOUT, "the first version is current", current).await
}

fn data(value: &str) -> BTreeMap<String, String> {
    entries(value, DICTIONARY_BYTES).into_iter().collect()
}

/// When the ConfigMap had which resourceVersion, as a raw watch shows it.
type MapWatch = mpsc::UnboundedReceiver<(Monotonic, Option<String>)>;

async fn watch_map(api: Api<ConfigMap>) -> Result<MapWatch> {
    let mut since = api.get(CONFIG).await?.resource_version().unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let params = WatchParams::default().fields(&format!("metadata.name={CONFIG}")).timeout(290);
        loop {
            let mut events = Box::pin(api.watch(&params, &since).await?);
            while let Some(event) = events.try_next().await? {
                let at = Monotonic::now();
                if let WatchEvent::Modified(map) = event {
                    since = map.resource_version().unwrap_or(since);
                    if sender.send((at, Some(since.clone()))).is_err() {
                        return Ok::<_, anyhow::Error>(());
                    }
                }
            }
        }
    });
    Ok(receiver)
}

/// All that shows how far a change has come.
struct Way {
    watched: mpsc::UnboundedReceiver<Seen>,
    map: MapWatch,
    reports: Reports,
    pod: Pod,
}

/// The times in milliseconds from the patch.
#[derive(Default)]
struct Times {
    raw: Vec<f64>,
    sealed: Vec<f64>,
    handled: Vec<f64>,
}

impl Way {
    async fn change(&mut self, space: &TestNamespace, value: &str, times: &mut Times) -> Result<()> {
        self.reports.drain();
        let mut known = BTreeSet::new();
        let config = space.api::<VersionedConfig>().get(CONFIG).await?;
        known.extend(config.status.iter().flat_map(|status| &status.versions).map(|known| known.version.clone()));
        let patch = json!({"data": data(value)});
        let began = Monotonic::now();
        let patched = space.api::<ConfigMap>().patch(CONFIG, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let since = |at: Monotonic| at.since(began).as_secs_f64() * 1e3;
        let read = async {
            loop {
                let (at, version) = self.map.recv().await.context("the watch has ended")?;
                if version == patched.metadata.resource_version {
                    return Ok::<_, anyhow::Error>(at);
                }
            }
        };
        times.raw.push(since(timeout(WAIT_TIMEOUT, read).await.context("the raw watch shows nothing")??));
        let new = |read: &Seen| read.sealed.iter().find(|version| !known.contains(*version)).cloned();
        let sealed = next(&mut self.watched, |read| new(read).is_some()).await.context("the seal")?;
        times.sealed.push(since(sealed.at));
        let entered = self.reports.next(WAIT_TIMEOUT).await.with_context(|| pod_log(&mut self.pod))?;
        times.handled.push(since(entered));
        let version = new(&sealed);
        next(&mut self.watched, |read| read.current == version && read.rests).await.map(drop).context("the end")
    }
}

impl Times {
    fn show(self, report: &mut Report) {
        let raw = Samples::new(self.raw);
        let what = |end: &str| format!("ConfigMap changed to {end}");
        rows(report, &what("version sealed"), &Samples::new(self.sealed), &raw, None);
        rows(report, &what("handler"), &Samples::new(self.handled), &raw, None);
    }
}
