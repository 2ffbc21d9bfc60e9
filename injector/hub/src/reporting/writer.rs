//! Writes the newest condition of each pod that lacks it. As many writes run at the same time as the API server answers
//! quickly.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use nudge_core::keys::PodKey;
use nudge_core::pods::{PodState, Report};
use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::time::{Instant, sleep_until, timeout};

use super::concurrency::Concurrency;
use super::condition_writer::{ConditionWriter, WriteError};
use super::failing_namespaces::{FailingNamespaces, NamespacePause};
use super::write_order::{PendingWrite, RefusalScope};
use super::write_queue::WriteQueue;
use crate::metrics::{ConditionResult, Metrics};

/// The maximum duration of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delays after refusals: somebody may have to bind a role, or a starting API server does not know the roles yet.
/// The longest delay is shorter than the wait of rollouts.
const REFUSED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(2) };
/// The delays until the condition of a pod that has changed meanwhile is decided again: the watch has to bring the
/// change.
const CHANGED_POD_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(6400) };
/// The delays after failures that may pass. [`Concurrency`] limits the load of the API server.
const UNAVAILABLE_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
/// The delay until a pod's condition is decided again, if its agent knows more than this replica.
pub(super) const BEHIND_REPLICA_DELAY: Duration = Duration::from_secs(5);

/// The plan for a pod's condition.
#[derive(Debug)]
pub(super) enum WritePlan {
    /// The condition is as it should be, or this replica knows nothing of the pod.
    Nothing,
    Write(Arc<PodState>, Report),
    /// The condition is decided again later, because the agent, which does not repeat its report, knows more than this
    /// replica.
    Later,
}

/// Writes the conditions that `plan` returns, until dropped. A failed write is retried for as long as `plan` returns a
/// condition.
pub(super) async fn write_all(
    queue: &WriteQueue,
    writer: &Arc<dyn ConditionWriter>,
    metrics: &Metrics,
    plan: impl Fn(&PodKey) -> WritePlan,
) {
    let (mut concurrency, mut failing) = (Concurrency::default(), FailingNamespaces::default());
    let mut running = FuturesUnordered::new();
    // The pods that are being written, with the write that became due meanwhile.
    let mut busy: HashMap<PodKey, Option<PendingWrite>> = HashMap::new();
    loop {
        metrics.set_condition_limit(concurrency.limit());
        let paused_until = concurrency.paused_until();
        let next = async {
            if let Some(pause_end) = paused_until {
                sleep_until(pause_end).await;
            }
            queue.next().await
        };
        let write = tokio::select! {
            Some((write, began, result)) = running.next() => {
                let (write, concurrent_writes): (PendingWrite, usize) = (write, busy.len());
                let next_write = busy.remove(&write.pod).flatten();
                let (namespace, now) = (&write.pod.namespace, Instant::now());
                match &result {
                    Err(WriteError::Unavailable(_)) => concurrency.record_refusal(began, now),
                    Err(WriteError::Failed(_)) => {
                        if failing.record_failure(namespace, began, now) && now >= began + WRITE_TIMEOUT {
                            concurrency.shrink(began, now);
                        }
                    }
                    _ => {
                        concurrency.record_answer(began, concurrent_writes, now);
                        failing.record_answer(namespace, began);
                    }
                }
                finish(queue, write, result, metrics);
                if let Some(write) = next_write {
                    queue.add(write, Duration::ZERO);
                }
                continue;
            }
            write = next, if busy.len() < concurrency.limit() => write,
        };
        if let Some(next_write) = busy.get_mut(&write.pod) {
            let urgent = write.urgent || next_write.as_ref().is_some_and(|next_write| next_write.urgent);
            *next_write = Some(PendingWrite { urgent, ..write });
            continue;
        }
        // Thousands of pods may be in a pause, or have nothing to write, so other tasks get their turn.
        if let Some(NamespacePause { failing_since, next_check }) = failing.pause(&write.pod.namespace, Instant::now())
        {
            let failing_since = write.failing_since.or(Some(failing_since));
            queue.retry(PendingWrite { failing_since, ..write }, next_check);
            tokio::task::yield_now().await;
            continue;
        }
        match plan(&write.pod) {
            WritePlan::Nothing => tokio::task::yield_now().await,
            WritePlan::Later => {
                queue.retry(PendingWrite { since: None, ..write }, Instant::now() + BEHIND_REPLICA_DELAY);
            }
            WritePlan::Write(pod, condition) => {
                failing.record_start(&write.pod.namespace, Instant::now() + WRITE_TIMEOUT);
                busy.insert(write.pod.clone(), None);
                running.push(async move {
                    let began = Instant::now();
                    let result = timeout(WRITE_TIMEOUT, writer.write(&pod, &condition)).await;
                    let timeout_error = |_| Err(WriteError::Failed("no answer in time".into()));
                    (write, began, result.unwrap_or_else(timeout_error))
                });
            }
        }
    }
}

/// Records the result of a write, and has a failed one retried.
fn finish(queue: &WriteQueue, write: PendingWrite, result: Result<(), WriteError>, metrics: &Metrics) {
    let Err(error) = result else {
        queue.record_write(&write.pod.namespace);
        return metrics.count_condition(ConditionResult::Written);
    };
    metrics.count_condition(match error {
        WriteError::Gone | WriteError::Refused(_) => ConditionResult::Refused,
        WriteError::Changed => ConditionResult::Changed,
        WriteError::Failed(_) | WriteError::Unavailable(_) => ConditionResult::Unavailable,
    });
    let (namespace, pod) = (&write.pod.namespace, &write.pod.name);
    tracing::debug!(namespace, pod, error = chain(&error), "pod condition not written");
    let Some(delay) = retry_delay(&error, write.failures) else { return };
    // The hub can't end a refusal, so the wait does not count.
    let is_refused = matches!(error, WriteError::Refused(_));
    let since = write.since.filter(|_| !is_refused);
    let refusal = match (is_refused, write.refusal) {
        (_, RefusalScope::Pod) => RefusalScope::Pod,
        (true, _) => RefusalScope::Namespace,
        (false, _) => RefusalScope::None,
    };
    let (failures, now) = (write.failures.saturating_add(1), Instant::now());
    let is_failing = matches!(error, WriteError::Failed(_) | WriteError::Changed);
    let failing_since = write.failing_since.or(is_failing.then_some(now));
    queue.retry(PendingWrite { failures, refusal, since, failing_since, ..write }, now + delay);
}

/// Returns the delay until a failed write is tried again; `None` if the pod is gone. Other failures are retried for
/// ever, as the agent does not repeat a report that was taken.
fn retry_delay(error: &WriteError, failures: u32) -> Option<Duration> {
    let backoff = match error {
        WriteError::Gone => return None,
        WriteError::Changed => CHANGED_POD_BACKOFF,
        WriteError::Refused(_) => REFUSED_BACKOFF,
        WriteError::Failed(_) | WriteError::Unavailable(_) => UNAVAILABLE_BACKOFF,
    };
    Some(backoff.wait(failures.saturating_add(1)))
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
