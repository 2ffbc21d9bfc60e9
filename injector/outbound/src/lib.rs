//! Requests to servers that users name. They go only to checked addresses, have limits, and follow no redirect.
// The crate computes with numbers from other servers, and nothing may overflow.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod authorities;
mod connect;
mod http;
mod tls_fault;

pub use authorities::{Authorities, authorities_from_pem, system_authorities};
pub use connect::{ConnectError, Reach, connect, resolve};
pub use http::{Bounds, HttpError, exchange, request, sensitive};
