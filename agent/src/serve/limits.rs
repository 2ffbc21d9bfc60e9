//! The endpoint's bounds in one place.
//!
//! What they can cost together stays under the agent's memory limit (32 MiB by default): the dictionary, the one before
//! it that slow readers hold, and one being read and rendered, at most 4 MiB each; and for every connection its TLS and
//! HTTP buffers, at most about 60 KiB while a large reply is sent and 20 KiB while it is idle.

use std::time::Duration;

/// Bounds of the endpoint. Tests set smaller ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections from the pod itself. The one idle longest makes room for a new one.
    pub connections: usize,
    /// Connections from elsewhere, which get health and metrics only.
    pub foreign_connections: usize,
    /// Requests that wait for a change at the same time.
    pub waiting: usize,
    /// From accepting a connection until its TLS handshake is done.
    pub handshake: Duration,
    /// From the end of one request, or the handshake, until the next request's head is there whole.
    pub head: Duration,
    /// Size of a request's head, in bytes.
    pub head_bytes: usize,
    /// Size of a request's path and query, in bytes.
    pub target_bytes: usize,
    /// Size of a request's body, in bytes.
    pub body_bytes: usize,
    /// Until a request's body is there whole.
    pub body: Duration,
    /// How long a client may take none of the bytes that are sent to it.
    pub stall: Duration,
    /// The longest `?wait=`.
    pub wait: Duration,
    /// Web hooks in one pod.
    pub hooks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            foreign_connections: 8,
            waiting: 128,
            handshake: Duration::from_secs(10),
            head: Duration::from_mins(1),
            head_bytes: 8 * 1024,
            target_bytes: 2 * 1024,
            body_bytes: 4 * 1024,
            body: Duration::from_secs(10),
            stall: Duration::from_secs(20),
            wait: Duration::from_mins(5),
            hooks: 16,
        }
    }
}
