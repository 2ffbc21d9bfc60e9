//! The endpoint's listening addresses. An address that is in use is tried again until it is free.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nudge_protocol::status::ProblemReason;
use nudge_server::listener::{self, SocketOptions};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::proc::find_port_owner;
use crate::source::SourceFault;
use crate::status::StatusPage;

/// The options of the sockets. Replies of large dictionaries would otherwise fill megabytes of the kernel's buffers for
/// each slow client; requests are small.
const SOCKET_OPTIONS: SocketOptions =
    SocketOptions { backlog: 1024, send_buffer: Some(64 * 1024), receive_buffer: Some(16 * 1024), keepalive: None };
/// The time between two attempts to listen at an address.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The reason why the endpoint can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens at the address.
    #[error("port {} of {} is in use; choose another with --port, or --port 0 for a free one", address.port(), address.ip())]
    InUse {
        /// The address and port of the endpoint.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("can't listen on {address}")]
    Io {
        /// The address and port of the endpoint.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Listens on `address`. Needs a tokio runtime.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listener = listener::bind(address, &SOCKET_OPTIONS).and_then(TcpListener::from_std);
    listener.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address, source },
        _ => BindError::Io { address, source },
    })
}

/// The addresses that the endpoint listens on, and the addresses that it can't listen on yet.
#[derive(Debug)]
pub struct Bindings {
    first: SocketAddr,
    open: Vec<TcpListener>,
    faults: Vec<(SocketAddr, SourceFault)>,
}

impl From<TcpListener> for Bindings {
    fn from(listener: TcpListener) -> Self {
        let first = listener.local_addr().unwrap_or_else(|_| (IpAddr::from([0; 4]), 0).into());
        Self { first, open: vec![listener], faults: Vec::new() }
    }
}

impl Bindings {
    /// Listens at one port of these addresses; port 0 takes a free port of the first address. Needs a tokio runtime.
    /// Fails only if there is no port to try again.
    pub fn bind(addresses: &[IpAddr], mut port: u16) -> Result<Self, BindError> {
        let first = addresses.first().copied().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let (mut open, mut faults) = (Vec::new(), Vec::new());
        for &ip in [first].iter().chain(addresses.get(1..).unwrap_or_default()) {
            let address = SocketAddr::new(ip, port);
            match bind(address) {
                Ok(listener) => {
                    port = listener.local_addr().map_or(port, |local| local.port());
                    open.push(listener);
                }
                Err(error) if port == 0 => return Err(error),
                Err(error) => {
                    let fault = SourceFault::from(&error);
                    tracing::warn!(%address, reason = fault.reason.as_str(), error = fault.message, "can't listen; retrying");
                    faults.push((address, fault));
                }
            }
        }
        Ok(Self { first: SocketAddr::new(first, port), open, faults })
    }

    /// Returns the sockets that listen, and the addresses without one yet, each with its fault.
    pub(super) fn into_parts(self) -> (Vec<TcpListener>, Vec<(SocketAddr, SourceFault)>) {
        (self.open, self.faults)
    }

    /// Shows the addresses that the endpoint can't listen on.
    pub fn show_faults(&self, status: &StatusPage) {
        for (address, fault) in &self.faults {
            status.set_listen_fault(*address, Some(fault.clone()));
        }
    }

    /// Returns the first of the addresses, which clients are given.
    pub fn first(&self) -> SocketAddr {
        self.first
    }
}

/// Waits until the address is free, and listens there. `fault` is shown already.
pub(super) async fn bind_when_free(address: SocketAddr, mut fault: SourceFault, status: &StatusPage) -> TcpListener {
    loop {
        sleep(RETRY_INTERVAL).await;
        match bind(address) {
            Ok(listener) => {
                status.set_listen_fault(address, None);
                tracing::info!(%address, "listens");
                return listener;
            }
            // The process that has taken the port is searched only once, since that reads about all processes.
            Err(BindError::InUse { .. }) if fault.reason == ProblemReason::PortTaken => {}
            Err(error) => {
                fault = SourceFault::from(&error);
                status.set_listen_fault(address, Some(fault.clone()));
            }
        }
    }
}

impl From<&BindError> for SourceFault {
    fn from(error: &BindError) -> Self {
        match error {
            BindError::InUse { address, .. } => {
                let (port, ip, holder) = (address.port(), address.ip(), find_port_owner(*address));
                let message = format!(
                    "port {port} of {ip} is taken by {holder}; let it listen at 127.0.0.1, or give the agent another port by nudge.dev/agent-port"
                );
                Self { reason: ProblemReason::PortTaken, message }
            }
            BindError::Io { address, source } => {
                Self { reason: ProblemReason::Other, message: format!("can't listen on {address}: {source}") }
            }
        }
    }
}
