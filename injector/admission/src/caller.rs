//! The sender of a review, as far as the connection shows it.

use std::net::IpAddr;

use nudge_server::slots::Peer;

/// The client at the other end of the connection: the API server, or anybody else who reaches the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The address of the client.
    pub address: IpAddr,
    /// Whether the caller has a certificate of the authority for clients. If so, the user's name and groups in the
    /// review come from the API server.
    pub authenticated: bool,
}

impl Caller {
    /// Returns a client that has shown no certificate.
    pub fn unauthenticated(address: impl Into<IpAddr>) -> Self {
        Self { address: address.into(), authenticated: false }
    }

    /// Returns the peer whose share the requests of the client count for.
    pub fn peer(self) -> Peer {
        self.address.into()
    }
}
