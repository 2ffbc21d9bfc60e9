//! The reasons why serving could not start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nudge_admission::{ClientAuthorityError, StartError};
use nudge_certs::CertificatesError;

use super::cluster::ClusterError;
use super::content_key::ContentKeyError;
use super::options::OptionsError;
use crate::task_supervisor::TaskError;

/// The reason why serving could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// The settings can't be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A runtime can't start.
    #[error("the runtime can't start")]
    Runtime(#[source] io::Error),
    /// There is no API server to work with.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Listening on a port fails.
    #[error("can't listen on {address} for {what}")]
    Listen {
        address: SocketAddr,
        /// The service at this address.
        what: &'static str,
        source: io::Error,
    },
    /// Listening on the socket for probes fails.
    #[error("can't listen on {}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The keys can't be used.
    #[error(transparent)]
    ContentKey(#[from] ContentKeyError),
    /// The certificates can't be used.
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// The admission server can't start.
    #[error(transparent)]
    Admission(#[from] StartError),
    /// The authority of clients that may post reviews can't be used.
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
    /// Returns the remedy, if the error alone does not show it.
    pub(super) fn help(&self) -> Option<&'static str> {
        match self {
            Self::Cluster(error) => Some(error.help()),
            _ => None,
        }
    }
}
