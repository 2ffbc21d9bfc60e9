//! The endpoint: HTTPS for the pod's own containers.
//!
//! A connection passes `listener` (admission, TLS), `connections` (bounds) and `router` (what is asked for) before
//! `handler` answers. Nothing on this way can wait for another client or for the telling of containers.

mod addresses;
mod body;
mod connections;
mod handler;
mod hooks_api;
mod limits;
mod listener;
mod metrics;
mod refusal;
mod router;
mod stall;
mod tls;

pub use addresses::OwnAddresses;
pub use body::ReplyBody;
pub use connections::{Connection, Connections, Origin};
pub use handler::App;
pub use limits::Limits;
pub use listener::{BindError, Endpoint, bind, serve};
pub use metrics::{Channel, HubCall, Metrics};
pub use refusal::Refusal;
pub use router::{Call, ConfigFormat, route};
pub use tls::tls_config;
