//! What all tasks need.

use kube::Client;
use nudge_cluster::guarded::GuardedReader;
use nudge_cluster::turns::Turns;
use nudge_outbound::{Authorities, system_authorities};

/// Pairs of queries at the same time.
const QUERIES: usize = 32;
/// The most pairs of queries of one namespace at the same time.
const QUERIES_OF_ONE: usize = 4;
/// Queries of rehearsals at the same time, which take no turn of a rollout.
const REHEARSALS: usize = 4;
/// The most rehearsal queries of one namespace at the same time.
const REHEARSALS_OF_ONE: usize = 1;

/// What all tasks need.
pub struct Analyses {
    /// Asks the API server.
    pub(crate) client: Client,
    /// The service account of this process, as kubectl takes it.
    pub(crate) account: String,
    /// How long one watch lasts, in seconds.
    pub(crate) watch_seconds: u32,
    /// What no query is sent to.
    pub(crate) guarded: GuardedReader,
    /// Who may ask now.
    pub(crate) turns: Turns,
    /// Who may rehearse now.
    pub(crate) rehearsals: Turns,
    /// The authorities that this image trusts.
    pub(crate) roots: Authorities,
}

impl Analyses {
    /// `guarded` is the reader of addresses that no query is sent to.
    pub fn new(client: Client, guarded: GuardedReader, account: String, watch_seconds: u32) -> Self {
        let turns = Turns::new(QUERIES, QUERIES_OF_ONE);
        let rehearsals = Turns::new(REHEARSALS, REHEARSALS_OF_ONE);
        Self { client, account, watch_seconds, guarded, turns, rehearsals, roots: system_authorities() }
    }
}
