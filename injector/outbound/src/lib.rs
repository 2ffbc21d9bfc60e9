//! Requests to servers that users name: to the addresses that were looked at and to no others, within bounds, and with no redirect followed.
// What others send is computed with: nothing overflows.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod authorities;
mod connect;
mod fault;
mod http;

pub use authorities::{Authorities, of_image, of_pem};
pub use connect::{ConnectError, Reach, connect, resolve};
pub use http::{Bounds, HttpError, exchange, request};
