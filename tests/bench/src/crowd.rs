//! `bench crowd`: the control plane's memory in a cluster full of foreign objects, compared with the same program in an
//! empty cluster.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{bind, create_part};
use nudge_tests::procfs::{self, Memory};
use nudge_tests::{Replica, eventually};
use serde_json::{Value, json};

use crate::control_plane::{self, ControlPlane};
use crate::progress;
use crate::report::Report;
use crate::row::{Row, Target, Unit, float};

/// How long things may take to be seen.
const WAIT_TIMEOUT: Duration = Duration::from_mins(3);
/// Requests at the same time.
const CLIENTS: usize = 32;
/// The memory that is allowed in the full cluster, in KiB.
const ALLOWED_KIB: f64 = 60.0 * 1024.0;
/// The size of a value in a ConfigMap or Secret, in bytes.
const VALUE_BYTES: usize = 2048;

#[derive(Args)]
pub(crate) struct Options {
    /// ConfigMaps and Secrets that are not ours, half of each
    #[arg(long, default_value_t = 9000)]
    objects: usize,
    /// Pods in all
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Pods of these with an agent
    #[arg(long, default_value_t = 500)]
    subscribers: usize,
    /// How long each is watched; the control plane looks through pods once a minute
    #[arg(long, default_value_t = 75)]
    seconds: u64,
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
    let watched = Duration::from_secs(options.seconds);

    progress(&format!("an empty cluster, {} s", watched.as_secs()));
    let mut replica = installation.replica(&replica_options).await?;
    let enabled = installation.enabled("crowd").await?;
    bind(&enabled, "nudge-secrets").await?;
    let config = json!({"metadata": {"name": "shop"}, "spec": {"version": "1"}});
    enabled.create_object::<VersionedConfig>(config).await?;
    let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": "1"});
    let version =
        json!({"metadata": {"name": "shop-1", "labels": labels}, "immutable": true, "data": {"key": "value"}});
    create_part::<ConfigMap>(&enabled, version).await?;
    let empty = peak(&replica, watched).await?;
    replica.process.stop()?;

    let others = cluster.space("others").await?;
    let began = Instant::now();
    fill(&enabled, &others, &options).await?;
    progress(&format!("made {} objects and {} pods in {} s", options.objects, options.pods, began.elapsed().as_secs()));
    progress(&format!("the same with all of it, {} s", watched.as_secs()));
    let replica = installation.replica(&replica_options).await?;
    let configs = enabled.api::<VersionedConfig>();
    let counted = async || {
        let total = configs.get("shop").await.ok()?.status?.pods.total;
        (usize::try_from(total) == Ok(options.subscribers)).then_some(())
    };
    eventually(WAIT_TIMEOUT, "all pods with an agent are counted", counted).await?;
    let full = peak(&replica, watched).await?;

    let mut report = Report::default();
    report.remark(format!(
        "Kubernetes {}, {} ConfigMaps and Secrets of 2 KiB and {} pods, half of them in the enabled namespace with its Secrets seen; {} pods have an agent",
        cluster.version(), options.objects, options.pods, options.subscribers
    ));
    report.remark("the highest of what was seen every 100 ms from the start on");
    let kib = |bytes: u64| float(bytes) / 1024.0;
    report.row(
        Row::new("RssAnon", Unit::Kib, kib(full.rss_anon))
            .beside("empty", kib(empty.rss_anon))
            .target(Target::AtMost(ALLOWED_KIB)),
    );
    report.row(
        Row::new("VmRSS", Unit::Kib, kib(full.vm_rss))
            .beside("empty", kib(empty.vm_rss))
            .target(Target::AtMost(ALLOWED_KIB)),
    );
    report.print(options.json)
}

/// Returns the highest that was seen.
async fn peak(replica: &Replica, time: Duration) -> Result<Memory> {
    let mut highest = procfs::memory(replica.process.pid())?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let now = procfs::memory(replica.process.pid())?;
        highest.rss_anon = highest.rss_anon.max(now.rss_anon);
        highest.vm_rss = highest.vm_rss.max(now.vm_rss);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(highest)
}

/// Half of everything in each namespace; pods with an agent only if that is enabled.
async fn fill(enabled: &TestNamespace, others: &TestNamespace, options: &Options) -> Result<()> {
    let text = "x".repeat(VALUE_BYTES);
    for space in [enabled, others] {
        let name = |number: usize| format!("crowd-{number}");
        let map = |number| json!({"metadata": {"name": name(number)}, "data": {"key": text}});
        let secret = |number| json!({"metadata": {"name": name(number)}, "stringData": {"key": text}});
        make::<ConfigMap>(space, options.objects / 4, map).await?;
        make::<Secret>(space, options.objects / 4, secret).await?;
        let subscribers = if space.name == enabled.name { options.subscribers } else { 0 };
        make::<Pod>(space, subscribers, |number| pod(&format!("web-{number}"), true)).await?;
        make::<Pod>(space, options.pods / 2 - subscribers, |number| pod(&name(number), false)).await?;
    }
    Ok(())
}

/// Returns a pod of usual size.
fn pod(name: &str, agent: bool) -> Value {
    let variables =
        (0..20).map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value {number}")}));
    let app = json!({"name": "app", "image": "registry.example/team/app:1.2.3", "env": variables.collect::<Vec<_>>()});
    let mut pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
        "automountServiceAccountToken": false, "containers": [app, {"name": "log", "image": "registry.example/log:1"}]}});
    if agent {
        pod["metadata"]["labels"]["nudge.dev/agent"] = json!("0.1.0");
        pod["spec"]["containers"][1] =
            json!({"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]});
    }
    pod
}

/// Creates this many objects, a few at the same time.
pub(crate) async fn make<K>(space: &TestNamespace, count: usize, object: impl Fn(usize) -> Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    let api: Api<K> = space.api();
    let made = stream::iter((0..count).map(object)).map(|object| {
        let api = api.clone();
        async move {
            let object: K = serde_json::from_value(object)?;
            api.create(&PostParams::default(), &object).await?;
            Ok::<_, anyhow::Error>(())
        }
    });
    let mut made = made.buffer_unordered(CLIENTS);
    while let Some(one) = made.next().await {
        one?;
    }
    Ok(())
}
