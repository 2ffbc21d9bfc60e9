//! `nudge-agent run`: the agent in a pod.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::prctl::set_dumpable;
use nudge_protocol::expectation::Expectation;
use nudge_protocol::settings::parse_pair;
use nudge_protocol::volumes::KeptVolume;
use nudge_protocol::{Ack, ConfigName, ContainerName, KeyPattern, Notify, VariableName, env, pod, volumes};
use time::OffsetDateTime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::level_filters::LevelFilter;

use super::LogFormat;
use super::launch::{LaunchFailure, launch};
use crate::assembly::{Assembly, Settings};
use crate::files::StateFile;
use crate::identity::{Identity, Share, endpoint_url};
use crate::notify::{Containers, NotifiedEtags, NotifyScope, WebhookUrl, keep_etags};
use crate::pipeline::{HubPipeline, InPlace, IntakeParts};
use crate::proc::EXIT_AGENT;
use crate::readiness::NotReady;
use crate::restart::Variables;
use crate::serve::{Bindings, Connections};
use crate::source::Store;
use crate::source::hub::{Credentials, HubCa, HubClient, HubUrl, LastGood, LocalVersions};
use crate::status::Container;
use crate::tasks::Tasks;

/// The volumes of the setting, as one value.
#[derive(Clone, Debug)]
struct Volumes(Vec<KeptVolume>);

