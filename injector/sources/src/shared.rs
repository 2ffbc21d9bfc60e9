//! What all sources need.

use std::sync::Arc;

use kube::Client;
use nudge_cluster::guarded::Guard;
use nudge_cluster::turns::Turns;
use nudge_git::Mirrors;
use nudge_outbound::Authorities;
use ring::hmac;

use crate::metrics::FetchMetrics;

/// What all sources need.
pub struct Sources {
    /// Asks the API server.
    pub client: Client,
    /// Names of versions with Secrets are keyed by it.
    pub content_key: Arc<hmac::Key>,
    /// The service account of this process, as kubectl takes it.
    pub account: String,
    /// How long one watch lasts, in seconds.
    pub watch_seconds: u32,
    /// What nothing is sent to.
    pub guard: Guard,
    /// The authorities that this image trusts.
    pub roots: Authorities,
    /// The mirrors of git repositories.
    pub mirrors: Mirrors,
    /// Counts what servers are asked for.
    pub metrics: FetchMetrics,
    /// Who may ask a registry or Vault now.
    pub turns: Turns,
    /// Who may fetch from a git server now.
    pub git_turns: Turns,
}

impl Sources {
    /// Turns for [`Sources::turns`]: 8 sources at the same time, 2 of one namespace. Each may hold a layer of 64 MiB.
    pub fn turns() -> Turns {
        Turns::new(8, 2)
    }

    /// How many git servers are fetched from at the same time. The memory and the disk of the pod are for as many.
    pub const GIT_TURNS: usize = 4;

    /// Turns for [`Sources::git_turns`]: of one namespace, whose servers may all be slow, 1 at the same time.
    pub fn git_turns() -> Turns {
        Turns::new(Self::GIT_TURNS, 1)
    }
}
