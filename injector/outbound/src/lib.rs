//! Requests to servers that users name: only to addresses that were checked, within bounds, and with no redirect
//! followed.
// Numbers come from other servers, and no computation with them may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod authorities;
mod connect;
mod http;
mod tls_fault;

pub use authorities::{Authorities, authorities_from_pem, system_authorities};
pub use connect::{ConnectError, Reach, connect, resolve};
pub use http::{Bounds, HttpError, exchange, request};
