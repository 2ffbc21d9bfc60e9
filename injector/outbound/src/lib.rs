//! Requests to servers that users name: to the addresses that were looked at and to no others, within bounds, and with no redirect followed.

mod authorities;
mod connect;
mod http;

pub use authorities::{Authorities, of_image, of_pem};
pub use connect::{ConnectError, Reach, connect, resolve};
pub use http::{Bounds, HttpError, exchange, request};
