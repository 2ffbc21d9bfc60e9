use std::sync::Arc;

use kube::Client;
use nudge_api::Explanation;
use nudge_cluster::guarded_reader::GuardedReader;
use nudge_core::derived_keys::ContentKey;
use nudge_git::Mirrors;
use nudge_outbound::{Authorities, Reach};

use crate::budget::Budget;
use crate::metrics::FetchMetrics;
use crate::server_polls::fetch_failure;
use crate::write_rate::Rates;

/// The clients, keys and limits that all sources share.
pub struct Sources {
    /// The client of the API server.
    pub client: Client,
    /// The key that goes into the names of versions with Secrets.
    pub content_key: Arc<ContentKey>,
    /// The service account of this process, in the form that kubectl accepts.
    pub account: String,
    /// The length of one watch, in seconds.
    pub watch_seconds: u32,
    /// The reader of the addresses that no request may be sent to.
    pub guarded: GuardedReader,
    /// The authorities that this image trusts.
    pub roots: Authorities,
    /// The mirrors of git repositories.
    pub mirrors: Mirrors,
    /// The metrics of requests to servers.
    pub metrics: FetchMetrics,
    /// The memory and the places that all sources share.
    pub budget: Budget,
    /// The rates of writes, by namespace.
    pub rates: Arc<Rates>,
}

impl Sources {
    /// Returns how a server is reached: never at a guarded address. `server` is its name in messages.
    pub(crate) async fn reach(&self, server: &str) -> Result<Reach, Explanation> {
        self.guarded.read().await.map(Reach::Outside).map_err(|error| fetch_failure(server, error))
    }
}
