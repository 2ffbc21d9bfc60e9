//! The HTTPS server that the API server calls, with its own listener, threads and runtime: nothing else in the process can keep it
//! waiting.

mod client_authority;
mod exchange;
mod listener;
mod refusal_log;
mod start;

use std::net::SocketAddr;
use std::time::Duration;

pub use client_authority::{Clients, ClientsError};
pub use start::{AdmissionServer, StartError};

/// Bounds of the server. A test crosses each of them.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Threads that answer.
    pub threads: usize,
    /// Most connections, with a share for each address: see `nudge_server::slots`. Of a third of as many
    /// requests at the same time a namespace has half at most, and a user three quarters.
    pub connections: usize,
    /// TLS handshakes at the same time, of one address a quarter.
    pub handshakes: usize,
    /// How long a connection waits for the turn of its handshake.
    pub turn: Duration,
    /// How long a TLS handshake may take, without waiting for its turn.
    pub handshake: Duration,
    /// How long a connection may be idle, or take to send the head of a request. Longer than the 90 s after which the API server
    /// closes idle connections itself: one closed by us just when it is used again would fail a request.
    pub idle: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// Longest body in bytes. An update holds an object twice, and each byte of it can take six in JSON.
    pub body_bytes: usize,
    /// Bodies longer than [`SMALL_BODY_BYTES`] share this many bytes, of which no address has more than a quarter. A body for which there
    /// is no room waits, as long as a review may take.
    pub all_bodies_bytes: usize,
    /// The objects parsed from all bodies share this many bytes of memory in the same way until the review is over; of what an address may
    /// have, a namespace has half at most, and a user three quarters. A body that takes more than a quarter is refused before it is parsed, so
    /// no review takes more than four bytes for each that a body may have.
    pub all_objects_bytes: usize,
    /// Objects that take less than [`SMALL_OBJECT_BYTES`] have so much memory apart, and don't wait for larger ones.
    pub all_small_objects_bytes: usize,
    /// How long a review may take if the API server does not say.
    pub review: Duration,
    /// The longest that a review may take whatever the API server says.
    pub longest_review: Duration,
    /// How long requests have to end when the server stops.
    pub stop: Duration,
}

/// Bodies up to this length always have room: 512 times this is still little.
pub(crate) const SMALL_BODY_BYTES: usize = 64 * 1024;

/// The maximum of objects take less memory than this, in bytes.
pub(crate) const SMALL_OBJECT_BYTES: usize = 512 * 1024;

impl AdmissionSettings {
    /// The usual bounds.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            threads: 2,
            connections: 512,
            handshakes: 64,
            turn: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            body: Duration::from_secs(5),
            body_bytes: 16 * 1024 * 1024,
            all_bodies_bytes: 64 * 1024 * 1024,
            all_objects_bytes: 256 * 1024 * 1024,
            all_small_objects_bytes: 64 * 1024 * 1024,
            review: Duration::from_millis(2500),
            longest_review: Duration::from_secs(5),
            stop: Duration::from_secs(10),
        }
    }
}
