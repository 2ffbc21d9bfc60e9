//! The hub's settings: all its limits and timeouts.

use std::time::Duration;

use nudge_protocol::hub::{BEHIND_SECONDS, HubSettings};
use nudge_server::rates::Rate;

/// The interval of a pod's reports. Of the reports in one interval, only the newest is accepted.
pub(crate) const REPORT_PERIOD: Duration = Duration::from_secs(2);

/// The limits and timeouts of the hub. Tests set smaller ones.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum number of connections, with a share for each address: see `nudge_server::slots`.
    pub max_connections: usize,
    /// The maximum number of concurrent TLS handshakes, a quarter of them from one address. Others wait for their turn,
    /// so that after a storm the first clients are done early instead of all late.
    pub max_handshakes: usize,
    /// The maximum wait of a handshake, or of the review of a token, for its turn.
    pub turn_timeout: Duration,
    /// The maximum duration of a handshake, without the wait for its turn.
    pub handshake_timeout: Duration,
    /// The maximum duration of reading a request's head, and the maximum wait for its first byte on a new connection.
    pub head_timeout: Duration,
    /// The maximum bytes of a request's head.
    pub max_head_bytes: usize,
    /// The maximum duration of reading a request's body.
    pub body_timeout: Duration,
    /// The maximum time between two requests.
    pub idle_timeout: Duration,
    /// The maximum duration of writing a small reply, and the maximum pause in a client's reading of any reply.
    pub write_timeout: Duration,
    /// The minimum speed of a client's reading of a large reply.
    pub min_bytes_per_second: usize,
    /// The maximum age of a connection, give or take 20 %.
    pub max_connection_age: Duration,
    /// The maximum number of held polls of one pod; one more ends the oldest.
    pub max_polls_per_pod: usize,
    /// The maximum bytes of request bodies at the same time, a quarter of them from one address.
    pub max_body_bytes: usize,
    /// The maximum number of token reviews at the same time, a quarter of them from one address, half of them of one
    /// namespace.
    pub max_reviews: usize,
    /// The rate of token reviews of one address: a node has some hundred pods, whose agents may all ask at once.
    pub review_rate: Rate,
    /// The maximum duration of one review.
    pub review_timeout: Duration,
    /// How long a refusal of a token is remembered.
    pub max_refusal_age: Duration,
    /// The maximum time that an accepted token is remembered.
    pub max_token_age: Duration,
    /// The maximum number of tokens that are remembered.
    pub max_tokens: usize,
    /// The maximum number of requests of one address that wait for a pod that is new here.
    pub max_waiting_requests: u32,
    /// The time that a poll is held when this replica knows less than the agent.
    pub behind_timeout: Duration,
    /// The maximum silence of a watch. After a longer silence, this replica counts as stale.
    pub max_watch_silence: Duration,
    /// The time that a poll is held while content is fetched. After it, the answer is `Resolving`.
    pub resolve_timeout: Duration,
    /// The maximum bytes of contents that are kept.
    pub max_content_bytes: usize,
    /// The maximum number of fetches of contents at the same time.
    pub max_fetches: usize,
    /// The time that content is kept while it is assigned to no pod.
    pub max_unused_age: Duration,
    /// The maximum time until a pod's first report. After that, the pod counts as without contact.
    pub contact_timeout: Duration,
    /// The period over which agents are sent away on shutdown.
    pub drain_period: Duration,
    /// The settings that agents get.
    pub agents: HubSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 12_000,
            max_handshakes: 64,
            turn_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            max_head_bytes: 8 * 1024,
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(20),
            min_bytes_per_second: 32 * 1024,
            max_connection_age: Duration::from_mins(30),
            max_polls_per_pod: 2,
            max_body_bytes: 16 * 1024 * 1024,
            max_reviews: 50,
            review_rate: Rate { per_second: 1000, burst: 2000 },
            review_timeout: Duration::from_secs(10),
            max_refusal_age: Duration::from_secs(5),
            max_token_age: Duration::from_mins(10),
            max_tokens: 24_000,
            max_waiting_requests: 256,
            behind_timeout: Duration::from_secs(BEHIND_SECONDS.into()),
            max_watch_silence: Duration::from_secs(90),
            resolve_timeout: Duration::from_secs(10),
            max_content_bytes: 256 * 1024 * 1024,
            max_fetches: 8,
            max_unused_age: Duration::from_mins(1),
            contact_timeout: Duration::from_mins(1),
            drain_period: Duration::from_secs(8),
            // Agents report as often as reports are taken.
            agents: HubSettings {
                report_seconds: u32::try_from(REPORT_PERIOD.as_secs()).unwrap_or(u32::MAX),
                ..HubSettings::default()
            },
        }
    }
}
