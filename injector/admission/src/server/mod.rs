//! The HTTPS server that the API server calls, with its own listener, threads and runtime: nothing else in the process
//! can keep it waiting.

mod client_authority;
mod exchange;
mod listener;
mod refusal_log;
mod start;

use std::net::SocketAddr;
use std::time::Duration;

pub use client_authority::{ClientAuthority, ClientAuthorityError};
pub use start::{AdmissionServer, StartError};

/// The bounds of the server. A test crosses each of them.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionSettings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The number of threads that answer.
    pub threads: usize,
    /// The maximum number of connections, with a share for each address: see `nudge_server::slots`. The number of
    /// requests that run at the same time is at most a third of it: at most half of these for one namespace, and three
    /// quarters for one user.
    pub max_connections: usize,
    /// The maximum number of concurrent TLS handshakes. One address gets at most a quarter of them.
    pub max_handshakes: usize,
    /// The time that a connection waits for the turn of its handshake.
    pub turn_timeout: Duration,
    /// The time that a TLS handshake may take, without waiting for its turn.
    pub handshake_timeout: Duration,
    /// The time that a connection may be idle, or take to send the head of a request. It is longer than 90 s, when the
    /// API server closes idle connections itself. If we closed a connection just before its next use, a request would
    /// fail.
    pub idle_timeout: Duration,
    /// The time that the body of a request may take.
    pub body_timeout: Duration,
    /// The maximum length of a body. An update holds an object twice, and each byte of it can take six in JSON.
    pub max_body_bytes: usize,
    /// The memory of all bodies longer than `SMALL_BODY_BYTES`. One address gets at most a quarter of it. A body waits
    /// for it, as long as a review may take.
    pub all_bodies_bytes: usize,
    /// The memory of the objects parsed from all bodies, until their reviews are over. One address gets at most a
    /// quarter of it. Of that quarter, one namespace gets at most half, and one user three quarters. A body that takes
    /// more than a quarter is refused before it is parsed, so no review takes more than four bytes for each byte that a
    /// body may have.
    pub all_objects_bytes: usize,
    /// The memory of all objects that take less than `SMALL_OBJECT_BYTES` each. They don't wait for larger ones.
    pub all_small_objects_bytes: usize,
    /// The time that a review may take if the API server names no timeout.
    pub review_timeout: Duration,
    /// The time that a review may take whatever timeout the API server names.
    pub max_review_timeout: Duration,
    /// The time that requests have to end when the server stops.
    pub stop_timeout: Duration,
}

/// The maximum length of a body that does not wait for memory: 512 times this is still little.
pub(crate) const SMALL_BODY_BYTES: usize = 64 * 1024;

/// The maximum memory of objects that count as small, as most do.
pub(crate) const SMALL_OBJECT_BYTES: usize = 512 * 1024;

impl AdmissionSettings {
    /// Returns the default bounds.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            threads: 2,
            max_connections: 512,
            max_handshakes: 64,
            turn_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(2),
            body_timeout: Duration::from_secs(5),
            max_body_bytes: 16 * 1024 * 1024,
            all_bodies_bytes: 64 * 1024 * 1024,
            all_objects_bytes: 256 * 1024 * 1024,
            all_small_objects_bytes: 64 * 1024 * 1024,
            review_timeout: Duration::from_millis(2500),
            max_review_timeout: Duration::from_secs(5),
            stop_timeout: Duration::from_secs(10),
        }
    }
}
