//! Every setting of `nudge-injector serve`, as a flag and as an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Settings; the help text is their documentation.
#[derive(Clone, Debug, Args)]
pub struct ServeSettings {
    /// Where the API server's admission reviews are taken.
    #[arg(long, env = "NUDGE_LISTEN_ADMISSION", default_value = "[::]:8443", value_name = "ADDRESS")]
    pub listen_admission: SocketAddr,
    /// Where agents are served.
    #[arg(long, env = "NUDGE_LISTEN_HUB", default_value = "[::]:9443", value_name = "ADDRESS")]
    pub listen_hub: SocketAddr,
    /// Where /healthz, /readyz and /metrics are, by plain HTTP.
    #[arg(long, env = "NUDGE_LISTEN_HEALTH", default_value = "[::]:8080", value_name = "ADDRESS")]
    pub listen_health: SocketAddr,
    /// The namespace that Nudge itself runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "nudge-system", value_name = "NAME")]
    pub namespace: String,
    /// Take every namespace for enabled, but for the system's own and those with the label nudge.dev/enabled=false. Goes with the
    /// overlay all-namespaces, which has the web hooks and rights for it.
    #[arg(long, env = "NUDGE_ALL_NAMESPACES")]
    pub all_namespaces: bool,
    /// Name of this replica, by default the host's; no two replicas may have the same.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// Service account of the injector: requests of its own are told from those of users by it.
    #[arg(long, env = "NUDGE_SERVICE_ACCOUNT", default_value = "nudge-injector", value_name = "NAME")]
    pub service_account: String,
    /// Names and addresses for the serving certificate; by default those of the two Services.
    #[arg(long, env = "NUDGE_CERTIFICATE_NAMES", value_delimiter = ',', value_name = "NAMES")]
    pub certificate_names: Vec<String>,
    /// Secret with Nudge's own certificate authority; made where it is missing.
    #[arg(long, env = "NUDGE_CERTIFICATE_SECRET", default_value = "nudge-injector-tls", value_name = "NAME")]
    pub certificate_secret: String,
    /// Folder with tls.crt, tls.key and ca.crt from elsewhere (cert-manager, a CSI driver) instead of an own authority.
    #[arg(long, env = "NUDGE_CERTIFICATE_DIR", value_name = "FOLDER")]
    pub certificate_dir: Option<PathBuf>,
    /// Lifetime of an own authority, in days.
    #[arg(long, env = "NUDGE_CA_DAYS", default_value_t = 1095, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub ca_days: u32,
    /// Secret with the key for digests of Secrets; made where it is missing.
    #[arg(long, env = "NUDGE_CONTENT_KEY_SECRET", default_value = "nudge-content-key", value_name = "NAME")]
    pub content_key_secret: String,
    /// Lease that decides which replica runs the controllers.
    #[arg(long, env = "NUDGE_LEASE", default_value = "nudge-injector", value_name = "NAME")]
    pub lease: String,
    /// How long the lease lasts without renewal, in seconds: how soon another replica takes over from one that vanished.
    #[arg(long, env = "NUDGE_LEASE_SECONDS", default_value_t = 15, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(3..=300))]
    pub lease_seconds: u32,
    /// The longest silence of a watch, in seconds: how soon a dead one is noticed.
    #[arg(long, env = "NUDGE_WATCH_SECONDS", default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=600))]
    pub watch_seconds: u32,
    /// Most connections of agents.
    #[arg(long, env = "NUDGE_HUB_CONNECTIONS", default_value_t = 12_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub hub_connections: u32,
    /// The wait that agents are told to ask for, in seconds.
    #[arg(long, env = "NUDGE_HUB_WAIT_SECONDS", default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=300))]
    pub hub_wait_seconds: u32,
    /// How long a replica that ends takes to hand its agents over, in seconds.
    #[arg(long, env = "NUDGE_DRAIN_SECONDS", default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=120))]
    pub drain_seconds: u32,
    /// How much is logged.
    #[arg(long, env = "NUDGE_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// How it is logged.
    #[arg(long, env = "NUDGE_LOG_FORMAT", default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

impl ServeSettings {
    /// Who this replica is.
    pub fn replica(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        self.identity.clone().unwrap_or_else(|| format!("{}-{}", host(), std::process::id()))
    }

    /// The names of the serving certificate.
    pub fn names(&self) -> Vec<String> {
        if !self.certificate_names.is_empty() {
            return self.certificate_names.clone();
        }
        let services = ["nudge-injector", "nudge-hub"];
        let suffixes = ["", ".svc", ".svc.cluster.local"];
        let named =
            services.iter().flat_map(|service| suffixes.map(|suffix| format!("{service}.{}{suffix}", self.namespace)));
        named.collect()
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What does not work.
    Error,
    /// What needs attention.
    Warn,
    /// What happens.
    Info,
    /// Why it happens.
    Debug,
}

/// How it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Lines for people.
    Text,
}
