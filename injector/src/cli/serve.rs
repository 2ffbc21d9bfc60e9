//! `nudge-injector serve`: starts the parts of the control plane, and runs them until a signal or a failure.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Config};
use nudge_admission::{ClientsError, StartError};
use nudge_certs::{Certificates, CertificatesError};
use nudge_cluster::index::Index;
use nudge_cluster::jitter::jittered;
use nudge_cluster::lease::{Leadership, Lease};
use nudge_cluster::watch::watch_cluster;
use nudge_controller::{ContentKeyError, content_key};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use prometheus_client::registry::Registry;
use ring::hmac;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::cluster::{self, ClusterError};
use super::options::{Options, OptionsError};
use super::probes::{Probed, probes};
use super::settings::ServeSettings;
use super::{certificates, controllers, health, health_socket, hub, logging, open_files, webhooks};
use crate::supervise::{Stage, TaskError, Tasks};

/// The pauses while the API server can't be reached at the start.
const RETRY: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };

/// Why serving could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// Settings.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No runtime.
    #[error("the runtime can't start")]
    Runtime(#[source] io::Error),
    /// The API server is not known.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A port is taken.
    #[error("can't listen on {address} for {what}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// For what.
        what: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// The socket for probes.
    #[error("can't listen on {}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// The key for digests.
    #[error(transparent)]
    ContentKey(#[from] ContentKeyError),
    /// The certificates.
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// The admission server.
    #[error(transparent)]
    Admission(#[from] StartError),
    /// The authority of clients that may post reviews.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// Signals can't be received.
    #[error("signals can't be received")]
    Signals(#[source] io::Error),
    /// A task ended.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl ServeError {
    /// What to do about it, where the error alone does not show it.
    pub(super) fn help(&self) -> Option<&'static str> {
        match self {
            Self::Cluster(error) => Some(error.help()),
            _ => None,
        }
    }
}

/// What the parts of the control plane share.
pub(super) struct ControlPlane {
    pub(super) options: Options,
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) index: Arc<Index>,
    pub(super) content_key: Arc<hmac::Key>,
    pub(super) leadership: Leadership,
    pub(super) certificates: Certificates,
    pub(super) registry: Registry,
    pub(super) tasks: Tasks,
}

/// Serves until SIGTERM or SIGINT.
pub(super) fn serve(settings: ServeSettings) -> Result<(), ServeError> {
    logging::start(settings.log_level, settings.log_format);
    let options = Options::try_from(settings)?;
    open_files::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let result = runtime.block_on(run(options));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(options: Options) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let limit = options.shutdown;
    let tasks = start(options).await?;
    let signal = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(tasks.run(signal, limit).await?)
}

/// Starts every part, each when what it needs is there.
async fn start(options: Options) -> Result<Tasks, ServeError> {
    let (config, client) = cluster::find().await?;
    let health_listener = listen(options.listen_health, "health and metrics").await?;
    let address = address(&health_listener);
    tracing::info!(replica = options.replica, version = env!("CARGO_PKG_VERSION"), health = %address, "starting");
    let content_key = Arc::new(read_content_key(&client, &options).await?);
    let mut tasks = Tasks::default();
    let index = Arc::new(Index::default());
    tasks.spawn("watches", watch_cluster(client.clone(), Arc::clone(&index), options.watch.clone()));
    let lease = Lease::new(client.clone(), options.lease.clone());
    let leadership = lease.leadership();
    tasks.spawn_until(Stage::HandOver, "lease", |stopping| lease.run(stopping));
    let certificates = certificates::start(&client, &options, &mut tasks).await?;
    let mut registry = Registry::with_prefix("nudge");
    options.watch.metrics.register(&mut registry);
    let mut plane =
        ControlPlane { options, config, client, index, content_key, leadership, certificates, registry, tasks };
    let features = webhooks::start(&mut plane).await?;
    controllers::start(&mut plane);
    hub::start(&mut plane)?;

    let ControlPlane { options, index, certificates, registry, mut tasks, .. } = plane;
    let stopping = tasks.stopping(Stage::HandOver);
    let probed = Probed { index, certificates, features, stale: options.stale, stopping };
    let health = Arc::new(probes(probed, registry));
    tasks.spawn("health", health::serve(health_listener, Arc::clone(&health)));
    if let Some(path) = options.health_socket {
        let listener = health_socket::bind(&path).map_err(|source| ServeError::Socket { path, source })?;
        tasks.spawn("health socket", health_socket::serve(listener, health));
    }
    Ok(tasks)
}

/// Reads the key of digests. Retries for as long as the API server is away: a pod that starts before it must not crash in a loop.
async fn read_content_key(client: &Client, options: &Options) -> Result<hmac::Key, ContentKeyError> {
    let mut failures = 0;
    loop {
        match content_key(client.clone(), &options.namespace, &options.content_key_secret).await {
            Err(ContentKeyError::Call(error)) => {
                tracing::warn!(error = chain(&error), "waiting for the API server");
                failures += 1;
                sleep(jittered(RETRY.wait(failures))).await;
            }
            other => return other,
        }
    }
}

/// All addresses; on a machine without IPv6 all of IPv4.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let all = Ipv6Addr::UNSPECIFIED;
    if address.ip() == all && std::net::TcpListener::bind((all, 0)).is_err() {
        return SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    }
    address
}

async fn listen(address: SocketAddr, what: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(reachable(address)).await.map_err(|source| ServeError::Listen { address, what, source })
}

/// The address of a listener, for the log.
pub(super) fn address(listener: &TcpListener) -> String {
    listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
}
