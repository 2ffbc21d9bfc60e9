//! The ends of tasks: their panics are caught, or passed on.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt as _;
use tokio::task::JoinError;

/// Returns the result of a future; `None` if it panics.
pub async fn catch_panic<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

/// Passes the panic of a task on to the waiting task. An aborted task ends without a panic.
pub(crate) fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}
