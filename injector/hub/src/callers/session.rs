//! A pod that asks, and the connection that it asks over.

use std::net::IpAddr;
use std::sync::Arc;

use nudge_server::slots::Peer;
use tokio::time::Instant;

use super::reviewer::Caller;

/// Where the requests of a connection come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) address: IpAddr,
    /// Whom the address is counted for.
    pub(crate) peer: Peer,
    /// When the connection began.
    pub(crate) since: Instant,
}

/// A request of a pod whose token was reviewed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) caller: Arc<Caller>,
    /// Names the token in the audit trail.
    pub(crate) token_id: String,
    pub(crate) from: Origin,
    /// When the token has to be reviewed again.
    pub(crate) until: Instant,
}
