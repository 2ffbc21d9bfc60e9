//! `nudge-injector serve`: starts the parts of the control plane, and runs them until a signal or a failure.

use std::sync::Arc;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::index::Index;
use nudge_cluster::watch::watch_cluster;
use nudge_core::derived_keys::{ContentKey, Keys};
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::health::Health;
use super::options::Options;
use super::plane::{ControlPlane, ServeError, address, listen};
use super::probes::{ProbeInputs, Probed, probes};
use super::settings::ServeSettings;
use super::{
    analysis, certificates, cluster, content_key, controllers, first_contact, health, health_socket, hub, logging,
    open_files, sources, webhooks,
};
use crate::supervise::{Stage, Stopping, Tasks};

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
        let content_key = Arc::new(content_key::content(&client, &options).await?);
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
            tasks.spawn("content key", content_key::ensure_exists(client, options));
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
        let note = content_key::note(&plane.client, &plane.options).await?;
        let keys = Keys { content: ContentKey::clone(&plane.content_key), note };
        let features = webhooks::start(&mut plane, &certificates, Arc::new(keys.note.clone())).await?;
        plane.apart("controllers", |plane| controllers::start(plane, keys))?;
        Some(features)
    } else {
        None
    };
    if roles.hub {
        hub::start(&mut plane, &certificates)?;
    }
    let ControlPlane { options, index, registry, runtimes, tasks, .. } = plane;
    let known = ProbeInputs { index, certificates, features, runtimes, stale: options.stale };
    Ok((probes(Probed { known: Some(known), contact: None, stopping }, registry), tasks))
}
