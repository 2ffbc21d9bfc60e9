//! Notifies one container by a signal: decides when it is sent, and when it is sent again. If the container must show
//! that it took the version, `verification` follows the notification.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;
use nudge_protocol::status::{NotificationStatus, Outcome};
use nudge_protocol::{ContainerName, NotifySignal};

use super::notification_status::status_now;
use super::scope::{NotifyScope, Roots};
use super::targets::{Selection, select};
use super::verification::{FollowEnd, SignalledProcesses, Verifier, note_start};
use crate::metrics::{Channel, Metrics};
use crate::proc::{LiveTable, Process, SendError, SendOutcome, send, to_os_signal};
use crate::publish::{Current, wait_for_other};
use crate::status::StatusPage;

/// The time that an application may take to install its handler before that counts as a failure.
const HANDLER_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// The waits within [`HANDLER_GRACE_PERIOD`].
const EAGER_BACKOFF: Backoff = Backoff { first: Duration::from_millis(2), longest: Duration::from_millis(250) };
/// The waits after [`HANDLER_GRACE_PERIOD`]: an application that installs its handler late still gets the last change.
const PATIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
/// How long after the first attempt a retry may still begin.
const GIVE_UP_TIMEOUT: Duration = Duration::from_mins(10);

/// The wait for a container that the hub has not reported yet; its start ends the wait.
const UNKNOWN_CONTAINER_DELAY: Duration = Duration::from_hours(24);
/// The number of attempts that roughly fit into [`HANDLER_GRACE_PERIOD`]; only the shape of later waits depends on it.
const EAGER_ATTEMPTS: u32 = 46;

/// A container that is notified by a signal.
#[derive(Clone, Debug)]
pub struct SignalledContainer {
    /// The name in the pod's spec.
    pub name: ContainerName,
    /// The signal that the container's annotation names.
    pub signal: NotifySignal,
    /// The processes that may get the signal.
    pub scope: NotifyScope,
    /// The `ETag` of the dictionary that the container is known to have.
    pub known_etag: Option<String>,
    /// What the container must show after a notification, if anything.
    pub verifier: Option<Verifier>,
}

/// Sends a signal to the container's processes whenever `ready` has changed, until the publisher is gone. The container
/// starts with the dictionary that `ready` has shown before, so it is notified of that dictionary only if it is known
/// to have another.
pub async fn notify_by_signal(container: SignalledContainer, mut ready: Current, status: StatusPage, metrics: Metrics) {
    let SignalledContainer { name: container, signal, scope, known_etag, mut verifier } = container;
    let start = ready.clone();
    let note_start = note_start(verifier.as_mut(), &start, known_etag.as_deref());
    let ((), mut is_newer) = tokio::join!(note_start, wait_for_other(&mut ready, known_etag.as_deref()));
    while is_newer {
        let Some(dictionary) = ready.borrow_and_update().as_ref().map(|published| Arc::clone(&published.dictionary))
        else {
            // The publisher never becomes empty again.
            return;
        };
        if status.is_unchanged(&container, dictionary.etag()) {
            tracing::info!(%container, "container not notified: it reads no key that has changed");
            if let Some(verifier) = &mut verifier {
                verifier.note_unchanged(&dictionary);
            }
            is_newer = ready.changed().await.is_ok();
            continue;
        }
        let processes = SignalledProcesses { scope: scope.clone(), signal };
        let mut verification = verifier.as_mut().and_then(|verifier| verifier.begin(&dictionary, Some(processes)));
        let mut attempts = Attempts::new(signal, scope.clone(), dictionary.etag().to_owned());
        if verification.is_some() {
            let etag = Some(dictionary.etag().to_owned());
            let pending = NotificationStatus { outcome: Outcome::Pending, etag, ..NotificationStatus::default() };
            status.set_notification(&container, pending);
        }
        is_newer = loop {
            if let Some(verification) = &mut verification {
                tokio::select! {
                    changed = ready.changed() => break changed.is_ok(),
                    () = verification.read_before() => {}
                }
            }
            let (result, wait) = attempts.make();
            if let Some(verification) = verification.as_mut().filter(|_| !result.processes.is_empty()) {
                verification.note_sent();
            }
            if let Some(verification) = verification.as_mut().filter(|_| result.outcome == Outcome::Delivered) {
                let processes = &result.processes;
                tracing::info!(%container, %signal, ?processes, "container notified; it must show that it took the version");
                let mut show = |result: NotificationStatus| {
                    if result.outcome != Outcome::Pending {
                        metrics.count_notification(Channel::Signal, result.outcome);
                    }
                    status.set_notification(&container, result);
                };
                match verification.follow(result, &mut ready, &mut show).await {
                    FollowEnd::Newer => break true,
                    FollowEnd::Closed => break false,
                    FollowEnd::NotifyAgain => attempts.repeat(),
                }
                continue;
            }
            let delivered = result.outcome == Outcome::Delivered;
            let is_new = wait.is_none() || attempts.is_new(result.outcome);
            if is_new && result.outcome != Outcome::Pending {
                report(&container, signal, &result, &metrics);
            }
            status.set_notification(&container, result);
            tokio::select! {
                changed = ready.changed() => break changed.is_ok(),
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                // A container that has the signal and restarts begins with the dictionary that is served now.
                change = attempts.scope.wait_for_change(), if !delivered => {
                    attempts.restart();
                    if let Some(verification) = &mut verification { verification.note_change(change); }
                }
            }
        };
    }
}

