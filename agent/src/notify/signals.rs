//! Tells one container by a signal.

use std::time::{Duration, Instant};

use nudge_protocol::status::{Notified, Outcome};
use nudge_protocol::{ContainerName, NotifySignal};

use super::backoff::Backoff;
use super::outcome::notified;
use super::scope::{Roots, Scope};
use super::targets::{Selection, select};
use crate::proc::{LiveTable, Process, SendError, Sent, number, send};
use crate::publish::{Current, other};
use crate::serve::{Channel, Metrics};
use crate::status::StatusPage;

/// How long an application may take to install its handler before that counts as a failure.
const GRACE: Duration = Duration::from_secs(10);
/// Waits within that time.
const EAGER: Backoff = Backoff { first: Duration::from_millis(2), longest: Duration::from_millis(250), give_up: GRACE };
/// Waits after it: an application that installs its handler late still gets the last change.
const PATIENT: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1), give_up: Duration::from_mins(10) };

/// How long to wait for a container of which nothing is known: its start ends that sooner.
const UNTIL_KNOWN: Duration = Duration::from_hours(24);

/// Sends `signal` to the container's processes whenever `ready` has changed, until the publisher is gone. What `ready` has
/// shown before is what the container starts with, so nothing is sent for it, unless it is `known` to have another one.
pub async fn notify_by_signal(
    container: ContainerName,
    signal: NotifySignal,
    scope: Scope,
    mut ready: Current,
    known: Option<String>,
    status: StatusPage,
    metrics: Metrics,
) {
    let mut is_newer = other(&mut ready, known.as_deref()).await;
    while is_newer {
        let Some(etag) = ready.borrow_and_update().as_ref().map(|published| published.dictionary.etag().to_owned())
        else {
            // There is no way back to having none.
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
                // One that has the signal and starts again begins with what is served now.
                () = attempts.scope.changed(), if !delivered => attempts.again(),
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
    done: Vec<Process>,
    said: Option<Outcome>,
}

impl Attempts {
    fn new(signal: NotifySignal, scope: Scope, etag: String) -> Self {
        Self { signal, scope, etag, started: Instant::now(), number: 0, done: Vec::new(), said: None }
    }

    /// Tries once. Returns how it went and when to try again, if at all.
    fn next(&mut self) -> (Notified, Option<Duration>) {
        self.number += 1;
        let mut table = LiveTable::default();
        let roots = match self.scope.roots(&mut table) {
            Roots::Known(roots) => roots,
            Roots::Unknown => {
                let message = "the hub has not said yet which processes are this container's".to_owned();
                return (notified(Outcome::Pending, message, &self.etag, self.number), Some(UNTIL_KNOWN));
            }
            Roots::Ended => {
                let message = "the container has ended".to_owned();
                return (notified(Outcome::NoProcess, message, &self.etag, self.number), None);
            }
        };
        let selection = select(&mut table, &roots, number(self.signal).as_raw());
        let denied = self.send(&selection);
        let (outcome, message) = judge(self.signal, &selection, !self.done.is_empty(), denied.as_ref());
        let (outcome, wait) = plan(outcome, self.number, self.started.elapsed());
        let mut result = notified(outcome, message, &self.etag, self.number);
        result.processes = self.done.iter().map(|process| process.pid).collect();
        (result, wait)
    }

    /// Begins again, since the container is another one.
    fn again(&mut self) {
        (self.started, self.number) = (Instant::now(), 0);
    }

    /// Sends to those that do not have it yet; returns the last refusal.
    fn send(&mut self, selection: &Selection) -> Option<SendError> {
        let mut refused = None;
        for &process in &selection.targets {
            if self.done.contains(&process) {
                continue;
            }
            match send(process, self.signal) {
                Ok(Sent::Delivered) => self.done.push(process),
                // It has ended, or become another program, between the look and the signal; the next attempt sees.
                Ok(Sent::Gone) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused
    }

    fn is_new(&mut self, outcome: Outcome) -> bool {
        outcome != Outcome::Pending && self.said.replace(outcome) != Some(outcome)
    }
}

/// What an attempt amounts to. Pure.
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
            let what = if selection.ignored { "ignores" } else { "has a handler for" };
            let no = if selection.ignored { "a process" } else { "no process" };
            let message = format!(
                "{no} {what} {signal}, so none was sent; install a handler, or choose another signal or a webhook"
            );
            (Outcome::NoHandler, message)
        }
    }
}

/// When to try again, and what to say meanwhile. Pure.
fn plan(outcome: Outcome, failures: u32, elapsed: Duration) -> (Outcome, Option<Duration>) {
    if outcome == Outcome::Delivered {
        return (outcome, None);
    }
    let may_still_start = matches!(outcome, Outcome::NoHandler | Outcome::NoProcess);
    if may_still_start && let Some(wait) = EAGER.wait(failures, elapsed) {
        return (Outcome::Pending, Some(wait));
    }
    // The eager attempts do not count: the patient waits begin short again.
    let patient = failures.saturating_sub(if may_still_start { EAGER_ATTEMPTS } else { 0 }).max(1);
    (outcome, PATIENT.wait(patient, elapsed))
}

/// About how many attempts fit into [`GRACE`]; only the shape of later waits depends on it.
const EAGER_ATTEMPTS: u32 = 46;

fn report(container: &ContainerName, signal: NotifySignal, notified: &Notified, say: bool, metrics: &Metrics) {
    if notified.outcome == Outcome::Pending || !say {
        return;
    }
    metrics.notified(Channel::Signal, notified.outcome);
    if notified.outcome == Outcome::Delivered {
        tracing::info!(%container, %signal, processes = ?notified.processes, attempts = notified.attempts, "notified");
    } else {
        tracing::warn!(%container, %signal, outcome = notified.outcome.as_str(), reason = notified.message, "not told");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selection(targets: usize, looked_at: usize, ignored: bool) -> Selection {
        Selection { targets: vec![Process { pid: 1, started: 1 }; targets], looked_at, ignored }
    }

    #[test]
    fn what_an_attempt_amounts_to() {
        let judge = |selection: Selection, refused| {
            judge(NotifySignal::Usr1, &selection, !selection.targets.is_empty(), refused)
        };
        assert_eq!(judge(selection(1, 1, false), None).0, Outcome::Delivered);
        assert_eq!(judge(selection(0, 0, false), None).0, Outcome::NoProcess);
        let (outcome, message) = judge(selection(0, 2, false), None);
        assert_eq!(outcome, Outcome::NoHandler);
        assert!(message.starts_with("no process has a handler for SIGUSR1"), "{message}");
        assert!(judge(selection(0, 1, true), None).1.starts_with("a process ignores SIGUSR1"));
        let denied = SendError::PermissionDenied { pid: 7, own_uid: 5 };
        let (outcome, message) = judge(selection(1, 1, false), Some(&denied));
        assert_eq!(outcome, Outcome::PermissionDenied);
        assert!(message.contains("KILL") && message.contains("user 5"), "{message}");
    }

    proptest! {
        #[test]
        fn a_missing_handler_is_pending_at_first_then_said_and_at_last_left(failures in 1u32..500, millis in 0u64..1_000_000) {
            let elapsed = Duration::from_millis(millis);
            let (outcome, wait) = plan(Outcome::NoHandler, failures, elapsed);
            prop_assert_eq!(outcome == Outcome::Pending, wait.is_some_and(|wait| elapsed + wait <= GRACE && wait <= EAGER.longest));
            if elapsed > PATIENT.give_up { prop_assert_eq!(wait, None); }
            if elapsed < GRACE.checked_sub(EAGER.longest).unwrap() { prop_assert_eq!(outcome, Outcome::Pending); }
            prop_assert_eq!(plan(Outcome::Delivered, failures, elapsed), (Outcome::Delivered, None));
            prop_assert_eq!(plan(Outcome::PermissionDenied, failures, elapsed).0, Outcome::PermissionDenied);
        }
    }
}
