//! The settings of `nudge-injector serve`, each a flag and an environment variable.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nudge_cluster::watch::ReadScope;
use nudge_core::features::{IpFamily, Minor};

use super::roles::Role;

/// The containers that known injectors add.
const FOREIGN_CONTAINERS: &str = "istio-proxy,istio-init,istio-validation,linkerd-proxy,linkerd-init,\
    linkerd-network-validator,linkerd-debug,vault-agent,vault-agent-init,consul-dataplane,consul-connect-inject-init,\
    kuma-sidecar,kuma-init,daprd,envoy-sidecar,jaeger-agent,cloud-sql-proxy,csql-proxy,gke-gcsfuse-sidecar,\
    gke-gcsfuse-metadata-prefetch,azwi-proxy,azwi-proxy-init,aws-guardduty-agent";

/// The settings of `nudge-injector serve`; their help texts are their documentation.
#[derive(Clone, Debug, Args)]
pub struct ServeSettings {
    /// Parts of the control plane that this process runs.
    #[arg(long, env = "NUDGE_ROLES", value_delimiter = ',', default_value = "control,hub,certs", value_name = "ROLES")]
    pub roles: Vec<Role>,
    /// Address that serves admission reviews to the API server.
    #[arg(long, env = "NUDGE_LISTEN_ADMISSION", default_value = "[::]:8443", value_name = "ADDRESS")]
    pub listen_admission: SocketAddr,
    /// File with the authority (PEM) of the API server's certificate as a client. Then only clients with a certificate
    /// of this authority may post reviews; by default every client that reaches the port may. The file is read again
    /// when it changes.
    #[arg(long, env = "NUDGE_ADMISSION_CLIENT_CA_FILE", value_name = "PATH")]
    pub admission_client_ca_file: Option<PathBuf>,
    /// Address that serves agents.
    #[arg(long, env = "NUDGE_LISTEN_HUB", default_value = "[::]:9443", value_name = "ADDRESS")]
    pub listen_hub: SocketAddr,
    /// Address of /healthz, /readyz and /metrics, by plain HTTP.
    #[arg(long, env = "NUDGE_LISTEN_HEALTH", default_value = "[::]:8080", value_name = "ADDRESS")]
    pub listen_health: SocketAddr,
    /// UNIX socket that `nudge-injector health` connects to; none by default.
    #[arg(long, env = "NUDGE_HEALTH_SOCKET", value_name = "PATH")]
    pub health_socket: Option<PathBuf>,
    /// Namespace that Nudge itself runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "nudge-system", value_name = "NAME")]
    pub namespace: String,
    /// Enable every namespace except the system's own and those with the label nudge.dev/enabled=false. Needs the
    /// webhooks and roles of the overlay all-namespaces.
    #[arg(long, env = "NUDGE_ALL_NAMESPACES")]
    pub all_namespaces: bool,
    /// Name of this replica, by default that of the host and the process id; each replica needs its own.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// Service account of the role control, by which its own requests are recognized.
    #[arg(long, env = "NUDGE_SERVICE_ACCOUNT", default_value = "nudge-injector", value_name = "NAME")]
    pub service_account: String,
    /// Names and addresses for the serving certificate; by default those of the two Services.
    #[arg(long, env = "NUDGE_CERTIFICATE_NAMES", value_delimiter = ',', value_name = "NAMES")]
    pub certificate_names: Vec<String>,
    /// Folder with tls.crt, tls.key and ca.crt: the mounted Secret of the serving certificate, which the role certs or
    /// something else (cert-manager, a CSI driver) writes. Processes without the role certs need it.
    #[arg(long, env = "NUDGE_CERTIFICATE_DIR", value_name = "FOLDER")]
    pub certificate_dir: Option<PathBuf>,
    /// Lifetime of Nudge's own authority, in days. Agents trust its successors for at least twice as long.
    #[arg(long, env = "NUDGE_CA_DAYS", default_value_t = 1095, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub ca_days: u32,
    /// Secret in which the role certs keeps the content key, and what follows from it.
    #[arg(long, env = "NUDGE_CONTENT_KEY_SECRET", default_value = "nudge-content-key", value_name = "NAME")]
    pub content_key_secret: String,
    /// Folder with its entry content and, for the role control, notes: the mounted Secret. Processes without the role
    /// certs need it.
    #[arg(long, env = "NUDGE_CONTENT_KEY_DIR", value_name = "FOLDER")]
    pub content_key_dir: Option<PathBuf>,
    /// Lease that decides which replica runs the controllers.
    #[arg(long, env = "NUDGE_LEASE", default_value = "nudge-injector", value_name = "NAME")]
    pub lease: String,
    /// Lease that decides which hub marks pods whose agent is silent.
    #[arg(long, env = "NUDGE_HUB_LEASE", default_value = "nudge-hub", value_name = "NAME")]
    pub hub_lease: String,
    /// Lease that decides which replica looks after the sources.
    #[arg(long, env = "NUDGE_SOURCES_LEASE", default_value = "nudge-sources", value_name = "NAME")]
    pub sources_lease: String,
    /// Service account of the role sources, for its messages about missing rights.
    #[arg(long, env = "NUDGE_SOURCES_SERVICE_ACCOUNT", default_value = "nudge-sources", value_name = "NAME")]
    pub sources_service_account: String,
    /// Folder of the role sources for mirrors of git repositories.
    #[arg(long, env = "NUDGE_MIRRORS_DIR", default_value = "/var/cache/nudge-sources", value_name = "DIR")]
    pub mirrors_dir: PathBuf,
    /// What these mirrors may take on the disk, in MiB.
    #[arg(long, env = "NUDGE_MIRRORS_MIB", default_value_t = 4096, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..))]
    pub mirrors_mib: u32,
    /// Addresses of nodes that the roles sources and analysis may ask all the same, such as 10.0.0.7,10.1.0.0/24.
    #[arg(long, env = "NUDGE_OUTBOUND_ALLOW", value_delimiter = ',', value_name = "RANGE,...")]
    pub outbound_allow: Vec<String>,
    /// Lease that decides which replica requests the numbers that versions are judged by.
    #[arg(long, env = "NUDGE_ANALYSIS_LEASE", default_value = "nudge-analysis", value_name = "NAME")]
    pub analysis_lease: String,
    /// Service account of the role analysis: only it may write what was measured.
    #[arg(long, env = "NUDGE_ANALYSIS_SERVICE_ACCOUNT", default_value = "nudge-analysis", value_name = "NAME")]
    pub analysis_service_account: String,
    /// How long a lease lasts without renewal, in seconds: how soon another replica takes over from a lost one.
    #[arg(long, env = "NUDGE_LEASE_SECONDS", default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(3..=300))]
    pub lease_seconds: u32,
    /// How long a config stays that the label nudge.dev/baseline of its namespace made, after its objects are gone and
    /// no pod uses it, in seconds.
    #[arg(long, env = "NUDGE_BASELINE_SECONDS", default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub baseline_seconds: u32,
    /// With which rights the objects of enabled namespaces are read: those bound in each namespace, or those bound for
    /// the cluster.
    #[arg(long, env = "NUDGE_READS", default_value_t, value_name = "namespaces|cluster")]
    pub reads: ReadScope,
    /// Longest silence of a watch, in seconds: how soon a dead one is detected.
    #[arg(long, env = "NUDGE_WATCH_SECONDS", default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=600))]
    pub watch_seconds: u32,
    /// Most connections of agents.
    #[arg(long, env = "NUDGE_HUB_CONNECTIONS", default_value_t = 12_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub hub_connections: u32,
    /// How long agents ask the hub to hold a poll, in seconds.
    #[arg(long, env = "NUDGE_HUB_WAIT_SECONDS", default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub hub_wait_seconds: u32,
    /// How long a replica that shuts down takes to hand its agents over, in seconds.
    #[arg(long, env = "NUDGE_DRAIN_SECONDS", default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=120))]
    pub drain_seconds: u32,
    /// Injection.
    #[command(flatten)]
    pub injection: InjectionArguments,
    /// The repair loop.
    #[command(flatten)]
    pub repair: RepairArguments,
    /// Level of the log.
    #[arg(long, env = "NUDGE_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// Format of the log.
    #[arg(long, env = "NUDGE_LOG_FORMAT", default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Settings of injection.
#[derive(Clone, Debug, Args)]
pub struct InjectionArguments {
    /// Image of the agent.
    #[arg(long, env = "NUDGE_AGENT_IMAGE", default_value = concat!("nudge-agent:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub agent_image: String,
    /// Image of the agent that may signal processes of any user.
    #[arg(long, env = "NUDGE_AGENT_KILL_IMAGE", default_value = concat!("nudge-agent-kill:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub agent_kill_image: String,
    /// When the kubelet pulls these images; by default Kubernetes decides by the image's tag.
    #[arg(long, env = "NUDGE_IMAGE_PULL_POLICY", value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: Option<String>,
    /// Secrets with which these images are pulled; they must be in the pods' namespaces.
    #[arg(long, env = "NUDGE_IMAGE_PULL_SECRETS", value_delimiter = ',', value_name = "NAMES")]
    pub image_pull_secrets: Vec<String>,
    /// URL at which agents reach the hub; by default its Service in Nudge's own namespace.
    #[arg(long, env = "NUDGE_HUB_URL", value_name = "URL")]
    pub hub_url: Option<String>,
    /// Containers of other injectors; they are left alone.
    #[arg(long, env = "NUDGE_FOREIGN_CONTAINERS", value_delimiter = ',', default_value = FOREIGN_CONTAINERS, value_name = "NAMES")]
    pub foreign_containers: Vec<String>,
    /// Let pods name containers of other injectors in nudge.dev/containers, nudge.dev/notify.NAME and
    /// nudge.dev/webhook.NAME.
    #[arg(long, env = "NUDGE_FOREIGN_CONTAINERS_ALLOWED")]
    pub foreign_containers_allowed: bool,
    /// CPU request of agents whose pods do not set nudge.dev/agent-cpu, such as 20m; by default 5m. It is never less
    /// than 50m in pods of the class Guaranteed, where it is the limit too.
    #[arg(long, env = "NUDGE_AGENT_CPU", value_name = "QUANTITY")]
    pub agent_cpu: Option<String>,
    /// Memory request and limit of agents whose pods do not set nudge.dev/agent-memory; by default 32Mi. Agents that
    /// write files, ask containers or set variables get a little more.
    #[arg(long, env = "NUDGE_AGENT_MEMORY", value_name = "QUANTITY")]
    pub agent_memory: Option<String>,
    /// Port of agents whose pods do not set nudge.dev/agent-port; by default 9001.
    #[arg(long, env = "NUDGE_AGENT_PORT", value_name = "PORT")]
    pub agent_port: Option<String>,
    /// How long the start of pods that do not set nudge.dev/agent-start-timeout waits for the configuration, such as
    /// 2m; by default 30s.
    #[arg(long, env = "NUDGE_AGENT_START_TIMEOUT", value_name = "TIME")]
    pub agent_start_timeout: Option<String>,
    /// What to do with pods that opt in and have a label or an annotation of Nudge's that this version does not know.
    #[arg(long, env = "NUDGE_UNKNOWN_KEYS", default_value = "refuse", value_name = "WAY")]
    pub unknown_keys: UnknownKeys,
    /// Version of the oldest kubelet, such as 1.33, instead of reading that of the nodes.
    #[arg(long, env = "NUDGE_KUBELET_VERSION", value_name = "VERSION")]
    pub kubelet_version: Option<Minor>,
    /// Family of the first address of pods; auto uses that of this replica's own pod.
    #[arg(long, env = "NUDGE_POD_IP_FAMILY", default_value = "auto", value_name = "FAMILY")]
    pub pod_ip_family: IpFamily,
    /// Address of this replica's own pod.
    #[arg(long, env = "POD_IP", value_name = "ADDRESS")]
    pub pod_ip: Option<IpAddr>,
}

/// Settings of the repair loop.
#[derive(Clone, Debug, Args)]
pub struct RepairArguments {
    /// What to do with pods that opt in but have no agent, besides Events; evict needs the ClusterRole nudge-restart in
    /// their namespaces.
    #[arg(long, env = "NUDGE_REPAIR", default_value = "off", value_name = "WAY")]
    pub repair: Repair,
    /// Most pods that are evicted in a minute.
    #[arg(long, env = "NUDGE_REPAIR_PER_MINUTE", default_value_t = 6, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repair_per_minute: u32,
    /// How often to scan for such pods, in seconds.
    #[arg(long, env = "NUDGE_REPAIR_SECONDS", default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub repair_seconds: u32,
    /// How old a pod must be to count, in seconds.
    #[arg(long, env = "NUDGE_REPAIR_AGE_SECONDS", default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub repair_age_seconds: u32,
}

/// What to do with pods whose labels or annotations this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnknownKeys {
    /// Refuse them.
    Refuse,
    /// Inject them, with a warning.
    Warn,
}

/// What to do with pods that opt in but have no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Repair {
    /// Count them, and write Events.
    Off,
    /// Evict them too, so that their controller replaces them.
    Evict,
}

/// Returns the items of a list. An empty item counts as missing.
pub(super) fn list_items(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|name| name.trim()).filter(|name| !name.is_empty())
}

impl ServeSettings {
    /// Returns the name of this replica.
    pub fn replica(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        self.identity.clone().unwrap_or_else(|| format!("{}-{}", host(), std::process::id()))
    }

    /// Returns the names of the serving certificate.
    pub fn names(&self) -> Vec<String> {
        let names: Vec<String> = list_items(&self.certificate_names).map(str::to_owned).collect();
        if !names.is_empty() {
            return names;
        }
        let suffixes = ["", ".svc", ".svc.cluster.local"];
        let names = |service: &str| suffixes.map(|suffix| format!("{service}.{}{suffix}", self.namespace));
        ["nudge-injector", "nudge-hub"].into_iter().flat_map(names).collect()
    }
}

/// The least important messages that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Also what needs attention.
    Warn,
    /// Also what happens.
    Info,
    /// Also why it happens.
    Debug,
}

/// How a message of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object for each line.
    Json,
    /// Lines of text.
    Text,
}