/// The name of the task that follows the hub.
const HUB_TASK: &str = "hub";
/// How long the agent waits at its end for replies that it is sending.
const REPLIES_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(700);
/// The time between two checks whether they are sent.
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Serve a pod's configuration: what the injected container runs
///
/// Gets the pod's configs from the hub, serves them over HTTPS, and notifies the containers when they change. Serves
/// the last good contents, or the mounted versions, until the hub answers. Every setting has a flag and an environment
/// variable, which the injector sets; the flag wins.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The pod's configs, with commas; where two have the same key the later one wins
    #[arg(long, env = pod::env::CONFIGS, value_name = "NAMES", value_delimiter = ',', required = true)]
    configs: Vec<ConfigName>,

    /// How containers are notified of a change, such as app=SIGUSR1,web=webhook: SIGUSR1, SIGUSR2, SIGHUP, webhook,
    /// in-place or none
    #[arg(long, env = pod::env::NOTIFY, value_name = "NAME=WAY", value_delimiter = ',', value_parser = parse_pair::<ContainerName, Notify>)]
    notify: Vec<(ContainerName, Notify)>,

    /// Patterns of the keys that containers read, such as app=db.*,app=tls.*: they are notified only if such a key
    /// changes
    #[arg(long, env = pod::env::KEYS, value_name = "NAME=PATTERN", value_delimiter = ',', value_parser = parse_pair::<ContainerName, KeyPattern>)]
    keys: Vec<(ContainerName, KeyPattern)>,

    /// What counts as a container having taken a version: delivered (it was notified) or fetched (it has read it)
    #[arg(long, env = pod::env::ACK, value_name = "WHAT", default_value = "delivered")]
    ack: Ack,

    /// Keys that become variables of containers that are restarted, such as app=GREETING,app=LIVES
    #[arg(long, env = pod::env::VARIABLES, value_name = "NAME=KEY", value_delimiter = ',', value_parser = parse_pair::<ContainerName, VariableName>)]
    variables: Vec<(ContainerName, VariableName)>,

    /// Folder for these variables, a file for each container: in memory, and mounted in no other container
    #[arg(long, env = pod::env::VARIABLES_DIR, value_name = "DIR", default_value = "/run/nudge/variables")]
    variables_dir: PathBuf,

    /// Webhooks that are there from the start, such as app=http://127.0.0.1:8080/changed
    #[arg(long, env = pod::env::WEBHOOKS, value_name = "NAME=URL", value_delimiter = ',', value_parser = parse_pair::<ContainerName, WebhookUrl>)]
    webhooks: Vec<(ContainerName, WebhookUrl)>,

    /// Ask these containers whether they take a version before the pod switches to it:
    /// app=http://127.0.0.1:8080/config-check
    #[arg(long = "check", env = pod::env::CHECKS, value_name = "NAME=URL", value_delimiter = ',', value_parser = parse_pair::<ContainerName, WebhookUrl>)]
    checks: Vec<(ContainerName, WebhookUrl)>,

    /// After its notification, a container must show that it took the version: app=workers, or app=URL newer METRIC,
    /// app=URL newer METRIC ok METRIC, app=URL is KEY or app=URL#/pointer is KEY, with 'within 60s' after it if 30s do
    /// not suffice
    #[arg(long, env = pod::env::VERIFY, value_name = "NAME=SIGN", value_delimiter = ',', value_parser = parse_pair::<ContainerName, Expectation>)]
    verify: Vec<(ContainerName, Expectation)>,

    /// Allow webhooks, checks and pages of verify to these addresses outside of the pod
    #[arg(long, env = pod::env::WEBHOOK_ALLOW, value_name = "HOST:PORT", value_delimiter = ',')]
    webhook_allow: Vec<SocketAddr>,

    /// Port of the endpoint; 0 takes a free one
    #[arg(long, env = pod::env::PORT, value_name = "N", default_value_t = env::DEFAULT_PORT)]
    port: u16,

    /// The pod's addresses, with commas: the endpoint is there and nowhere else, and containers use the first [default:
    /// loopback]
    #[arg(long, env = pod::env::POD_IPS, value_name = "ADDR", value_delimiter = ',')]
    pod_ips: Vec<IpAddr>,

    /// Also write the values as files into this folder, all swapped in one step
    #[arg(long, env = pod::env::MOUNT_PATH, value_name = "DIR")]
    mount_path: Option<PathBuf>,

    /// Volumes to keep in place of volumes of ConfigMaps and Secrets, as JSON
    #[arg(long, env = pod::env::VOLUMES, value_name = "JSON", value_parser = |text: &str| volumes::read(text).map(Volumes))]
    volumes: Option<Volumes>,

    /// The hub
    #[arg(long, env = pod::env::HUB, value_name = "URL", default_value = "https://nudge-hub.nudge-system.svc")]
    hub: HubUrl,

    /// The hub's CA bundle (PEM): the certificates that the agent trusts the hub by
    #[arg(long, env = pod::env::HUB_CA, value_name = "PEM", required_unless_present = "hub_ca_file", hide_env_values = true, allow_hyphen_values = true)]
    hub_ca: Option<String>,

    /// File with that bundle, where it is not given itself; read for every connection
    #[arg(long, value_name = "FILE")]
    hub_ca_file: Option<PathBuf>,

    /// File with the service-account token for the hub; read for every connection, and every minute
    #[arg(long, env = pod::env::HUB_TOKEN_FILE, value_name = "FILE", default_value = "/run/nudge/hub-token/token")]
    hub_token_file: PathBuf,

    /// Folder of the mounted versions, DIR/CONFIG/VERSION/PART/KEY: served until the hub answers
    #[arg(long, env = pod::env::BOOTSTRAP_DIR, value_name = "DIR")]
    bootstrap_dir: Option<PathBuf>,

    /// Folder for the agent's keys and the last good contents; in memory, and mounted in no other container
    #[arg(long, env = pod::env::STATE_DIR, value_name = "DIR", default_value = "/run/nudge/state")]
    state_dir: PathBuf,

    /// Folder for the files that containers get: token, ca.crt, and env with MY_CONFIG_TOKEN and MY_CONFIG_ENDPOINT
    #[arg(long, env = pod::env::SHARE_DIR, value_name = "DIR", default_value = "/run/nudge/share")]
    share_dir: PathBuf,

    /// End, with exit code 0, when the hub says that the pod's other containers have ended for good
    #[arg(long, env = pod::env::END_WITH_CONTAINERS)]
    end_with_containers: bool,

    /// The process tree below PID stands for container NAME: for trying pod mode outside of a pod, and for tests
    #[arg(long, value_name = "NAME=PID", value_parser = parse_pair::<ContainerName, i32>)]
    process: Vec<(ContainerName, i32)>,

    /// Between requests to the hub, in seconds, where something on the way cuts requests that it holds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    poll_interval: u64,

    /// How to write the log, to standard error
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    log_format: LogFormat,

    /// How much to log: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
}

pub(super) fn run(args: Args) -> ExitCode {
    // Otherwise a container of the same user could read the hub token and the private key from this process's memory.
    let protected = set_dumpable(false);
    launch(args.log_format, args.log_level, async move {
        if let Err(error) = protected {
            tracing::warn!(%error, "memory not protected; other processes of this user can read it");
        }
        serve_pod(args).await
    })
}

