//! How the tasks of a loop end.

use std::panic::resume_unwind;

use tokio::task::{AbortHandle, JoinError};

/// Ends a task, which does not stay.
pub fn abort(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// A task ends when it is aborted. Its panic goes on to the task that waits for it.
pub fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}
