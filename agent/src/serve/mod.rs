//! The endpoint: HTTPS for the pod's own containers.
//!
//! A connection passes `endpoint` (TLS), `connections` (slots) and `router` (the kind of request) before `handler`
//! answers. Nothing on this path waits for another client or for the notification of containers. `bindings` has the
//! endpoint's listening addresses.

mod bindings;
mod connections;
mod endpoint;
mod handler;
mod limits;
mod own_addresses;
mod refusal;
mod reply_body;
mod router;

pub use bindings::{BindError, Bindings, bind};
pub use connections::{AgentConnection, Connections, RequestOrigin};
pub use endpoint::{Endpoint, serve};
pub use handler::App;
pub use limits::Limits;
pub use own_addresses::OwnAddresses;
pub use refusal::RequestRefusal;
pub use reply_body::ReplyBody;
pub use router::{Call, ConfigFormat, route};
