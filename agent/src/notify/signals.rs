//! Notifies one container by a signal: when it is sent, and when it is tried again.

use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;
use nudge_protocol::status::{NotificationStatus, Outcome};
use nudge_protocol::{ContainerName, NotifySignal};

use super::outcome::notified;
use super::scope::{Roots, Scope};
use super::targets::{Selection, select};
use crate::metrics::{Channel, Metrics};
use crate::proc::{LiveTable, Process, SendError, Sent, number, send};
use crate::publish::{Current, wait_for_other};
use crate::status::StatusPage;

/// How long an application may take to install its handler before that counts as a failure.
const HANDLER_GRACE: Duration = Duration::from_secs(10);
/// Waits within that time.
const EAGER_BACKOFF: Backoff = Backoff { first: Duration::from_millis(2), longest: Duration::from_millis(250) };
/// Waits after it: an application that installs its handler late still gets the last change.
const PATIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// No attempt begins later than this after the first one.
const GIVE_UP_TIMEOUT: Duration = Duration::from_mins(10);

/// How long to wait for a container that the hub has not reported yet; its start ends the wait.
const UNKNOWN_CONTAINER_WAIT: Duration = Duration::from_hours(24);

/// Sends `signal` to the container's processes whenever `ready` has changed, until the publisher is gone. The container starts with the
/// dictionary that `ready` has shown before, so nothing is sent for that one, unless it is `known` to have another.
pub async fn notify_by_signal(
    container: ContainerName,
    signal: NotifySignal,
    scope: Scope,
    mut ready: Current,
    known: Option<String>,
    status: StatusPage,
    metrics: Metrics,
) {
    let mut is_newer = wait_for_other(&mut ready, known.as_deref()).await;
    while is_newer {
        let Some(etag) = ready.borrow_and_update().as_ref().map(|published| published.dictionary.etag().to_owned())
        else {
            // It never becomes empty again.
            return;
        };
        let mut attempts = Attempts::new(signal, scope.clone(), etag);
        is_newer = loop {
            let (result, wait) = attempts.next();
            let delivered = result.outcome == Outcome::Delivered;
            report(&container, signal, &result, wait.is_none() || attempts.is_new(result.outcome), &metrics);
            status.notified(&container, result);
            tokio::select! {
                changed = ready.changed() => break changed.is_ok(),
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                // A container that has the signal and restarts begins with the dictionary that is served now.
                () = attempts.scope.changed(), if !delivered => attempts.restart(),
            }
        };
    }
}

/// One change on its way to one container.
struct Attempts {
    signal: NotifySignal,
    scope: Scope,
    etag: String,
    started: Instant,
    number: u32,
    /// The processes that have the signal.
    delivered: Vec<Process>,
    /// The outcome that was logged last.
    logged: Option<Outcome>,
}

impl Attempts {
    fn new(signal: NotifySignal, scope: Scope, etag: String) -> Self {
        Self { signal, scope, etag, started: Instant::now(), number: 0, delivered: Vec::new(), logged: None }
    }

    /// Makes one attempt. Returns its outcome and when to try again, if at all.
    fn next(&mut self) -> (NotificationStatus, Option<Duration>) {
        self.number += 1;
        let mut table = LiveTable::default();
        let roots = match self.scope.roots(&mut table) {
            Roots::Known(roots) => roots,
            Roots::Unknown => {
                let message = "the hub has not reported yet which processes are this container's".to_owned();
                return (notified(Outcome::Pending, message, &self.etag, self.number), Some(UNKNOWN_CONTAINER_WAIT));
            }
            Roots::Ended => {
                let message = "the container has ended".to_owned();
                return (notified(Outcome::NoProcess, message, &self.etag, self.number), None);
            }
        };
        let selection = select(&mut table, &roots, number(self.signal).as_raw());
        let denied = self.send(&selection);
        let (outcome, message) = judge(self.signal, &selection, !self.delivered.is_empty(), denied.as_ref());
        let (outcome, wait) = plan(outcome, self.number, self.started.elapsed());
        let mut result = notified(outcome, message, &self.etag, self.number);
        result.processes = self.delivered.iter().map(|process| process.pid).collect();
        (result, wait)
    }

    /// Starts counting anew, since the container has restarted.
    fn restart(&mut self) {
        (self.started, self.number) = (Instant::now(), 0);
    }

