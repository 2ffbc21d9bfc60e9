//! The addresses at which the endpoint listens. One that is taken is tried again until it is free.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nudge_protocol::status::ProblemReason;
use nudge_server::listener::{self, SocketOptions};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::proc::holder;
use crate::source::Fault;
use crate::status::StatusPage;

/// Replies of large dictionaries would otherwise fill megabytes of the kernel's buffers for each slow client; requests are small.
const SOCKET: SocketOptions =
    SocketOptions { backlog: 1024, send_buffer: Some(64 * 1024), receive_buffer: Some(16 * 1024), keepalive: None };
/// Between two attempts to listen at an address.
const RETRY: Duration = Duration::from_secs(1);

/// Why the endpoint can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something else listens there.
    #[error("port {} of {} is in use; choose another with --port, or --port 0 for a free one", address.port(), address.ip())]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("can't listen on {address}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Listens on `address`. Needs a tokio runtime.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listener = listener::bind(address, &SOCKET).and_then(TcpListener::from_std);
    listener.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address, source },
        _ => BindError::Io { address, source },
    })
}

/// Where the endpoint listens, and where it is to listen.
#[derive(Debug)]
pub struct Bindings {
    /// The first of the addresses.
    first: SocketAddr,
    open: Vec<TcpListener>,
    taken: Vec<(SocketAddr, Fault)>,
}

impl From<TcpListener> for Bindings {
    fn from(listener: TcpListener) -> Self {
        let first = listener.local_addr().unwrap_or_else(|_| (IpAddr::from([0; 4]), 0).into());
        Self { first, open: vec![listener], taken: Vec::new() }
    }
}

impl Bindings {
    /// Listens at one port of these addresses; port 0 takes a free one of the first. Needs a tokio runtime. Fails only where there is no
    /// port to try again.
    pub fn bind(addresses: &[IpAddr], mut port: u16) -> Result<Self, BindError> {
        let first = addresses.first().copied().unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let (mut open, mut taken) = (Vec::new(), Vec::new());
        for &ip in [first].iter().chain(addresses.get(1..).unwrap_or_default()) {
            let address = SocketAddr::new(ip, port);
            match bind(address) {
                Ok(listener) => {
                    port = listener.local_addr().map_or(port, |local| local.port());
                    open.push(listener);
                }
                Err(error) if port == 0 => return Err(error),
                Err(error) => {
                    let fault = explain(&error);
                    tracing::warn!(%address, reason = fault.reason.as_str(), error = fault.message, "can't listen; retrying");
                    taken.push((address, fault));
                }
            }
        }
        Ok(Self { first: SocketAddr::new(first, port), open, taken })
    }

    /// The sockets that listen, and the addresses at which none does yet, each with the reason.
    pub(super) fn into_parts(self) -> (Vec<TcpListener>, Vec<(SocketAddr, Fault)>) {
        (self.open, self.taken)
    }

    /// Shows where the endpoint can't listen.
    pub fn show(&self, status: &StatusPage) {
        for (address, fault) in &self.taken {
            status.listens(*address, Some(fault.clone()));
        }
    }

    /// The first of the addresses, which clients are given.
    pub fn first(&self) -> SocketAddr {
        self.first
    }
}

/// Waits until the address is free, and listens there. `fault` is shown already.
pub(super) async fn until_free(address: SocketAddr, mut fault: Fault, status: &StatusPage) -> TcpListener {
    loop {
        sleep(RETRY).await;
        match bind(address) {
            Ok(listener) => {
                status.listens(address, None);
                tracing::info!(%address, "listens");
                return listener;
            }
            // Who has taken the port is looked for once: all processes are looked at for it.
            Err(BindError::InUse { .. }) if fault.reason == ProblemReason::PortTaken => {}
            Err(error) => {
                fault = explain(&error);
                status.listens(address, Some(fault.clone()));
            }
        }
    }
}

/// The fault that is reported.
fn explain(error: &BindError) -> Fault {
    match error {
        BindError::InUse { address, .. } => {
            let (port, ip, holder) = (address.port(), address.ip(), holder(*address));
            let message = format!(
                "port {port} of {ip} is taken by {holder}; let it listen at 127.0.0.1, or give the agent another port by nudge.dev/agent-port"
            );
            Fault { reason: ProblemReason::PortTaken, message }
        }
        BindError::Io { address, source } => {
            Fault { reason: ProblemReason::Other, message: format!("can't listen on {address}: {source}") }
        }
    }
}