/// The attempts to notify one container of one change.
struct Attempts {
    signal: NotifySignal,
    scope: NotifyScope,
    etag: String,
    started: Instant,
    count: u32,
    /// The processes that have the signal.
    delivered: Vec<Process>,
    /// The outcome that was logged last.
    logged: Option<Outcome>,
}

impl Attempts {
    fn new(signal: NotifySignal, scope: NotifyScope, etag: String) -> Self {
        Self { signal, scope, etag, started: Instant::now(), count: 0, delivered: Vec::new(), logged: None }
    }

    /// Makes an attempt. Returns its status, and the wait until the next attempt.
    fn make(&mut self) -> (NotificationStatus, Option<Duration>) {
        self.count += 1;
        let mut table = LiveTable::default();
        let roots = match self.scope.roots(&mut table) {
            Roots::Processes(roots) => roots,
            Roots::Unknown => {
                let message = "the hub has not reported yet which processes are this container's".to_owned();
                return (status_now(Outcome::Pending, message, &self.etag, self.count), Some(UNKNOWN_CONTAINER_DELAY));
            }
            Roots::Ended => {
                let message = "the container has ended".to_owned();
                return (status_now(Outcome::NoProcess, message, &self.etag, self.count), None);
            }
        };
        let selection = select(&mut table, &roots, to_os_signal(self.signal).as_raw());
        let refusal = self.send(&selection);
        let (outcome, message) = judge(self.signal, &selection, !self.delivered.is_empty(), refusal.as_ref());
        let (outcome, wait) = plan_retry(outcome, self.count, self.started.elapsed());
        let mut result = status_now(outcome, message, &self.etag, self.count);
        result.processes = self.delivered.iter().map(|process| process.pid).collect();
        (result, wait)
    }

    /// Starts counting again, since the container has restarted.
    fn restart(&mut self) {
        (self.started, self.count) = (Instant::now(), 0);
    }

    /// Makes the next attempt send the signal again.
    fn repeat(&mut self) {
        self.restart();
        self.delivered.clear();
    }

    /// Sends the signal to the targets that do not have it yet. Returns the last refusal.
    fn send(&mut self, selection: &Selection) -> Option<SendError> {
        let mut refusal = None;
        for &process in &selection.targets {
            if self.delivered.contains(&process) {
                continue;
            }
            match send(process, self.signal) {
                Ok(SendOutcome::Delivered) => self.delivered.push(process),
                // The process has ended, or become another program, before the signal; the next attempt selects again.
                Ok(SendOutcome::Gone) => {}
                Err(error) => refusal = Some(error),
            }
        }
        refusal
    }

    /// Returns whether the outcome was not logged before.
    fn is_new(&mut self, outcome: Outcome) -> bool {
        outcome != Outcome::Pending && self.logged.replace(outcome) != Some(outcome)
    }
}

