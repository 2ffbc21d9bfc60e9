//! `bench source`: from a write of a living ConfigMap to the sealed version that a source makes of it, and to the
//! application's signal handler, through a real API server with the webhooks, compared with the raw watch events of
//! that ConfigMap in the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::{ConfigSource, VersionedConfig};
use nudge_tests::clock::Monotonic;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{at_once, bind};
use nudge_tests::cluster::sources::may_read;
use nudge_tests::{Pod, binary, eventually};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::activation::{
    ACTIVATION_INTERVAL, CONFIG, DICTIONARY_BYTES, Seen, WAIT_TIMEOUT, next, pod_log, rows, subscribe, watch,
};
use crate::control_plane::{self, ControlPlane};
use crate::payload::entries;
use crate::progress;
use crate::report::Report;
use crate::samples::Samples;
use crate::subscriber::Reports;

/// The object that changes.
const LIVING: &str = "living";

#[derive(Args)]
pub(crate) struct Options {
    /// How many changes for each debounceSeconds
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// What `spec.debounceSeconds` of the source is, one after another
    #[arg(long, value_delimiter = ',', default_value = "2,0")]
    debounce: Vec<u32>,
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
    let replica = installation.guarded_replica_with(replica_options.clone()).await?;
    installation.apply_sources().await?;
    let _sources = installation.sources(&replica_options).await?;
    let space = installation.enabled("bench").await?;
    bind(&space, "nudge-sources").await?;
    prepare(&space).await?;

    let (reports, _subscriber, mut pod) = subscribe(&space, format!("https://{}", replica.hub), agent).await?;
    pod.start().await?;
    let (watched, living) = (watch(space.api(), 1).await?, watch_living(space.api()).await?);
    let mut way = Way { watched, living, reports, pod };
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, one replica and the role sources, one agent, {DICTIONARY_BYTES} bytes; the floor is a watch of the same ConfigMap by a \
         client that does nothing else",
        cluster.version()
    ));
    for &debounce in &options.debounce {
        progress(&format!("changes with a debounce of {debounce} s: {}", options.count));
        let spec = json!({"spec": {"debounceSeconds": debounce}});
        space.api::<ConfigSource>().patch(CONFIG, &PatchParams::default(), &Patch::Merge(&spec)).await?;
        let mut times = Times::default();
        for number in 0..options.count {
            tokio::time::sleep(ACTIVATION_INTERVAL).await;
            let changed = way.change(&space, &format!("{debounce} {number}"), &mut times).await;
            if let Err(error) = changed {
                let source = space.api::<ConfigSource>().get(CONFIG).await?.status;
                let config = space.api::<VersionedConfig>().get(CONFIG).await?.status;
                return Err(
                    error.context(format!("change {number}; the source says {source:?}, the config {config:?}"))
                );
            }
        }
        times.show(debounce, &mut report);
    }
    if let Some(path) = options.save {
        std::fs::write(&path, report.json()?).with_context(|| format!("can't write {}", path.display()))?;
    }
    report.print(options.json)
}

/// The ConfigMap and its source, of which the first version is current.
async fn prepare(space: &TestNamespace) -> Result<()> {
    let config = json!({
        "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": CONFIG}, "spec": {"rollout": at_once()},
    });
    space.create_object::<VersionedConfig>(config).await?;
    may_read(space, "configmaps", LIVING).await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": LIVING}, "data": data("first")})).await?;
    let spec = json!({"from": {"configMap": {"name": LIVING}}, "minPeriodSeconds": 0});
    let source =
        json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": CONFIG}, "spec": spec});
    space.create_object::<ConfigSource>(source).await?;
    let configs = space.api::<VersionedConfig>();
    let current = async || {
        let config = configs.get(CONFIG).await.ok()?;
        (config.spec.version.is_some() && config.spec.version == config.status?.current_version).then_some(())
    };
    eventually(WAIT_TIMEOUT, "the first version is current", current).await
}

fn data(value: &str) -> BTreeMap<String, String> {
    entries(value, DICTIONARY_BYTES).into_iter().collect()
}

/// When the ConfigMap had which resourceVersion, as a raw watch shows it.
type Living = mpsc::UnboundedReceiver<(Monotonic, Option<String>)>;

async fn watch_living(api: Api<ConfigMap>) -> Result<Living> {
    let mut since = api.get(LIVING).await?.resource_version().unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let params = WatchParams::default().fields(&format!("metadata.name={LIVING}")).timeout(290);
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
    living: Living,
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
        let patched = space.api::<ConfigMap>().patch(LIVING, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let since = |at: Monotonic| at.since(began).as_secs_f64() * 1e3;
        let read = async {
            loop {
                let (at, version) = self.living.recv().await.context("the watch has ended")?;
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
    fn show(self, debounce: u32, report: &mut Report) {
        let raw = Samples::new(self.raw);
        let what = |end: &str| format!("debounce {debounce} s: ConfigMap changed to {end}");
        rows(report, &what("version sealed"), &Samples::new(self.sealed), &raw, None);
        rows(report, &what("handler"), &Samples::new(self.handled), &raw, None);
    }
}
