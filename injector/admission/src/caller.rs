//! Who has sent a review, as far as the connection shows.

use std::net::IpAddr;

use nudge_server::slots::Peer;

/// The client at the other end of the connection: the API server, or anybody else who reaches the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its address.
    pub address: IpAddr,
    /// The caller has a certificate of the authority for clients, so what the review says of the user is what the API server says.
    pub authenticated: bool,
}

impl Caller {
    /// A client that has shown no certificate.
    pub fn unauthenticated(address: impl Into<IpAddr>) -> Self {
        Self { address: address.into(), authenticated: false }
    }

    /// Whom its share counts for.
    pub fn peer(self) -> Peer {
        self.address.into()
    }
}
