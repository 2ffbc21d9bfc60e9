//! Starts the hub, which agents poll.

use std::sync::Arc;
use std::time::Duration;

use nudge_certs::Certificates;
use nudge_cluster::index::{Index, IndexEvent};
use nudge_hub::{Cluster, Hub, bind, serve};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::control_plane::{ControlPlane, address, bindable};
use super::controllers::while_leading;
use super::serve_error::ServeError;
use crate::task_supervisor::{ShutdownStage, Stopping, wait_for_stop};

/// The interval of the leading hub's marks of pods whose agent has never made contact.
const SILENT_PODS_INTERVAL: Duration = Duration::from_secs(30);

/// Listens for agents.
pub(super) fn start(plane: &mut ControlPlane, certificates: &Certificates) -> Result<(), ServeError> {
    let lease = plane.lease(&plane.options.hub_lease);
    let ControlPlane { options, client, index, content_key, registry, .. } = plane;
    let cluster = Cluster::new(client.clone());
    let hub = Hub::new(Arc::clone(index), cluster, options.hub.clone(), Arc::clone(content_key), registry);
    let weak = Arc::downgrade(&hub);
    index.listen(move |event| {
        if let IndexEvent::Config(key) = event
            && let Some(hub) = weak.upgrade()
        {
            hub.prefetch(key);
        }
    });
    let listener = bind(bindable(options.listen_hub)).map_err(|source| ServeError::Listen {
        address: options.listen_hub,
        what: "agents",
        source,
    })?;
    tracing::info!(hub = %address(&listener), "listening for agents");
    let weak = Arc::downgrade(&hub);
    let lease = lease.with_note(move || weak.upgrade()?.lease_note());
    let leadership = plane.lead("lease of the hub", lease);
    let ControlPlane { index, tasks, .. } = plane;
    let (marked_hub, leadership) = (Arc::clone(&hub), leadership.clone());
    tasks.spawn_restarted("sweep of silent pods", move || {
        let hub = Arc::clone(&marked_hub);
        while_leading(leadership.clone(), move || mark_silent_pods(Arc::clone(&hub)))
    });
    let (tls, index) = (certificates.server_config(), Arc::clone(index));
    tasks
        .spawn_until(ShutdownStage::HandOver, "hub", |stopping| serve_when_synced(hub, listener, tls, index, stopping));
    Ok(())
}

async fn mark_silent_pods(hub: Arc<Hub>) {
    loop {
        hub.mark_silent_pods();
        sleep(SILENT_PODS_INTERVAL).await;
    }
}

/// Serves agents when the index is complete. Before that, every config would be unknown.
async fn serve_when_synced(
    hub: Arc<Hub>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    index: Arc<Index>,
    stopping: Stopping,
) {
    tokio::select! {
        () = index.wait_until_synced() => {}
        () = wait_for_stop(stopping.clone()) => return,
    }
    serve(listener, tls, hub, wait_for_stop(stopping)).await;
}
