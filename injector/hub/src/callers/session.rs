//! The origin of a connection, and the session of a pod over it.

use std::net::IpAddr;
use std::sync::Arc;

use nudge_server::slots::Peer;
use tokio::time::Instant;

use super::reviewer::Caller;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOrigin {
    pub(crate) address: IpAddr,
    /// The peer that the address is counted for.
    pub(crate) peer: Peer,
    /// The time when the connection began.
    pub(crate) since: Instant,
}

/// A request of a pod whose token was reviewed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) caller: Arc<Caller>,
    /// The name of the token in the audit trail.
    pub(crate) token_id: String,
    pub(crate) from: ConnectionOrigin,
    /// The time when the token has to be reviewed again.
    pub(crate) until: Instant,
}