/// Wires the agent of a pod. The pod serves what it had before it first asks the hub, so that it starts while the hub
/// is away. The containers learn the address only when the agent listens at it.
async fn serve_pod(args: Args) -> Result<u8, LaunchFailure> {
    let now = OffsetDateTime::now_utc();
    if let Some(twice) =
        args.configs.iter().enumerate().find_map(|(index, name)| args.configs[..index].contains(name).then_some(name))
    {
        let reason = format!("config {twice} is named twice; name each config once, in the order of merging");
        return Err(LaunchFailure::of(reason));
    }
    let mut end_signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let identity = Identity::load_or_generate(&args.state_dir, now)?;
    let bindings = Bindings::bind(&args.pod_ips, args.port)?;
    let keys = |name: &ContainerName| {
        args.keys.iter().filter(|(container, _)| container == name).map(|(_, pattern)| pattern.clone()).collect()
    };
    let verify = |name: &ContainerName| {
        args.verify.iter().rfind(|(container, _)| container == name).map(|(_, expectation)| expectation.clone())
    };
    let containers: Vec<Container> = args
        .notify
        .into_iter()
        .map(|(name, notify)| Container { keys: keys(&name), verify: verify(&name), name, notify, ack: args.ack })
        .collect();
    if let Some((name, _)) = args.verify.iter().find(|(name, _)| !is_notified(&containers, name)) {
        let reason =
            format!("container {name} must show that it took a version, but is not notified; set {name}=SIGHUP");
        return Err(LaunchFailure::of(reason));
    }
    let restarted = containers.iter().filter(|container| container.notify == Notify::InPlace);
    let restarted = restarted.map(|container| container.name.clone()).collect();
    let variables = Variables::new(&args.variables_dir, args.variables);
    let in_place = InPlace::new(restarted, variables, &args.state_dir);
    let restart = in_place.as_ref().map(InPlace::watch_end);
    let record = StateFile::new(&args.state_dir, "notified");
    let notified = NotifiedEtags::load(&record);
    let settings = Settings {
        source: "hub",
        webhooks: to_webhooks(args.webhooks, &containers, args.ack)?,
        containers,
        checks: args.checks,
        notified: notified.clone(),
        webhook_allow: args.webhook_allow,
        mount_path: args.mount_path,
        volumes: args.volumes.map(|Volumes(volumes)| volumes).unwrap_or_default(),
        addresses: args.pod_ips,
    };
    let (assembly, outlets) = Assembly::new(settings, &identity, bindings, now)?;
    let endpoint = endpoint_url(assembly.address());

    let ca = match args.hub_ca.filter(|bundle| !bundle.trim().is_empty()) {
        Some(bundle) => HubCa::Bundle(bundle),
        None => HubCa::File(args.hub_ca_file.unwrap_or_default()),
    };
    let credentials = Arc::new(Credentials::new(ca, args.hub_token_file));
    let connections = outlets.connections.clone();
    let parts = IntakeParts {
        store: Store::new(Some(args.configs.clone()), outlets.etags.clone()),
        local_versions: LocalVersions::new(args.configs),
        last_good: LastGood::new(&args.state_dir),
        ran: StateFile::new(&args.state_dir, "ran"),
        not_ready: NotReady::new(&args.state_dir),
        in_place,
        outlets: outlets.clone(),
    };
    let client = HubClient::new(args.hub.clone(), credentials);
    let mut pipeline = HubPipeline::new(client, Duration::from_secs(args.poll_interval), parts);
    // Contents that this pod already has are served from the start; containers are not notified of them.
    pipeline.start(args.bootstrap_dir.as_deref()).await;
    let trees = args.process;
    let containers = pipeline.containers();
    let mut tasks = Tasks::default();
    assembly.run(&mut tasks, |name| match trees.iter().rfind(|(container, _)| container == name) {
        Some(&(_, pid)) => NotifyScope::Tree(pid),
        None => NotifyScope::for_container(name.clone(), containers.clone()),
    })?;
    Share::new(&args.share_dir).write(&identity, &endpoint)?;
    tracing::info!(endpoint, hub = args.hub.authority, version = env!("CARGO_PKG_VERSION"), "started");
    tasks.spawn(
        "record",
        keep_etags(notified, record, outlets.status.clone(), outlets.ready.subscribe(), pipeline.watch_kept_etag()),
    );
    tasks.spawn(HUB_TASK, pipeline.run());

    let [terminate, interrupt] = &mut end_signals;
    let (code, reason) = tokio::select! {
        _ = terminate.recv() => (0, "signal"),
        _ = interrupt.recv() => (0, "signal"),
        () = wait_for_restart(restart) => (pod::RESTART_EXIT_CODE, "restart of all containers commanded"),
        () = wait_until_all_ended(containers), if args.end_with_containers => (0, "all other containers of this pod have ended"),
        // The kubelet starts the agent again, which then serves the last good contents. But if the agent ends with the
        // other containers, nothing may start it again, and its failure would fail the Job. In that case the other
        // tasks continue, as long as the hub is polled.
        () = wait_for_end(&mut tasks, args.end_with_containers) => (EXIT_AGENT, "a task ended"),
    };
    send_replies(&connections).await;
    tracing::info!(reason, "stopped");
    Ok(code)
}

