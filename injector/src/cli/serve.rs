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
use nudge_cluster::lease::{Leadership, Lease, LeaseSettings};
use nudge_cluster::watch::watch_cluster;
use prometheus_client::registry::Registry;
use ring::hmac;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::cluster::{self, ClusterError};
use super::content_key::{self, ContentKeyError};
use super::health::Health;
use super::options::{Options, OptionsError};
use super::probes::{Known, Probed, probes};
use super::settings::ServeSettings;
use super::{
    analysis, certificates, controllers, first_contact, health, health_socket, hub, logging, open_files, sources,
    webhooks,
};
use crate::supervise::{Stage, Stopping, TaskError, Tasks};

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

/// What the roles share that work in namespaces.
pub(super) struct ControlPlane {
    pub(super) options: Options,
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) index: Arc<Index>,
    pub(super) content_key: Arc<hmac::Key>,
    pub(super) registry: Registry,
    /// Where tasks run, by name.
    runtimes: Vec<(&'static str, Handle)>,
    pub(super) tasks: Tasks,
}

impl ControlPlane {
    /// A lease that nobody tries to hold yet.
    pub(super) fn lease(&self, settings: &LeaseSettings) -> Lease {
        Lease::new(self.client.clone(), settings.clone())
    }

    /// Tries to hold a lease from now on.
    pub(super) fn lead(&mut self, name: &'static str, lease: Lease) -> Leadership {
        let leadership = lease.leadership();
        self.tasks.spawn_until(Stage::HandOver, name, |stopping| lease.run(stopping));
        leadership
    }

    /// Starts a part on a runtime of its own, with a client of its own: what keeps its threads busy delays nothing else.
    fn apart(&mut self, name: &'static str, start: impl FnOnce(&mut Self)) -> Result<(), ServeError> {
        let runtime = self.tasks.begin_runtime(name).map_err(ServeError::Runtime)?;
        self.runtimes.push((name, runtime.clone()));
        let entered = runtime.enter();
        let shared = std::mem::replace(&mut self.client, cluster::client(&self.config)?);
        start(self);
        self.client = shared;
        drop(entered);
        self.tasks.end_runtime();
        Ok(())
    }
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
    let tasks = Box::pin(start(options)).await?;
    let signal = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(tasks.run(signal, limit).await?)
}

/// Starts the roles of this process, each when what it needs is there.
async fn start(options: Options) -> Result<Tasks, ServeError> {
    let (config, client) = cluster::find().await?;
    let roles = options.roles;
    // Nobody reaches a process that serves nobody and has nothing to show.
    let health_listener = if roles.serve() || roles.sources {
        Some(listen(options.listen_health, "health and metrics").await?)
    } else {
        None
    };
    tracing::info!(
        replica = options.replica,
        version = env!("CARGO_PKG_VERSION"),
        %roles,
        reads = %options.watch.reads,
        health = health_listener.as_ref().map(address),
        "starting"
    );
    let mut tasks = Tasks::default();
    // First, so that they are renewed whatever the content key is like.
    let certificates = certificates::start(&client, &options, &mut tasks).await?;
    if let Some(certificates) = certificates.as_ref().filter(|_| roles.certs) {
        certificates::publish(&client, certificates, &mut tasks);
    }
    // One that serves must be Ready before: the Services lead to it only then.
    let contact =
        (roles.certs && !roles.serve()).then(|| first_contact::start(&config, &options.namespace, &mut tasks));
    if roles.analysis {
        analysis::start(&config, &options, &mut tasks)?;
    }
    let (health_socket, stopping) = (options.health_socket.clone(), tasks.stopping(Stage::HandOver));
    let (health, mut tasks) = if roles.works_in_namespaces() {
        let content_key = Arc::new(content_key::start(&client, &options).await?);
        let (index, mut registry) = (Arc::new(Index::default()), Registry::with_prefix("nudge"));
        options.watch.metrics.register(&mut registry);
        let runtimes = vec![("main", Handle::current())];
        let mut plane = ControlPlane { options, config, client, index, content_key, registry, runtimes, tasks };
        let watches = watch_cluster(plane.client.clone(), Arc::clone(&plane.index), plane.options.watch.clone());
        plane.tasks.spawn("watches", watches);
        if roles.sources {
            sources::start(&mut plane)?;
        }
        match certificates.filter(|_| roles.serve()) {
            Some(certificates) => serve_others(plane, certificates, stopping).await?,
            None => (probes(Probed { known: None, contact, stopping }, plane.registry), plane.tasks),
        }
    } else {
        if roles.certs {
            tasks.spawn("content key", content_key::keep(client, options));
        }
        (probes(Probed { known: None, contact, stopping }, Registry::default()), tasks)
    };
    let health = Arc::new(health);
    if let Some(listener) = health_listener {
        tasks.spawn("health", health::serve(listener, Arc::clone(&health)));
    }
    if let Some(path) = health_socket {
        let listener = health_socket::bind(&path).map_err(|source| ServeError::Socket { path, source })?;
        tasks.spawn("health socket", health_socket::serve(listener, health));
    }
    Ok(tasks)
}

/// Starts the roles control and hub, as far as this process has them.
async fn serve_others(
    mut plane: ControlPlane,
    certificates: Certificates,
    stopping: Stopping,
) -> Result<(Health, Tasks), ServeError> {
    let roles = plane.options.roles;
    let features = if roles.control {
        let features = webhooks::start(&mut plane, &certificates).await?;
        plane.apart("controllers", controllers::start)?;
        Some(features)
    } else {
        None
    };
    if roles.hub {
        hub::start(&mut plane, &certificates)?;
    }
    let ControlPlane { options, index, registry, runtimes, tasks, .. } = plane;
    let known = Known { index, certificates, features, runtimes, stale: options.stale };
    Ok((probes(Probed { known: Some(known), contact: None, stopping }, registry), tasks))
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
