//! What all sources need.

use std::sync::Arc;

use kube::Client;
use nudge_cluster::guarded::Guard;
use nudge_core::derived_keys::ContentKey;
use nudge_git::Mirrors;
use nudge_outbound::Authorities;

use crate::limits::Budget;
use crate::metrics::FetchMetrics;
use crate::write_rate::Rates;

/// What all sources need.
pub struct Sources {
    /// Asks the API server.
    pub client: Client,
    /// Names of versions with Secrets are keyed by it.
    pub content_key: Arc<ContentKey>,
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
    /// What all sources may take together.
    pub budget: Budget,
    /// How often they may write.
    pub rates: Arc<Rates>,
}
