//! The hub, which agents poll.

use std::sync::Arc;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::index::{Index, IndexEvent};
use nudge_hub::{Cluster, Hub, bind, serve};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::controllers::while_leading;
use super::plane::{ControlPlane, ServeError, address, reachable};
use crate::supervise::{Stage, Stopping, stopped};

/// How often the hub that leads marks pods whose agent has never made contact.
const SWEEP: Duration = Duration::from_secs(30);

/// Listens for agents.
pub(super) fn start(plane: &mut ControlPlane, certificates: &Certificates) -> Result<(), ServeError> {
    let lease = plane.lease(&plane.options.hub_lease);
    let ControlPlane { options, client, index, content_key, registry, .. } = plane;
    let cluster = Cluster::new(client.clone());
    let hub = Hub::new(Arc::clone(index), cluster, options.hub.clone(), Arc::clone(content_key), registry);
    let warmed = Arc::downgrade(&hub);
    index.listen(move |event| {
        if let IndexEvent::Config(key) = event
            && let Some(hub) = warmed.upgrade()
        {
            hub.warm(key);
        }
    });
    let listener = bind(reachable(options.listen_hub)).map_err(|source| ServeError::Listen {
        address: options.listen_hub,
        what: "agents",
        source,
    })?;
    tracing::info!(hub = %address(&listener), "listening for agents");
    let noting = Arc::downgrade(&hub);
    let lease = lease.with_note(move || noting.upgrade()?.note());
    let leadership = plane.lead("lease of the hub", lease);
    let ControlPlane { index, tasks, .. } = plane;
    let (swept, leads) = (Arc::clone(&hub), leadership.clone());
    tasks.spawn_restarted("sweep of silent pods", move || {
        let hub = Arc::clone(&swept);
        while_leading(leads.clone(), move || sweep(Arc::clone(&hub)))
    });
    let (tls, index) = (certificates.server_config(), Arc::clone(index));
    tasks.spawn_until(Stage::HandOver, "hub", |stopping| serve_when_synced(hub, listener, tls, index, stopping));
    Ok(())
}

async fn sweep(hub: Arc<Hub>) {
    loop {
        hub.sweep();
        sleep(SWEEP).await;
    }
}

/// Serves agents once the index is complete: before, every config would be unknown.
async fn serve_when_synced(
    hub: Arc<Hub>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    index: Arc<Index>,
    stopping: Stopping,
) {
    tokio::select! {
        () = index.wait_until_synced() => {}
        () = stopped(stopping.clone()) => return,
    }
    serve(listener, tls, hub, stopped(stopping)).await;
}
