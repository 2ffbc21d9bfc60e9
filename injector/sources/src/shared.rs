//! What all sources need, and how their tasks end.

use std::panic::resume_unwind;
use std::sync::Arc;

use kube::Client;
use ring::hmac;
use tokio::task::{AbortHandle, JoinError};

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
