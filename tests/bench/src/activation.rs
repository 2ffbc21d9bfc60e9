//! `bench activation`: from `spec.version` to the application's signal handler, and from a ConfigMap to a sealed
//! version, through a real API server, compared with the raw watch events of the same server in the same run.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_tests::clock::Monotonic;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{agent_token, at_once, create_part, hub_ca, injected_pod};
use nudge_tests::{Pod, Process, ReplicaOptions, binary, eventually};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::payload::entries;
use crate::report::Report;
use crate::row::{Row, Target, Unit};
use crate::samples::Samples;
use crate::subscriber::Reports;
use crate::{control_plane, progress};

pub(crate) const CONFIG: &str = "shop";
pub(crate) const DICTIONARY_BYTES: usize = 4 * 1024;
/// What an activation may take longer than the raw watch event.
const ALLOWED_MS: f64 = 15.0;
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The time between two activations: a configuration changes when all is quiet.
pub(crate) const ACTIVATION_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(crate) struct Options {
    /// How many activations
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What a raw watch has shown, and when.
pub(crate) struct Seen {
    pub(crate) at: Monotonic,
    pub(crate) requested: Option<String>,
    pub(crate) current: Option<String>,
    pub(crate) sealed: Vec<String>,
    /// No pod is moved.
    pub(crate) rests: bool,
}

pub(crate) async fn run(options: Options) -> Result<()> {
    progress("building the agent and the control plane, unless they are up to date");
    let (agent, injector) = (binary::release()?, binary::release_injector()?);
    let cluster = control_plane::cluster().await?;
    let installation = control_plane::install(&cluster).await?;
    let options_of = ReplicaOptions { binary: Some(injector), ..ReplicaOptions::default() };
    let replica = installation.replica(&options_of).await?;
    let space = installation.enabled("bench").await?;

    let spec = json!({"version": version(0), "rollout": at_once()});
    let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": CONFIG}, "spec": spec});
    space.create_object::<VersionedConfig>(object).await?;
    for number in 0..2 {
        create(&space, &version(number)).await?;
    }
    let (mut reports, _subscriber, mut pod) = subscribe(&space, format!("https://{}", replica.hub), agent).await?;
    pod.start().await?;
    let mut watched = watch(space.api(), 2).await?;
    let mut maps = watch_maps(space.api()).await?;

    progress(&format!("activations: {}", options.count));
    let (mut handled, mut decided, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    let api = space.api::<VersionedConfig>();
    for number in 0..options.count {
        tokio::time::sleep(ACTIVATION_INTERVAL).await;
        reports.drain();
        let requested = version((number + 1) % 2);
        let patch = json!({"spec": {"version": requested}});
        let began = Monotonic::now();
        api.patch(CONFIG, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        let seen = next(&mut watched, |seen| seen.requested.as_ref() == Some(&requested)).await?;
        raw.push(seen.at.since(began).as_secs_f64() * 1e3);
        let seen = next(&mut watched, |seen| seen.current.as_ref() == Some(&requested)).await?;
        decided.push(seen.at.since(began).as_secs_f64() * 1e3);
        let entered = reports.next(WAIT_TIMEOUT).await.with_context(|| pod_log(&mut pod))?;
        handled.push(entered.since(began).as_secs_f64() * 1e3);
    }

    // A config holds 50.
    let count = options.count.min(40);
    progress(&format!("new versions: {count}"));
    let (mut sealed, mut created) = (Vec::new(), Vec::new());
    for number in 0..count {
        tokio::time::sleep(ACTIVATION_INTERVAL).await;
        let name = version(number + 2);
        let began = Monotonic::now();
        create(&space, &name).await?;
        let seen = timeout(WAIT_TIMEOUT, maps.recv()).await?.context("the watch has ended")?;
        created.push(seen.since(began).as_secs_f64() * 1e3);
        let seen = next(&mut watched, |seen| seen.sealed.contains(&name)).await?;
        sealed.push(seen.at.since(began).as_secs_f64() * 1e3);
    }

    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, one replica, one agent, {DICTIONARY_BYTES} bytes; the floor is a watch of the same object by a client that does nothing else",
        cluster.version()
    ));
    let raw = Samples::new(raw);
    rows(&mut report, "spec.version to status.currentVersion", &Samples::new(decided), &raw, None);
    rows(&mut report, "spec.version to handler", &Samples::new(handled), &raw, Some(ALLOWED_MS));
    rows(&mut report, "ConfigMap created to version sealed", &Samples::new(sealed), &Samples::new(created), None);
    report.print(options.json)
}

pub(crate) fn rows(report: &mut Report, what: &str, ours: &Samples, raw: &Samples, allowed: Option<f64>) {
    let row = |name: &str, value: fn(&Samples) -> f64| {
        Row::new(format!("{what}: {name}"), Unit::Millis, value(ours)).beside("raw watch", value(raw))
    };
    report.row(row("p50", Samples::median));
    let p99 = row("p99", |samples| samples.percentile(99));
    report.row(match allowed {
        Some(allowed) => p99.target(Target::PeerPlus(allowed)),
        None => p99,
    });
    report.row(row("max", Samples::max));
}

fn version(number: usize) -> String {
    format!("1.0.{number}")
}

async fn create(space: &TestNamespace, version: &str) -> Result<()> {
    let data: std::collections::BTreeMap<String, String> = entries(version, DICTIONARY_BYTES).into_iter().collect();
    let object = json!({
        "metadata": {"name": format!("{CONFIG}-{version}"), "labels": {"nudge.dev/config": CONFIG, "nudge.dev/version": version}},
        "immutable": true, "data": data,
    });
    create_part::<ConfigMap>(space, object).await.map(drop)
}

/// Returns a pod whose container is a subscriber, ready for its agent.
pub(crate) async fn subscribe(
    space: &TestNamespace,
    hub: String,
    agent: std::path::PathBuf,
) -> Result<(Reports, Process, Pod)> {
    let object = injected_pod(space, "web", CONFIG).await?;
    let mut pod = Pod::of(hub, &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.binary = Some(agent);
    let mut reports = Reports::create(pod.path("reports"))?;
    let command = reports.subscriber()?;
    let (program, arguments) = command.split_first().context("no command")?;
    let subscriber = Process::spawn("the subscriber", Command::new(program).args(arguments))?;
    reports.next(WAIT_TIMEOUT).await.context("the start of the subscriber")?;
    let pod = pod.with(&["--notify", "app=SIGUSR1", "--process", &format!("app={}", subscriber.pid())]);
    Ok((reports, subscriber, pod))
}

pub(crate) fn pod_log(pod: &mut Pod) -> String {
    pod.explain(&anyhow::anyhow!("the handler was not entered")).to_string()
}

pub(crate) async fn next(
    watched: &mut mpsc::UnboundedReceiver<Seen>,
    expected: impl Fn(&Seen) -> bool,
) -> Result<Seen> {
    let find = async {
        loop {
            let seen = watched.recv().await.context("the watch has ended")?;
            if expected(&seen) {
                return Ok(seen);
            }
        }
    };
    timeout(WAIT_TIMEOUT, find).await.context("the watch shows nothing")?
}

/// Watches the config, once it has this many versions.
pub(crate) async fn watch(api: Api<VersionedConfig>, versions: usize) -> Result<mpsc::UnboundedReceiver<Seen>> {
    let first = eventually(WAIT_TIMEOUT, "the first version is current", async || {
        let config = api.get(CONFIG).await.ok()?;
        (config.status.as_ref()?.versions.len() == versions).then_some(config)
    });
    let mut since = first.await?.resource_version().unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut events = Box::pin(api.watch(&WatchParams::default().timeout(290), &since).await?);
            while let Some(event) = events.try_next().await? {
                let at = Monotonic::now();
                if let WatchEvent::Modified(config) = event {
                    since = config.resource_version().unwrap_or(since);
                    let current = config.status.as_ref().and_then(|status| status.current_version.clone());
                    let versions = config.status.iter().flat_map(|status| &status.versions);
                    let sealed = versions.map(|version| version.version.clone()).collect();
                    let rests = config.status.is_some_and(|status| status.rollout.stage.is_none());
                    if sender.send(Seen { at, requested: config.spec.version, current, sealed, rests }).is_err() {
                        return Ok::<_, anyhow::Error>(());
                    }
                }
            }
        }
    });
    Ok(receiver)
}

/// Watches for new ConfigMaps.
async fn watch_maps(api: Api<ConfigMap>) -> Result<mpsc::UnboundedReceiver<Monotonic>> {
    let since = api.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let params = WatchParams::default().timeout(290).labels("nudge.dev/config");
        let mut events = Box::pin(api.watch(&params, &since).await?);
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Added(_)) && sender.send(Monotonic::now()).is_err() {
                break;
            }
        }
        Ok::<_, anyhow::Error>(())
    });
    Ok(receiver)
}
