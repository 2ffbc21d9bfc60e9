//! The parts that are shared by the roles that work in namespaces.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use kube::{Client, Config};
use nudge_cluster::index::Index;
use nudge_cluster::lease::{Leadership, Lease, LeaseSettings};
use nudge_core::derived_keys::ContentKey;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::cluster;
use super::options::Options;
use super::serve_error::ServeError;
use crate::task_supervisor::{ShutdownStage, Tasks};

/// The parts that are shared by the roles that work in namespaces.
pub(super) struct ControlPlane {
    pub(super) options: Options,
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) index: Arc<Index>,
    pub(super) content_key: Arc<ContentKey>,
    pub(super) registry: Registry,
    pub(super) runtimes: Vec<NamedRuntime>,
    pub(super) tasks: Tasks,
}

/// A runtime of this process.
pub(super) struct NamedRuntime {
    pub(super) name: &'static str,
    pub(super) handle: Handle,
}

impl ControlPlane {
    /// Returns a lease that is not held yet.
    pub(super) fn lease(&self, settings: &LeaseSettings) -> Lease {
        Lease::new(self.client.clone(), settings.clone())
    }

    /// Begins to compete for a lease.
    pub(super) fn lead(&mut self, name: &'static str, lease: Lease) -> Leadership {
        let leadership = lease.leadership();
        self.tasks.spawn_until(ShutdownStage::HandOver, name, |stopping| lease.run(stopping));
        leadership
    }

    /// Starts a part on a separate runtime and with a separate client, so that it delays nothing else while its threads
    /// are busy.
    pub(super) fn start_separately(
        &mut self,
        name: &'static str,
        start: impl FnOnce(&mut Self),
    ) -> Result<(), ServeError> {
        let handle = self.tasks.begin_runtime(name).map_err(ServeError::Runtime)?;
        self.runtimes.push(NamedRuntime { name, handle: handle.clone() });
        let guard = handle.enter();
        let shared = std::mem::replace(&mut self.client, cluster::client(&self.config)?);
        start(self);
        self.client = shared;
        drop(guard);
        self.tasks.end_runtime();
        Ok(())
    }
}

/// Replaces `[::]` by `0.0.0.0` on a machine without IPv6.
pub(super) fn bindable(address: SocketAddr) -> SocketAddr {
    let unspecified = Ipv6Addr::UNSPECIFIED;
    if address.ip() == unspecified && std::net::TcpListener::bind((unspecified, 0)).is_err() {
        return SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    }
    address
}

/// Listens on an address. `what` names the service there, for the error.
pub(super) async fn listen(address: SocketAddr, what: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(bindable(address)).await.map_err(|source| ServeError::Listen { address, what, source })
}

/// Returns the address of a listener, for the log.
pub(super) fn address(listener: &TcpListener) -> String {
    listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
}
