//! How the tasks of a loop end.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use nudge_protocol::backoff::Backoff;
use tokio::task::{AbortHandle, JoinError};
use tokio::time::{Instant, sleep};

/// Waits after panics of one task in a row.
const RESTART: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(10) };

/// Ends a task, which does not stay.
pub fn abort(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// Returns what a future returns, and `None` where it panics.
pub async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

/// Runs a task until it ends by itself. One that panics begins anew, later and later, while all others go on. `rest` says so to those whom
/// the task is for, and ends when it may begin.
pub async fn isolated<T: Future<Output = ()>, R: Future<Output = ()>>(
    what: &str,
    mut begin: impl FnMut() -> T,
    mut rest: impl FnMut(Duration) -> R,
) {
    let mut panics = 0_u32;
    loop {
        let began = Instant::now();
        if caught(async { begin().await }).await.is_some() {
            return;
        }
        panics = if began.elapsed() > RESTART.longest { 1 } else { panics.saturating_add(1) };
        let pause = RESTART.jittered(panics, rand::random());
        tracing::error!(task = what, panics, ?pause, "task panicked; restarting it alone");
        if caught(async { rest(pause).await }).await.is_none() {
            sleep(pause).await;
        }
    }
}

/// A task ends when it is aborted. Its panic goes on to the task that waits for it.
pub fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew_later_and_later_and_no_other_ends() {
        let (began, attempts, rests) = (Instant::now(), Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let mut tasks = JoinSet::new();
        let other = tasks.spawn(std::future::pending());
        let (tried, rested) = (Arc::clone(&attempts), Arc::clone(&rests));
        tasks.spawn(async move {
            let begin = || {
                tried.lock().unwrap().push(began.elapsed());
                let attempt = tried.lock().unwrap().len();
                async move { assert!(attempt == 6, "planted") }
            };
            let rest = |pause| {
                *rested.lock().unwrap() += 1;
                let planted = *rested.lock().unwrap() == 2;
                async move {
                    assert!(!planted, "planted");
                    sleep(pause).await;
                }
            };
            isolated("one", begin, rest).await;
        });
        let ended = tasks.join_next().await.unwrap();
        assert!(ended.is_ok() && !other.is_finished(), "{ended:?}");
        let attempts = attempts.lock().unwrap().clone();
        let waits: Vec<_> = attempts.windows(2).map(|two| two[1].saturating_sub(two[0]).as_secs_f64()).collect();
        let bounds = [(2.5, 5.0), (5.0, 10.0), (10.0, 20.0), (20.0, 40.0), (40.0, 80.0)];
        assert!(
            waits.iter().zip(bounds).all(|(wait, (least, most))| (least..=most + 0.01).contains(wait)),
            "{waits:?}"
        );
        assert_eq!((waits.len(), *rests.lock().unwrap()), (5, 5));
    }
}
