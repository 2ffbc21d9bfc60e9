//! The parts that all tasks share.

use kube::Client;
use nudge_cluster::guarded_reader::GuardedReader;
use nudge_cluster::turns::Turns;
use nudge_outbound::{Authorities, system_authorities};

/// The maximum number of pairs of queries at the same time.
const MAX_QUERIES: usize = 32;
/// The maximum number of pairs of queries of one namespace at the same time.
const MAX_NAMESPACE_QUERIES: usize = 4;
/// The maximum number of rehearsal queries at the same time. They do not take turns of rollouts.
const MAX_REHEARSALS: usize = 4;
/// The maximum number of rehearsal queries of one namespace at the same time.
const MAX_NAMESPACE_REHEARSALS: usize = 1;

/// The parts that all tasks share.
pub struct Analyses {
    /// The client of the API server.
    pub(crate) client: Client,
    /// The service account of this process, in the form that kubectl accepts.
    pub(crate) account: String,
    /// The length of one watch, in seconds.
    pub(crate) watch_seconds: u32,
    /// The reader of the addresses that no query may be sent to.
    pub(crate) guarded: GuardedReader,
    /// The turns of queries.
    pub(crate) turns: Turns,
    /// The turns of rehearsal queries.
    pub(crate) rehearsals: Turns,
    /// The authorities that this image trusts.
    pub(crate) roots: Authorities,
}

impl Analyses {
    /// Returns the parts. `guarded` reads the addresses that no query may be sent to.
    pub fn new(client: Client, guarded: GuardedReader, account: String, watch_seconds: u32) -> Self {
        let turns = Turns::new(MAX_QUERIES, MAX_NAMESPACE_QUERIES);
        let rehearsals = Turns::new(MAX_REHEARSALS, MAX_NAMESPACE_REHEARSALS);
        Self { client, account, watch_seconds, guarded, turns, rehearsals, roots: system_authorities() }
    }
}