/// Returns whether the container is notified by a signal or a webhook.
fn is_notified(containers: &[Container], name: &ContainerName) -> bool {
    let is_notified = |notify: Notify| notify.signal().is_some() || notify == Notify::Webhook;
    containers.iter().any(|container| container.name == *name && is_notified(container.notify))
}

/// Waits until a task ends that the agent can't do without: any task, or with `only_hub` the task that follows the hub.
async fn wait_for_end(tasks: &mut Tasks, only_hub: bool) {
    while tasks.wait_for_end().await != HUB_TASK && only_hub {}
}

/// Waits until a restart of all containers is commanded.
async fn wait_for_restart(restart: Option<watch::Receiver<bool>>) {
    let Some(mut restart) = restart else { return std::future::pending().await };
    if restart.wait_for(|commanded| *commanded).await.is_err() {
        // The task that follows the hub has ended.
        std::future::pending::<()>().await;
    }
}

/// Waits until the hub says that all other containers have ended for good.
async fn wait_until_all_ended(mut containers: watch::Receiver<Containers>) {
    let ended = containers.wait_for(|containers| {
        let mut others = containers.values().filter(|container| container.name.as_str() != pod::AGENT_CONTAINER);
        containers.len() > usize::from(containers.contains_key(pod::AGENT_CONTAINER)) && others.all(|other| other.ended)
    });
    if ended.await.is_err() {
        // The task that follows the hub has ended, which says nothing about the containers.
        std::future::pending::<()>().await;
    }
}

/// Pairs webhooks with their containers, which must all be notified by webhook.
fn to_webhooks(
    webhooks: Vec<(ContainerName, WebhookUrl)>,
    containers: &[Container],
    ack: Ack,
) -> Result<Vec<(WebhookUrl, Container)>, LaunchFailure> {
    let pair = |(name, url): (ContainerName, WebhookUrl)| match containers
        .iter()
        .find(|container| container.name == name)
    {
        Some(container) if container.notify != Notify::Webhook => {
            let reason =
                format!("container {name} has a webhook, but is notified by {}; set {name}=webhook", container.notify);
            Err(LaunchFailure::of(reason))
        }
        Some(container) => Ok((url, container.clone())),
        None => Ok((url, Container { name, notify: Notify::Webhook, ack, keys: Vec::new(), verify: None })),
    };
    webhooks.into_iter().map(pair).collect()
}

/// Waits until the replies that are being sent are out.
async fn send_replies(connections: &Connections) {
    let sent = async {
        while connections.are_busy() {
            tokio::time::sleep(SHUTDOWN_CHECK_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(REPLIES_SHUTDOWN_TIMEOUT, sent).await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn the_agent_ends_with_any_task_or_with_that_of_the_hub_alone_where_others_are_spared() {
        let ends = async |name, only_hub| {
            let mut tasks = Tasks::default();
            tasks.spawn(name, async {});
            tasks.spawn("runs", pending());
            tokio::time::timeout(Duration::from_millis(50), wait_for_end(&mut tasks, only_hub)).await.is_ok()
        };
        assert!(ends("reports", false).await && ends(HUB_TASK, false).await && ends(HUB_TASK, true).await);
        assert!(!ends("reports", true).await);
    }
}
