//! The hub's bounds in one place.

use std::time::Duration;

use nudge_protocol::hub::{BEHIND_SECONDS, HubSettings};
use nudge_server::rates::Rate;

/// How often a report of one pod is taken: the newest, whatever number came.
pub(crate) const REPORT_PERIOD: Duration = Duration::from_secs(2);

/// The bounds of the hub. Tests set smaller ones.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Connections at the same time, with a share for each address: see `nudge_server::slots`.
    pub connections: usize,
    /// TLS handshakes at the same time, of one address a quarter. The rest wait for their turn, so that after a storm the first are done early
    /// instead of all late.
    pub handshakes: usize,
    /// From accepting a connection until its handshake has a turn, and from a request until the review of its token has one.
    pub turn: Duration,
    /// From accepting a connection until its handshake is done, without waiting for a turn.
    pub handshake: Duration,
    /// From a request's first byte until its head is there whole; also how long a new connection has for that first byte.
    pub head: Duration,
    /// Size of a request's head, in bytes.
    pub head_bytes: usize,
    /// Until a request's body is there whole.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// How long a client may take for a small reply, and may read nothing of any reply.
    pub write: Duration,
    /// What it must take of a large one per second more, in bytes.
    pub rate: usize,
    /// After how long a connection is closed, give or take 20 %.
    pub age: Duration,
    /// Held polls of one pod; one more ends the oldest.
    pub held_per_pod: usize,
    /// Bytes of request bodies at the same time, of one address a quarter.
    pub body_bytes: usize,
    /// Token reviews at the same time, of one address a quarter, of one namespace a half.
    pub reviews: usize,
    /// Token reviews of one address: a node has some hundred pods, whose agents may all ask at once.
    pub review_rate: Rate,
    /// How long one review may take.
    pub review: Duration,
    /// How long a refusal of a token is remembered.
    pub refusal: Duration,
    /// The longest that an accepted token is remembered.
    pub accepted: Duration,
    /// Tokens that are remembered.
    pub tokens: usize,
    /// Requests of one address that wait for a pod that is new here.
    pub waiting: u32,
    /// How long a poll is held when this replica knows less than the agent.
    pub behind: Duration,
    /// After which silence of a watch this replica does not trust what it knows to be the newest.
    pub stale: Duration,
    /// How long a poll is held for content that is being fetched before it answers `Resolving`.
    pub resolve: Duration,
    /// Content kept at the same time, in bytes.
    pub content_bytes: usize,
    /// Reads of version objects at the same time.
    pub fetches: usize,
    /// How long content that no pod is assigned to is kept.
    pub unused: Duration,
    /// After how long without a first report a pod counts as without contact.
    pub contact: Duration,
    /// Over which time agents are sent away on shutdown.
    pub drain: Duration,
    /// What agents are asked for.
    pub agents: HubSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 12_000,
            handshakes: 64,
            turn: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            head_bytes: 8 * 1024,
            body: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            write: Duration::from_secs(20),
            rate: 32 * 1024,
            age: Duration::from_mins(30),
            held_per_pod: 2,
            body_bytes: 16 * 1024 * 1024,
            reviews: 50,
            review_rate: Rate { per_second: 1000, burst: 2000 },
            review: Duration::from_secs(10),
            refusal: Duration::from_secs(5),
            accepted: Duration::from_mins(10),
            tokens: 24_000,
            waiting: 256,
            behind: Duration::from_secs(BEHIND_SECONDS.into()),
            stale: Duration::from_secs(90),
            resolve: Duration::from_secs(10),
            content_bytes: 256 * 1024 * 1024,
            fetches: 8,
            unused: Duration::from_mins(1),
            contact: Duration::from_mins(1),
            drain: Duration::from_secs(8),
            // As often as reports are taken.
            agents: HubSettings {
                report_seconds: u32::try_from(REPORT_PERIOD.as_secs()).unwrap_or(u32::MAX),
                ..HubSettings::default()
            },
        }
    }
}
