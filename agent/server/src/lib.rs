//! How Nudge accepts connections: slots with a share for each peer, bounds on what a peer may have at once, and TLS.

pub mod shares;
pub mod slots;
pub mod tls;
