//! `nudge-injector serve`: starts the parts of the control plane, and runs them until a signal or a failure.

use std::sync::Arc;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::index::Index;
use nudge_cluster::watch::watch_cluster;
use nudge_core::derived_keys::{ContentKey, Keys};
use nudge_server::slots::Bounds;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::control_plane::{ControlPlane, NamedRuntime, address, listen};
use super::health::Health;
use super::options::Options;
use super::probes::{ProbeInputs, ServingState, probes};
use super::roles::Role;
use super::serve_error::ServeError;
use super::settings::ServeSettings;
use super::{
    analysis, certificates, cluster, content_key, controllers, first_contact, health, health_socket, hub, logging,
    open_files, sources, webhooks,
};
use crate::task_supervisor::{ShutdownStage, Stopping, Tasks};

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
    let limit = options.shutdown_timeout;
    let tasks = Box::pin(start(options)).await?;
    let signal = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(tasks.run(signal, limit).await?)
}

/// Starts the roles of this process, each as soon as its prerequisites are there.
async fn start(options: Options) -> Result<Tasks, ServeError> {
    let (config, client) = cluster::find().await?;
    let roles = options.roles.clone();
    // A process that serves nobody and has no metrics does not listen at all.
    let health_listener = if roles.serve() || roles.has(Role::Sources) {
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
    // The certificates come first, so that they are renewed even if the content key can't be used.
    let certificates = certificates::start(&client, &options, &mut tasks).await?;
    if let Some(certificates) = certificates.as_ref().filter(|_| roles.has(Role::Certs)) {
        certificates::publish(&client, certificates, &mut tasks);
    }
    // A process that serves must be Ready before the first contact, because the Services lead only to Ready pods.
    let contact = (roles.has(Role::Certs) && !roles.serve())
        .then(|| first_contact::start(&config, &options.namespace, &mut tasks));
    if roles.has(Role::Analysis) {
        analysis::start(&config, &options, &mut tasks)?;
    }
    let (health_socket, stopping) = (options.health_socket.clone(), tasks.stopping(ShutdownStage::HandOver));
    let (health, mut tasks) = if roles.works_in_namespaces() {
        let content_key = Arc::new(content_key::load_content_key(&client, &options).await?);
        let (index, mut registry) = (Arc::new(Index::default()), Registry::with_prefix("nudge"));
        options.watch.metrics.register(&mut registry);
        let runtimes = vec![NamedRuntime { name: "main", handle: Handle::current() }];
        let mut plane = ControlPlane { options, config, client, index, content_key, registry, runtimes, tasks };
        let watches = watch_cluster(plane.client.clone(), Arc::clone(&plane.index), plane.options.watch.clone());
        plane.tasks.spawn("watches", watches);
        if roles.has(Role::Sources) {
            sources::start(&mut plane)?;
        }
        match certificates.filter(|_| roles.serve()) {
            Some(certificates) => serve_others(plane, certificates, stopping).await?,
            None => (probes(ProbeInputs { serving: None, contact, stopping }, plane.registry), plane.tasks),
        }
    } else {
        if roles.has(Role::Certs) {
            tasks.spawn("content key", content_key::ensure_exists(client, options));
        }
        (probes(ProbeInputs { serving: None, contact, stopping }, Registry::default()), tasks)
    };
    let health = Arc::new(health);
    if let Some(listener) = health_listener {
        let (bounds, longest) = (Bounds::shared(health::MAX_CONNECTIONS), health::CONNECTION_TIMEOUT);
        tasks.spawn("health", health::serve("health", listener, bounds, longest, Arc::clone(&health)));
    }
    if let Some(path) = health_socket {
        let listener = health_socket::bind(&path).map_err(|source| ServeError::Socket { path, source })?;
        tasks.spawn("health socket", health_socket::serve(listener, health));
    }
    Ok(tasks)
}

/// Starts the roles control and hub, if this process has them.
async fn serve_others(
    mut plane: ControlPlane,
    certificates: Certificates,
    stopping: Stopping,
) -> Result<(Health, Tasks), ServeError> {
    let roles = plane.options.roles.clone();
    let features = if roles.has(Role::Control) {
        let note = content_key::load_note_key(&plane.client, &plane.options).await?;
        let keys = Keys { content: ContentKey::clone(&plane.content_key), note };
        let features = webhooks::start(&mut plane, &certificates, Arc::new(keys.note.clone())).await?;
        plane.start_separately("controllers", |plane| controllers::start(plane, keys))?;
        Some(features)
    } else {
        None
    };
    if roles.has(Role::Hub) {
        hub::start(&mut plane, &certificates)?;
    }
    let ControlPlane { options, index, registry, runtimes, tasks, .. } = plane;
    let serving = ServingState { index, certificates, features, runtimes, max_watch_silence: options.stale };
    Ok((probes(ProbeInputs { serving: Some(serving), contact: None, stopping }, registry), tasks))
}
