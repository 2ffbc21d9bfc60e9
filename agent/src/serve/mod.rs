//! The endpoint: HTTPS for the pod's own containers.
//!
//! A connection passes `endpoint` (TLS), `connections` (slots) and `router` (what is requested) before `handler` answers. Nothing on this
//! path waits for another client or for the notification of containers. `bindings` says where it listens.

mod addresses;
mod bindings;
mod body;
mod connections;
mod endpoint;
mod handler;
mod limits;
mod refusal;
mod router;

pub use addresses::OwnAddresses;
pub use bindings::{BindError, Bindings, bind};
pub use body::ReplyBody;
pub use connections::{Connection, Connections, Origin};
pub use endpoint::{Endpoint, serve};
pub use handler::App;
pub use limits::Limits;
pub use refusal::Refusal;
pub use router::{Call, ConfigFormat, route};