    /// Sends the signal to the targets that do not have it yet. Returns the last refusal.
    fn send(&mut self, selection: &Selection) -> Option<SendError> {
        let mut refused = None;
        for &process in &selection.targets {
            if self.delivered.contains(&process) {
                continue;
            }
            match send(process, self.signal) {
                Ok(Sent::Delivered) => self.delivered.push(process),
                // It has ended, or become another program, before the signal; the next attempt selects anew.
                Ok(Sent::Gone) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused
    }

    fn is_new(&mut self, outcome: Outcome) -> bool {
        outcome != Outcome::Pending && self.logged.replace(outcome) != Some(outcome)
    }
}

/// The outcome of an attempt, with its message. Pure.
fn judge(
    signal: NotifySignal,
    selection: &Selection,
    delivered: bool,
    refused: Option<&SendError>,
) -> (Outcome, String) {
    match refused {
        Some(error @ SendError::PermissionDenied { .. }) => (Outcome::PermissionDenied, error.to_string()),
        Some(error) => (Outcome::Failed, error.to_string()),
        None if delivered => (Outcome::Delivered, String::new()),
        None if selection.looked_at == 0 => (Outcome::NoProcess, "no process is running".to_owned()),
        None => {
            let what = match (selection.ignored, selection.passes_on) {
                (true, _) => format!("a process ignores {signal}"),
                (false, true) => {
                    format!("the init passes signals on, and no process below it has a handler for {signal}")
                }
                (false, false) => format!("no process has a handler for {signal}"),
            };
            let message = format!("{what}, so none was sent; install a handler, or choose another signal or a webhook");
            (Outcome::NoHandler, message)
        }
    }
}

/// When to try again, and the outcome until then. Pure.
fn plan(outcome: Outcome, failures: u32, elapsed: Duration) -> (Outcome, Option<Duration>) {
    if outcome == Outcome::Delivered {
        return (outcome, None);
    }
    let may_still_start = matches!(outcome, Outcome::NoHandler | Outcome::NoProcess);
    if may_still_start && let Some(wait) = EAGER_BACKOFF.wait_within(HANDLER_GRACE, failures, elapsed) {
        return (Outcome::Pending, Some(wait));
    }
    // The eager attempts do not count, so that the patient waits begin short.
    let patient = failures.saturating_sub(if may_still_start { EAGER_ATTEMPTS } else { 0 }).max(1);
    (outcome, PATIENT_BACKOFF.wait_within(GIVE_UP_TIMEOUT, patient, elapsed))
}

/// About how many attempts fit into [`HANDLER_GRACE`]; only the shape of later waits depends on it.
const EAGER_ATTEMPTS: u32 = 46;

fn report(
    container: &ContainerName,
    signal: NotifySignal,
    notified: &NotificationStatus,
    is_new: bool,
    metrics: &Metrics,
) {
    if notified.outcome == Outcome::Pending || !is_new {
        return;
    }
    metrics.notified(Channel::Signal, notified.outcome);
    if notified.outcome == Outcome::Delivered {
        tracing::info!(%container, %signal, processes = ?notified.processes, attempts = notified.attempts, "container notified");
    } else {
        let reason = notified.outcome.as_str();
        tracing::warn!(%container, %signal, reason, error = notified.message, "container not notified");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selection(targets: usize, looked_at: usize, ignored: bool) -> Selection {
        let targets = vec![Process { pid: 1, started: 1 }; targets];
        Selection { targets, looked_at, ignored, passes_on: false }
    }

    #[test]
    fn every_attempt_has_an_outcome() {
        let judge = |selection: Selection, refused| {
            judge(NotifySignal::Usr1, &selection, !selection.targets.is_empty(), refused)
        };
        assert_eq!(judge(selection(1, 1, false), None).0, Outcome::Delivered);
        assert_eq!(judge(selection(0, 0, false), None).0, Outcome::NoProcess);
        let (outcome, message) = judge(selection(0, 2, false), None);
        assert_eq!(outcome, Outcome::NoHandler);
        assert!(message.starts_with("no process has a handler for SIGUSR1"), "{message}");
        assert!(judge(selection(0, 1, true), None).1.starts_with("a process ignores SIGUSR1"));
        let message = judge(Selection { passes_on: true, ..selection(0, 2, false) }, None).1;
        assert!(message.starts_with("the init passes signals on, and no process below it has a handler"), "{message}");
        let denied = SendError::PermissionDenied { pid: 7, own_uid: 5 };
        let (outcome, message) = judge(selection(1, 1, false), Some(&denied));
        assert_eq!(outcome, Outcome::PermissionDenied);
        assert!(message.contains("KILL") && message.contains("user 5"), "{message}");
    }

    proptest! {
        #[test]
        fn a_missing_handler_is_pending_at_first_then_reported_and_at_last_given_up(failures in 1u32..500, millis in 0u64..1_000_000) {
            let elapsed = Duration::from_millis(millis);
            let (outcome, wait) = plan(Outcome::NoHandler, failures, elapsed);
            prop_assert_eq!(outcome == Outcome::Pending, wait.is_some_and(|wait| elapsed + wait <= HANDLER_GRACE && wait <= EAGER_BACKOFF.longest));
            if elapsed > GIVE_UP_TIMEOUT { prop_assert_eq!(wait, None); }
            if elapsed < HANDLER_GRACE.checked_sub(EAGER_BACKOFF.longest).unwrap() { prop_assert_eq!(outcome, Outcome::Pending); }
            prop_assert_eq!(plan(Outcome::Delivered, failures, elapsed), (Outcome::Delivered, None));
            prop_assert_eq!(plan(Outcome::PermissionDenied, failures, elapsed).0, Outcome::PermissionDenied);
        }
    }
}
