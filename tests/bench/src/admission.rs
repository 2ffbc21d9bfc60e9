//! `bench admission`: pods that opt in, created by dry runs as fast as the machine allows, through a real API server;
//! compared with pods that bypass Nudge, in the same run.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::hub_ca;
use nudge_tests::{Cluster, Raw, Replica, agent::tls, eventually};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::control_plane::{self, ControlPlane};
use crate::payload::entries;
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};
use crate::samples::Samples;

/// How long things may take to begin.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// What the webhook itself may take.
const ALLOWED_MS: f64 = 5.0;
/// The number of admissions a second that the webhook must bear.
const WANTED_PER_SECOND: f64 = 100.0;
/// The time between two direct calls: a client that sees every state of the load and adds little to it.
const CALL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct Options {
    /// How long pods are created with the webhook; without it half as long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Clients at the same time
    #[arg(long, default_value_t = 20)]
    clients: usize,
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
    let replica = installation.guarded_replica_with(replica_options).await?;
    let space = installation.enabled("bench").await?;
    prepare(&space).await?;
    let load = Load { cluster: &cluster, space: &space, clients: options.clients };
    let (opted_in, plain) = (pod(true), pod(false));
    let injected = async || {
        let result = space.api::<Pod>().create(&dry(), &serde_json::from_value(opted_in.clone()).ok()?).await.ok()?;
        result.metadata.labels?.contains_key("nudge.dev/agent").then_some(())
    };
    eventually(START_TIMEOUT, "pods are injected", injected).await?;

    let with = Duration::from_secs(options.seconds);
    progress(&format!("{} clients, {} s, pods that opt in", options.clients, with.as_secs()));
    let authority = cluster.folder().join("hub-ca.crt");
    std::fs::write(&authority, hub_ca(&space).await?)?;
    let before = Histogram::read(&replica).await?;
    let end = Instant::now() + with;
    let direct = direct(replica.admission, &authority, &space.name, &opted_in, end);
    let (asked, direct) = tokio::try_join!(load.run(&opted_in, end), direct)?;
    let own = Histogram::read(&replica).await?.since(&before);
    ensure!(own.count >= asked.len() as u64, "the webhook was asked {} times for {} pods", own.count, asked.len());

    let without = with / 2;
    progress(&format!("{} clients, {} s, pods that do not opt in", options.clients, without.as_secs()));
    let floor = load.run(&plain, Instant::now() + without).await?;

    let rate = |samples: &[f64], time: Duration| float(samples.len() as u64) / time.as_secs_f64();
    let (asked_rate, floor_rate) = (rate(&asked, with), rate(&floor, without));
    let (asked, floor, direct) = (Samples::new(asked), Samples::new(floor), Samples::new(direct));
    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, one replica, {} clients, dry runs, all on this machine; the floor is the same pod without the label",
        cluster.version(),
        options.clients
    ));
    report.remark("the webhook's own time is from its histogram, so a bound from above; direct calls are measured by a client of their own \
                   under the same load, with the way there and back");
    let within = own.share_within(ALLOWED_MS / 1e3) * 100.0;
    report.remark(format!("{within:.2} % of {} reviews took the webhook at most {ALLOWED_MS} ms", own.count));
    if asked_rate < WANTED_PER_SECOND {
        report.remark(format!("fewer than {WANTED_PER_SECOND} admissions a second: this machine does not give more"));
    }
    report.row(Row::new("pods admitted", Unit::PerSecond, asked_rate).beside("no webhook", floor_rate));
    report.row(Row::new("webhook's own time: p50", Unit::Millis, own.quantile(0.5) * 1e3));
    report.row(
        Row::new("webhook's own time: p99", Unit::Millis, own.quantile(0.99) * 1e3).target(Target::AtMost(ALLOWED_MS)),
    );
    report.row(Row::new("direct call: p50", Unit::Millis, direct.median()));
    report.row(Row::new("direct call: p99", Unit::Millis, direct.percentile(99)));
    let row = |name: &str, value: fn(&Samples) -> f64| {
        Row::new(format!("API call: {name}"), Unit::Millis, value(&asked)).beside("no webhook", value(&floor))
    };
    report.row(row("p50", Samples::median));
    report.row(row("p99", |samples| samples.percentile(99)));
    report.print(options.json)
}

/// A config with a version, and a ConfigMap that has none yet: a pod that uses both needs all that is looked up.
async fn prepare(space: &TestNamespace) -> Result<()> {
    let data = || entries("1", 4096).into_iter().collect::<std::collections::BTreeMap<String, String>>();
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {}});
    space.create_object::<VersionedConfig>(config).await?;
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1"});
    let version = json!({"metadata": {"name": "shop-1", "labels": labels}, "immutable": true, "data": data()});
    space.create_object::<ConfigMap>(version).await?;
    for name in ["shop", "plain"] {
        space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": data()})).await?;
    }
    let configs = space.api::<VersionedConfig>();
    let current = async || configs.get("shop").await.ok()?.status?.current_version;
    eventually(START_TIMEOUT, "the version is current", current).await?;
    Ok(())
}

