//! The endpoint's bounds. Together they stay under the agent's memory limit, 32 MiB by default; a test below adds them
//! up.

use std::time::Duration;

use nudge_protocol::limits::MAX_WEBHOOKS;

/// The bounds of the endpoint. Tests set smaller ones.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of connections from the pod itself. The connection that is idle longest gives way to a new
    /// connection.
    pub connections: usize,
    /// The maximum number of connections from elsewhere, which get health and metrics only.
    pub foreign_connections: usize,
    /// The maximum number of requests that wait for a change at the same time.
    pub waiting: usize,
    /// The maximum time from accepting a connection until its TLS handshake is done.
    pub handshake: Duration,
    /// The maximum time from the end of one request, or the handshake, until the next request's head is there whole.
    pub head: Duration,
    /// The maximum size of a request's head, in bytes.
    pub head_bytes: usize,
    /// The maximum size of a request's path and query, in bytes.
    pub target_bytes: usize,
    /// The maximum size of a request's body, in bytes.
    pub body_bytes: usize,
    /// The maximum time until a request's body is there whole.
    pub body: Duration,
    /// The maximum time that a client may leave all of the bytes sent to it unread.
    pub stall: Duration,
    /// The number of bytes that TLS encrypts before the client reads them.
    pub ahead_bytes: usize,
    /// The number of bytes that TLS encrypts ahead while there are many connections.
    pub ahead_bytes_crowded: usize,
    /// The maximum number of connections that count as few.
    pub uncrowded: usize,
    /// The longest `?wait=`.
    pub wait: Duration,
    /// The maximum number of webhooks in one pod.
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
            ahead_bytes: 64 * 1024,
            ahead_bytes_crowded: 8 * 1024,
            uncrowded: 32,
            wait: Duration::from_mins(5),
            hooks: MAX_WEBHOOKS,
        }
    }
}

#[cfg(test)]
mod tests {
    use nudge_protocol::limits::{MAX_DICTIONARY_BYTES, MAX_ENV_BYTES};

    use super::*;

    /// Memory of the process before anything is served, in bytes; the benchmark measures half of it.
    const BASE: usize = 2 * 1024 * 1024;
    /// Memory of an idle connection, in bytes; the benchmark measures 27 KiB.
    const CONNECTION: usize = 30 * 1024;

    #[test]
    fn all_bounds_together_stay_under_the_memory_limit() {
        let limits = Limits::default();
        // The values and the JSON of the served dictionary, the same of the next dictionary, and a smaller dictionary
        // that slow readers still get.
        let dictionaries = 4 * MAX_DICTIONARY_BYTES + 2 * 1024 * 1024 + MAX_ENV_BYTES;
        // The file of the last good contents: memory volumes count too. Once the new file is written next to it, the
        // old dictionary has gone.
        let last_good = MAX_DICTIONARY_BYTES;
        // A poll and a report, each with the buffer for the hub's reply.
        let hub = 2 * (CONNECTION + 64 * 1024);
        let connections = limits.connections + limits.foreign_connections;
        let ahead =
            limits.uncrowded * limits.ahead_bytes + (connections - limits.uncrowded) * limits.ahead_bytes_crowded;
        let all = BASE + dictionaries + last_good + hub + connections * CONNECTION + ahead;
        assert!(all <= 32 * 1024 * 1024, "{all} bytes");
        // Containers are asked about the next dictionary. The content of a further dictionary may arrive meanwhile.
        let asking = all + MAX_DICTIONARY_BYTES;
        assert!(asking <= 36 * 1024 * 1024, "{asking} bytes with checks, for which injection adds 4 MiB");
    }
}
