//! How the tasks of a loop end.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt as _;
use tokio::task::JoinError;

/// Returns what a future returns, and `None` where it panics.
pub async fn catch_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

/// A task ends when it is aborted. Its panic goes on to the task that waits for it.
pub(crate) fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}