/// Returns the outcome of an attempt, with its message. Does no I/O.
fn judge(
    signal: NotifySignal,
    selection: &Selection,
    delivered: bool,
    refusal: Option<&SendError>,
) -> (Outcome, String) {
    match refusal {
        Some(error @ SendError::PermissionDenied { .. }) => (Outcome::PermissionDenied, error.to_string()),
        Some(error) => (Outcome::Failed, error.to_string()),
        None if delivered => (Outcome::Delivered, String::new()),
        None if selection.examined == 0 => (Outcome::NoProcess, "no process is running".to_owned()),
        None => {
            let cause = match (selection.ignored, selection.passes_on) {
                (true, _) => format!("a process ignores {signal}"),
                (false, true) => {
                    format!("the init passes signals on, and no process below it has a handler for {signal}")
                }
                (false, false) => format!("no process has a handler for {signal}"),
            };
            let message =
                format!("{cause}, so none was sent; install a handler, or choose another signal or a webhook");
            (Outcome::NoHandler, message)
        }
    }
}

/// Returns the outcome until the next attempt, and the wait until that attempt. Does no I/O.
fn plan_retry(outcome: Outcome, failures: u32, elapsed: Duration) -> (Outcome, Option<Duration>) {
    if outcome == Outcome::Delivered {
        return (outcome, None);
    }
    let may_still_start = matches!(outcome, Outcome::NoHandler | Outcome::NoProcess);
    if may_still_start && let Some(wait) = EAGER_BACKOFF.wait_within(HANDLER_GRACE_PERIOD, failures, elapsed) {
        return (Outcome::Pending, Some(wait));
    }
    // The eager attempts do not count, so that the patient waits begin short.
    let patient = failures.saturating_sub(if may_still_start { EAGER_ATTEMPTS } else { 0 }).max(1);
    (outcome, PATIENT_BACKOFF.wait_within(GIVE_UP_TIMEOUT, patient, elapsed))
}

fn report(container: &ContainerName, signal: NotifySignal, notified: &NotificationStatus, metrics: &Metrics) {
    metrics.count_notification(Channel::Signal, notified.outcome);
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

    fn selection(targets: usize, examined: usize, ignored: bool) -> Selection {
        let targets = vec![Process { pid: 1, started: 1 }; targets];
        Selection { targets, examined, ignored, passes_on: false }
    }

    #[test]
    fn every_attempt_has_an_outcome() {
        let judge = |selection: Selection, refusal| {
            judge(NotifySignal::Usr1, &selection, !selection.targets.is_empty(), refusal)
        };
        assert_eq!(judge(selection(1, 1, false), None).0, Outcome::Delivered);
        assert_eq!(judge(selection(0, 0, false), None).0, Outcome::NoProcess);
        let (outcome, message) = judge(selection(0, 2, false), None);
        assert_eq!(outcome, Outcome::NoHandler);
        assert!(message.starts_with("no process has a handler for SIGUSR1"), "{message}");
        assert!(judge(selection(0, 1, true), None).1.starts_with("a process ignores SIGUSR1"));
        let message = judge(Selection { passes_on: true, ..selection(0, 2, false) }, None).1;
        assert!(message.starts_with("the init passes signals on, and no process below it has a handler"), "{message}");
        let refusal = SendError::PermissionDenied { pid: 7, own_uid: 5 };
        let (outcome, message) = judge(selection(1, 1, false), Some(&refusal));
        assert_eq!(outcome, Outcome::PermissionDenied);
        assert!(message.contains("KILL") && message.contains("user 5"), "{message}");
    }

    proptest! {
        #[test]
        fn a_missing_handler_is_pending_at_first_then_reported_and_at_last_given_up(failures in 1u32..500, millis in 0u64..1_000_000) {
            let elapsed = Duration::from_millis(millis);
            let (outcome, wait) = plan_retry(Outcome::NoHandler, failures, elapsed);
            prop_assert_eq!(outcome == Outcome::Pending, wait.is_some_and(|wait| elapsed + wait <= HANDLER_GRACE_PERIOD && wait <= EAGER_BACKOFF.longest));
            if elapsed > GIVE_UP_TIMEOUT { prop_assert_eq!(wait, None); }
            if elapsed < HANDLER_GRACE_PERIOD.checked_sub(EAGER_BACKOFF.longest).unwrap() { prop_assert_eq!(outcome, Outcome::Pending); }
            prop_assert_eq!(plan_retry(Outcome::Delivered, failures, elapsed), (Outcome::Delivered, None));
            prop_assert_eq!(plan_retry(Outcome::PermissionDenied, failures, elapsed).0, Outcome::PermissionDenied);
        }
    }
}
