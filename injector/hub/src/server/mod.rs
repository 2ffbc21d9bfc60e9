//! The server for agents: its connections, one request and one reply over each at a time, and which module answers a
//! request.

mod connection;
mod http;
mod listener;
mod routes;

pub use self::listener::{bind, serve};
