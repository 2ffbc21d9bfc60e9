//! What the roles share that work in namespaces, and why they can't start.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kube::{Client, Config};
use nudge_admission::{ClientAuthorityError, StartError};
use nudge_certs::CertificatesError;
use nudge_cluster::index::Index;
use nudge_cluster::lease::{Leadership, Lease, LeaseSettings};
use nudge_core::derived_keys::ContentKey;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::cluster::{self, ClusterError};
use super::content_key::ContentKeyError;
use super::options::{Options, OptionsError};
use crate::supervise::{Stage, TaskError, Tasks};

/// Why serving could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// The settings can't be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A runtime can't start.
    #[error("the runtime can't start")]
    Runtime(#[source] io::Error),
    /// The API server is not known.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A port can't be listened on.
    #[error("can't listen on {address} for {what}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What would be served there.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The socket for probes can't be listened on.
    #[error("can't listen on {}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The keys.
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
    Clients(#[from] ClientAuthorityError),
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
    pub(super) content_key: Arc<ContentKey>,
    pub(super) registry: Registry,
    /// Where tasks run, by name.
    pub(super) runtimes: Vec<(&'static str, Handle)>,
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
    pub(super) fn apart(&mut self, name: &'static str, start: impl FnOnce(&mut Self)) -> Result<(), ServeError> {
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

/// All addresses; on a machine without IPv6 all of IPv4.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let all = Ipv6Addr::UNSPECIFIED;
    if address.ip() == all && std::net::TcpListener::bind((all, 0)).is_err() {
        return SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    }
    address
}

/// Listens for `what`.
pub(super) async fn listen(address: SocketAddr, what: &'static str) -> Result<TcpListener, ServeError> {
    TcpListener::bind(reachable(address)).await.map_err(|source| ServeError::Listen { address, what, source })
}

/// The address of a listener, for the log.
pub(super) fn address(listener: &TcpListener) -> String {
    listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
}
