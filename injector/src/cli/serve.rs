//! `nudge-injector serve`: wires the watches, the controllers, the hub and the admission to each other.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use nudge_admission::{AdmissionMetrics, AdmissionSettings, StartError};
use nudge_certs::{
    CertificateFiles, Certificates, CertificatesError, KubeSecret, Lifetimes, PublishTimes, ServingNameError,
    ServingNames, publish_to_namespaces, publish_to_webhooks,
};
use nudge_cluster::index::{Index, IndexEvent};
use nudge_cluster::kubeconfig::no_client;
use nudge_cluster::lease::{Leadership, Lease, LeaseSettings};
use nudge_cluster::watch::{WatchSettings, watch_cluster};
use nudge_controller as controller;
use nudge_controller::{ContentKeyError, Controller, ControllerMetrics, RolloutMetrics};
use nudge_core::namespaces::Enabled;
use nudge_hub as hub;
use nudge_hub::Hub;
use nudge_protocol::error_chain::chain;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::NoCluster;
use super::probes::{Probed, probes};
use super::settings::ServeSettings;
use super::{cluster, guards, injecting, logging, tuning};
use super::{health, health_socket};

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// No runtime.
    #[error("the runtime can't start")]
    Runtime(#[source] io::Error),
    /// The API server is not known.
    #[error(transparent)]
    Cluster(#[from] NoCluster),
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
    /// Their names.
    #[error(transparent)]
    Name(#[from] ServingNameError),
    /// The admission server.
    #[error(transparent)]
    Admission(#[from] StartError),
    /// Signals can't be received.
    #[error("signals can't be received")]
    Signals(#[source] io::Error),
}

impl ServeError {
    /// The way out, where the error alone does not show it.
    pub(super) fn help(&self) -> Option<&'static str> {
        match self {
            Self::Cluster(error) => Some(error.help()),
            _ => None,
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub(super) fn serve(settings: ServeSettings) -> Result<(), ServeError> {
    logging::begin(settings.log_level, settings.log_format);
    tuning::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ServeError::Runtime)?;
    let result = runtime.block_on(run(settings));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(settings: ServeSettings) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let mut config = cluster::find().await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    let client = Client::try_from(config.clone()).map_err(|error| NoCluster::Unusable(no_client(&error)))?;
    let health_listener = listen(settings.listen_health, "health and metrics").await?;
    let replica = settings.replica();
    tracing::info!(replica, version = env!("CARGO_PKG_VERSION"), health = %address(&health_listener), "starting");

    let (mut registry, controller_metrics, rollout_metrics, admission_metrics) = metrics();

    let index = Arc::new(Index::default());
    let content_key = Arc::new(
        patiently(|| controller::content_key(client.clone(), &settings.namespace, &settings.content_key_secret))
            .await?,
    );
    let watches = WatchSettings { seconds: settings.watch_seconds, enabled: enabled(&settings) };
    let watching = tokio::spawn(watch_cluster(client.clone(), Arc::clone(&index), watches)).abort_handle();

    let (stop, stopping) = watch::channel(false);
    let lease = Lease::new(
        client.clone(),
        LeaseSettings {
            namespace: settings.namespace.clone(),
            name: settings.lease.clone(),
            identity: replica.clone(),
            duration: Duration::from_secs(settings.lease_seconds.into()),
        },
    );
    let leadership = lease.leadership();
    let leading = tokio::spawn(lease.run(stopping.clone()));
    let certificates = certificates(&client, &settings).await?;
    let injecting = injecting::begin(&settings, client.clone(), &index, certificates.ca_bundle(), &mut registry);
    let (versions, features) = (injecting.task.clone(), injecting.known.features.clone());
    let admission = guards::start(
        AdmissionSettings::new(reachable(settings.listen_admission)),
        certificates.server_config(),
        admission_metrics,
        config,
        guards::Means {
            index: Arc::clone(&index),
            enabled: enabled(&settings),
            content_key: Arc::clone(&content_key),
            injecting,
        },
    )
    .await?;
    tracing::info!(admission = %admission.address(), "admission reviews are taken");

    let controller = Arc::new(Controller::new(
        client.clone(),
        Arc::clone(&index),
        Arc::clone(&content_key),
        &replica,
        longest_silence(settings.watch_seconds),
        rollout_metrics,
    ));
    let controlling =
        tokio::spawn(controller::run(controller, Arc::clone(&index), leadership.clone(), controller_metrics))
            .abort_handle();
    let publishing = publish_bundle(client.clone(), certificates.ca_bundle(), Arc::clone(&index), leadership.clone());
    tokio::spawn(publishing);
    injecting::begin_repair(&settings, client.clone(), &index, leadership.clone(), &replica, &mut registry);
    let telling = controller::tell_warnings(client.clone(), Arc::clone(&index), leadership.clone(), replica.clone());
    tokio::spawn(telling);

    let hub = make_hub(&index, &client, &settings, content_key, &mut registry);
    let hub_listener = hub::bind(reachable(settings.listen_hub)).map_err(|source| ServeError::Listen {
        address: settings.listen_hub,
        what: "agents",
        source,
    })?;
    tracing::info!(hub = %address(&hub_listener), "agents are taken");
    tokio::spawn(sweep(Arc::clone(&hub), leadership.clone()));
    let serving =
        tokio::spawn(serve_hub(hub, hub_listener, certificates.server_config(), Arc::clone(&index), stopping.clone()));

    let admission = Arc::new(admission);
    let vital =
        vec![("the watches", watching), ("the controllers", controlling), ("the reading of versions", versions)];
    let probed = Probed {
        index,
        admission: Arc::downgrade(&admission),
        certificates: Arc::new(certificates),
        features,
        vital,
        silence: longest_silence(settings.watch_seconds),
        stopping,
    };
    let answering = answer_probes(health_listener, settings.health_socket, probes(probed, registry))?;

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending");
    stop.send_replace(true);
    // Agents are handed over first; the lease and admission go to other replicas meanwhile.
    let _ = leading.await;
    let _ = serving.await;
    answering.iter().for_each(JoinHandle::abort);
    if let Some(admission) = Arc::into_inner(admission) {
        admission.stop().await;
    }
    Ok(())
}

/// Answers whether the replica is well.
fn answer_probes(
    listener: TcpListener,
    socket: Option<PathBuf>,
    health: health::Health,
) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let health = Arc::new(health);
    let mut answering = vec![tokio::spawn(health::serve(listener, Arc::clone(&health)))];
    if let Some(path) = socket {
        let listener = health_socket::bind(&path).map_err(|source| ServeError::Socket { path, source })?;
        answering.push(tokio::spawn(health_socket::serve(listener, health)));
    }
    Ok(answering)
}

/// What is counted from the start on.
fn metrics() -> (Registry, ControllerMetrics, RolloutMetrics, AdmissionMetrics) {
    let mut registry = Registry::with_prefix("nudge");
    let (controllers, rollouts, admission) =
        (ControllerMetrics::default(), RolloutMetrics::default(), AdmissionMetrics::default());
    controllers.register(&mut registry);
    rollouts.register(&mut registry);
    admission.register(&mut registry);
    (registry, controllers, rollouts, admission)
}

fn enabled(settings: &ServeSettings) -> Enabled {
    if settings.all_namespaces { Enabled::all_but(&settings.namespace) } else { Enabled::Labelled }
}

fn make_hub(
    index: &Arc<Index>,
    client: &Client,
    settings: &ServeSettings,
    content_key: Arc<ring::hmac::Key>,
    registry: &mut Registry,
) -> Arc<Hub> {
    let mut bounds = hub::Settings {
        connections: usize::try_from(settings.hub_connections).unwrap_or(usize::MAX),
        drain: Duration::from_secs(settings.drain_seconds.into()),
        stale: longest_silence(settings.watch_seconds),
        ..hub::Settings::default()
    };
    bounds.agents.wait_seconds = settings.hub_wait_seconds;
    let hub = Hub::new(Arc::clone(index), hub::Cluster::new(client.clone()), bounds, content_key, registry);
    let warm = Arc::downgrade(&hub);
    index.listen(move |event| {
        if let IndexEvent::Config(key) = event
            && let Some(hub) = warm.upgrade()
        {
            hub.warm(key);
        }
    });
    hub
}

/// Marks pods whose agent has never made contact, while this replica leads.
async fn sweep(hub: Arc<Hub>, mut leadership: Leadership) {
    let mut turns = tokio::time::interval(Duration::from_secs(30));
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        turns.tick().await;
        if *leadership.borrow() {
            hub.sweep();
        }
    }
}

/// Serves agents from the moment at which there is something to serve: before, every config would be unknown.
async fn serve_hub(
    hub: Arc<Hub>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    index: Arc<Index>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut stopped = stopping.clone();
    tokio::select! {
        () = index.synced() => {}
        _ = stopping.wait_for(|stop| *stop) => return,
    }
    let stop = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    hub::serve(listener, tls, hub, stop).await;
}

/// A watch that is silent for longer is begun anew by itself; if even that fails for long, others know more than this replica.
fn longest_silence(watch_seconds: u32) -> Duration {
    Duration::from_secs(u64::from(watch_seconds) * 3 + 30)
}

async fn certificates(client: &Client, settings: &ServeSettings) -> Result<Certificates, ServeError> {
    if let Some(folder) = &settings.certificate_dir {
        return Ok(Certificates::from_files(CertificateFiles::in_folder(folder), Duration::from_secs(15))?);
    }
    let store = KubeSecret::new(client.clone(), &settings.namespace, &settings.certificate_secret);
    let names = ServingNames::new(settings.names())?;
    let day = Duration::from_hours(24);
    let lifetimes = Lifetimes { authority: day * settings.ca_days, ..Lifetimes::default() };
    Ok(Certificates::keep(store, names, lifetimes).await?)
}

/// Keeps what others trust up to date, while this replica leads.
async fn publish_bundle(
    client: Client,
    bundle: watch::Receiver<Arc<str>>,
    index: Arc<Index>,
    mut leadership: Leadership,
) {
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        let times = PublishTimes::default();
        let webhooks = publish_to_webhooks(client.clone(), bundle.clone(), times);
        let namespaces = publish_to_namespaces(client.clone(), bundle.clone(), index.enabled(), times);
        tokio::select! {
            _ = async { tokio::join!(webhooks, namespaces) } => return,
            _ = leadership.wait_for(|leads| !*leads) => {}
        }
    }
}

/// All addresses, of IPv4 only on a machine without IPv6.
fn reachable(address: SocketAddr) -> SocketAddr {
    let all = std::net::Ipv6Addr::UNSPECIFIED;
    if address.ip() == all && std::net::TcpListener::bind((all, 0)).is_err() {
        return SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, address.port()));
    }
    address
}

async fn listen(address: SocketAddr, what: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(reachable(address)).await.map_err(|source| ServeError::Listen { address, what, source })
}

fn address(listener: &TcpListener) -> String {
    listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
}

/// Tries again while the API server is away, for ever: a pod that starts before it must not crash in a loop.
async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ContentKeyError>
where
    F: Future<Output = Result<T, ContentKeyError>>,
{
    let mut failures = 0_u32;
    loop {
        match attempt().await {
            Err(ContentKeyError::Call(error)) => {
                failures += 1;
                tracing::warn!(cause = chain(&error), failures, "waiting for the API server");
                let wait = Duration::from_millis(250) * 2_u32.pow(failures.min(6));
                tokio::time::sleep(wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            }
            other => return other,
        }
    }
}
