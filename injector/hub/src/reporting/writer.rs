//! Writes pod conditions: the newest of each pod, as many at the same time as the API server answers quickly, and only where the pod does not have
//! it already.

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
use super::failing_namespaces::FailingNamespaces;
use super::write_order::{PendingWrite, RefusalScope};
use super::write_queue::WriteQueue;
use crate::metrics::{ConditionResult, Metrics};

/// How long one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits after refusals: somebody may have to bind a role, or an API server that starts does not know the roles yet. The longest is shorter
/// than what rollouts wait for.
const REFUSED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(2) };
/// Waits until it is decided again about a pod that has changed meanwhile: the watch has to bring the change.
const CHANGED_POD_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_millis(6400) };
/// Waits after failures that may pass. How often the API server is asked follows from [`Concurrency`].
const UNAVAILABLE_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(8) };
/// How long until a pod is looked at again whose agent knows more than this replica.
pub(super) const BEHIND_REPLICA_DELAY: Duration = Duration::from_secs(5);

/// What is done about a pod's condition.
#[derive(Debug)]
pub(super) enum WritePlan {
    /// The condition is as it should be, or this replica knows nothing of the pod.
    Nothing,
    Write(Arc<PodState>, Report),
    /// The pod is looked at again later: the agent, which does not repeat its report, knows more than this replica.
    Later,
}

/// Writes until dropped, by what `plan` says. What can't be written is tried again until `plan` says otherwise.
pub(super) async fn write_all(
    queue: &WriteQueue,
    writer: &Arc<dyn ConditionWriter>,
    metrics: &Metrics,
    plan: impl Fn(&PodKey) -> WritePlan,
) {
    let (mut concurrency, mut failing) = (Concurrency::default(), FailingNamespaces::default());
    let mut running = FuturesUnordered::new();
    // Pods that are being written, and what became due meanwhile.
    let mut busy: HashMap<PodKey, Option<PendingWrite>> = HashMap::new();
    loop {
        metrics.condition_limit(concurrency.limit());
        let rests = concurrency.rests();
        let next = async {
            if let Some(rests) = rests {
                sleep_until(rests).await;
            }
            queue.next().await
        };
        let write = tokio::select! {
            Some((write, began, result)) = running.next() => {
                let (write, at_once): (PendingWrite, usize) = (write, busy.len());
                let again = busy.remove(&write.pod).flatten();
                let (namespace, now) = (&write.pod.namespace, Instant::now());
                match &result {
                    Err(WriteError::Unavailable(_)) => concurrency.refused(began, now),
                    Err(WriteError::Failed(_)) => {
                        if failing.failed(namespace, began, now) && now >= began + WRITE_TIMEOUT {
                            concurrency.shrink(began, now);
                        }
                    }
                    _ => {
                        concurrency.answered(began, at_once, now);
                        failing.answered(namespace, began);
                    }
                }
                finish(queue, write, result, metrics);
                if let Some(again) = again {
                    queue.add(again, Duration::ZERO);
                }
                continue;
            }
            write = next, if busy.len() < concurrency.limit() => write,
        };
        if let Some(again) = busy.get_mut(&write.pod) {
            let urgent = write.urgent || again.as_ref().is_some_and(|again| again.urgent);
            *again = Some(PendingWrite { urgent, ..write });
            continue;
        }
        // Thousands may rest, or have nothing to write.
        if let Some((first, until)) = failing.rests(&write.pod.namespace, Instant::now()) {
            queue.put(PendingWrite { failing: write.failing.or(Some(first)), ..write }, until);
            tokio::task::yield_now().await;
            continue;
        }
        match plan(&write.pod) {
            WritePlan::Nothing => tokio::task::yield_now().await,
            WritePlan::Later => queue.put(PendingWrite { since: None, ..write }, Instant::now() + BEHIND_REPLICA_DELAY),
            WritePlan::Write(pod, condition) => {
                failing.begins(&write.pod.namespace, Instant::now() + WRITE_TIMEOUT);
                busy.insert(write.pod.clone(), None);
                running.push(async move {
                    let began = Instant::now();
                    let result = timeout(WRITE_TIMEOUT, writer.write(&pod, &condition)).await;
                    let late = |_| Err(WriteError::Failed("no answer in time".into()));
                    (write, began, result.unwrap_or_else(late))
                });
            }
        }
    }
}

/// Takes the result of a write.
fn finish(queue: &WriteQueue, write: PendingWrite, result: Result<(), WriteError>, metrics: &Metrics) {
    let Err(error) = result else {
        queue.written(&write.pod.namespace);
        return metrics.condition(ConditionResult::Written);
    };
    metrics.condition(match error {
        WriteError::Gone | WriteError::Refused(_) => ConditionResult::Refused,
        WriteError::Changed => ConditionResult::Changed,
        WriteError::Failed(_) | WriteError::Unavailable(_) => ConditionResult::Unavailable,
    });
    let (namespace, pod) = (&write.pod.namespace, &write.pod.name);
    tracing::debug!(namespace, pod, error = chain(&error), "pod condition not written");
    let Some(pause) = pause(&error, write.failures) else { return };
    // Only others can end a refusal.
    let refused = matches!(error, WriteError::Refused(_));
    let since = write.since.filter(|_| !refused);
    let refusal = match (refused, write.refusal) {
        (_, RefusalScope::Pod) => RefusalScope::Pod,
        (true, _) => RefusalScope::Namespace,
        (false, _) => RefusalScope::None,
    };
    let (failures, now) = (write.failures.saturating_add(1), Instant::now());
    let fails = matches!(error, WriteError::Failed(_) | WriteError::Changed).then_some(now);
    queue.put(PendingWrite { failures, refusal, since, failing: write.failing.or(fails), ..write }, now + pause);
}

/// Returns how long until a failed write is tried again; `None` where the pod is gone. It never gives up otherwise, since the agent does not repeat
/// a report that was taken.
fn pause(error: &WriteError, failures: u32) -> Option<Duration> {
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
