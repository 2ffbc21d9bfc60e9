//! How Nudge accepts connections. The agent's endpoint, the hub, the webhook server, health and metrics, and the health
//! socket share one accept loop ([`accept`]), one slot table ([`slots`]), one TLS handshake ([`tls`]) and one drain.

pub mod accept;
pub mod http;
pub mod listener;
pub mod memory;
pub mod metrics;
pub mod rates;
pub mod shares;
pub mod slots;
pub mod stall;
pub mod tls;