/// Returns a pod of usual size.
fn pod(opts_in: bool) -> Value {
    let variables =
        (0..20).map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value {number}")}));
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
    let app = json!({
        "name": "app", "image": "registry.example/team/app:1.2.3", "env": variables.collect::<Vec<_>>(),
        "envFrom": [{"configMapRef": {"name": "shop"}}, {"configMapRef": {"name": "plain"}}],
        "ports": [{"containerPort": 8080}], "readinessProbe": probe, "livenessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "web-7d4b9c6f5-", "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5"}},
        "spec": {
            "automountServiceAccountToken": false, "containers": [app, {"name": "log", "image": "registry.example/log:1"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    });
    if opts_in {
        pod["metadata"]["labels"]["nudge.dev/inject"] = json!("true");
        pod["metadata"]["annotations"] = json!({"nudge.dev/notify.app": "SIGHUP"});
    }
    pod
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Clients that create pods, each with a connection of its own.
struct Load<'a> {
    cluster: &'a Cluster,
    space: &'a TestNamespace,
    clients: usize,
}

impl Load<'_> {
    /// Creates until `end`; how long each call took, in milliseconds.
    async fn run(&self, pod: &Value, end: Instant) -> Result<Vec<f64>> {
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let clients = (0..self.clients).map(async |_| {
            let pods = Api::<Pod>::namespaced(self.cluster.admin().await?, &self.space.name);
            let pod = pod.clone();
            let working = tokio::spawn(async move {
                let mut durations = Vec::new();
                while Instant::now() < end {
                    let began = Instant::now();
                    pods.create(&dry(), &pod).await?;
                    durations.push(began.elapsed().as_secs_f64() * 1e3);
                }
                Ok::<_, kube::Error>(durations)
            });
            Ok::<_, anyhow::Error>(working.await??)
        });
        Ok(try_join_all(clients).await?.concat())
    }
}

/// Calls the webhook as the API server does, one call after another; how long each took, in milliseconds.
async fn direct(address: SocketAddr, authority: &Path, namespace: &str, pod: &Value, end: Instant) -> Result<Vec<f64>> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": namespace,
            "operation": "CREATE", "userInfo": {"username": "bench"}, "dryRun": true, "object": pod,
        }
    });
    let body = review.to_string();
    let request = format!(
        "POST /mutate/pods?timeout=3s HTTP/1.1\r\nhost: nudge\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let tls = tls::trusting(authority)?;
    let mut connection = Raw::over(TcpStream::connect(address).await?, address.ip(), &tls).await?;
    let mut durations = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        connection.send(&request).await?;
        let reply = connection.reply().await?;
        durations.push(began.elapsed().as_secs_f64() * 1e3);
        let answer: Value = serde_json::from_slice(&reply.body).context("no answer")?;
        if answer["response"]["patch"].is_null() {
            bail!("the webhook answered without a patch: {}", answer["response"]["status"]);
        }
        sleep(CALL_INTERVAL).await;
    }
    Ok(durations)
}

/// The time that the webhook itself took, as it counts it.
struct Histogram {
    count: u64,
    /// Upper bounds in seconds, and how many were below.
    buckets: Vec<(f64, u64)>,
}

impl Histogram {
    async fn read(replica: &Replica) -> Result<Self> {
        let (_, text) = replica.get("/metrics").await?;
        let mut buckets = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("nudge_admission_duration_seconds_bucket")) {
            if !line.contains("path=\"/mutate/pods\"") {
                continue;
            }
            let (_, rest) = line.split_once("le=\"").context("a bucket without a bound")?;
            let (bound, _) = rest.split_once('"').context("a bucket without a bound")?;
            let (_, count) = line.rsplit_once(' ').context("a bucket without a count")?;
            buckets.push((bound.parse().unwrap_or(f64::INFINITY), count.parse()?));
        }
        ensure!(!buckets.is_empty(), "the webhook was not asked yet");
        Ok(Self { count: buckets.iter().map(|(_, count)| *count).max().unwrap_or(0), buckets })
    }

    fn since(&self, before: &Self) -> Self {
        // The bounds are the same, in the same order; before the first review there were none.
        let earlier = before.buckets.iter().map(|(_, count)| *count).chain(std::iter::repeat(0));
        let buckets =
            self.buckets.iter().zip(earlier).map(|((bound, count), earlier)| (*bound, count - earlier)).collect();
        Self { count: self.count - before.count, buckets }
    }

    /// Returns the smallest bound below which that share is.
    fn quantile(&self, share: f64) -> f64 {
        let rank = float(self.count) * share;
        self.buckets.iter().find(|(_, count)| float(*count) >= rank).map_or(f64::INFINITY, |(bound, _)| *bound)
    }

    fn share_within(&self, bound: f64) -> f64 {
        let found = self.buckets.iter().rfind(|(other, _)| *other <= bound);
        found.map_or(0.0, |(_, count)| float(*count) / float(self.count.max(1)))
    }
}
