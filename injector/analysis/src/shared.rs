//! What all tasks need, and how they end.

use std::panic::resume_unwind;
use std::sync::Arc;

use kube::Client;
use rustls::RootCertStore;
use tokio::task::{AbortHandle, JoinError};

use crate::guard::Guard;
use crate::turns::Turns;

/// What all tasks need.
pub struct Analyses {
    /// Asks the API server.
    pub(crate) client: Client,
    /// The service account of this process, as kubectl takes it.
    pub(crate) account: String,
    /// How long one watch lasts, in seconds.
    pub(crate) watch_seconds: u32,
    /// What no query is sent to.
    pub(crate) guard: Guard,
    /// Who may ask now.
    pub(crate) turns: Turns,
    /// The authorities that this image trusts.
    pub(crate) roots: Arc<RootCertStore>,
}

impl Analyses {
    /// `server`: where the API server is, as this process reaches it.
    pub fn new(client: Client, server: &str, account: String, watch_seconds: u32) -> Self {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        Self {
            guard: Guard::new(client.clone(), server),
            client,
            account,
            watch_seconds,
            turns: Turns::default(),
            roots: Arc::new(roots),
        }
    }
}

/// Ends a task, which does not stay.
pub(crate) fn abort(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// A task ends when it is aborted. Its panic goes on to the task that waits for it.
pub(crate) fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}
