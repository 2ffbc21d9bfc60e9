//! The failed calls outside of the decision about a config. Each is tried again later, and is shown in the condition
//! `Impaired`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, Reason, VersionedConfigStatus, condition, set_condition};
use nudge_protocol::backoff::Backoff;

use crate::failure_cause::FailureCause;

/// How long a call must fail before the condition shows it, so that a short fault of the API server is not written into
/// every status.
const REPORT_DELAY: Duration = Duration::from_secs(10);

/// A call outside of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SideCall {
    /// The reads of nodes of pods that became unready.
    Nodes,
    /// The reads of objects of versions that are not sealed.
    Objects,
    /// The deletions of versions that are no longer kept.
    Versions,
    /// The room for versions: pods and templates of workloads hold too many of them.
    History,
    /// The objects of a version that is made of the text of the config's objects.
    Text,
    /// The label of the config's objects.
    Label,
    /// The list of the pods that read the config's objects themselves.
    Readers,
}

impl SideCall {
    /// Returns the waits after failures in a row.
    fn backoff(self) -> Backoff {
        match self {
            Self::Nodes | Self::Objects | Self::Text | Self::Label | Self::Readers => {
                Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
            }
            Self::Versions | Self::History => {
                Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(30) }
            }
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::Nodes => Reason::NodesUnread,
            Self::Objects => Reason::ObjectsUnread,
            Self::Versions => Reason::NotPruned,
            Self::History => Reason::HistoryFull,
            Self::Text | Self::Label => Reason::TextNotTaken,
            Self::Readers => Reason::ReadersUnknown,
        }
    }
}

/// A side call whose last attempt failed.
#[derive(Clone, Debug)]
struct Failure {
    message: String,
    cause: FailureCause,
    /// The number of attempts in a row that failed.
    count: u32,
    since: Instant,
    next: Instant,
}

/// The side calls of one config that fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedSideCalls(BTreeMap<SideCall, Failure>);

impl FailedSideCalls {
    /// Returns whether the side call may be tried now, or waits after a failure.
    pub(crate) fn is_due(&self, call: SideCall, now: Instant) -> bool {
        self.0.get(&call).is_none_or(|failure| failure.next <= now)
    }

    /// Returns whether the last attempt failed with this HTTP status.
    pub(crate) fn failed_with(&self, call: SideCall, code: u16) -> bool {
        self.0.get(&call).is_some_and(|failure| failure.cause.code == Some(code))
    }

    /// Notes an attempt that failed. `random` is between 0 and 1.
    pub(crate) fn note_failure(&mut self, call: SideCall, what: &str, cause: FailureCause, now: Instant, random: f64) {
        let (count, since) = self.0.get(&call).map_or((0, now), |before| (before.count, before.since));
        let count = count.saturating_add(1);
        let next = now.checked_add(call.backoff().jittered_wait(count, random)).unwrap_or(now);
        let message = format!("{what}, because {}", cause.text);
        self.0.insert(call, Failure { message, cause, count, since, next });
    }

    /// Notes an attempt that succeeded, or that there is nothing to do.
    pub(crate) fn note_success(&mut self, call: SideCall) {
        self.0.remove(&call);
    }

    /// Returns when to reconcile again, to try a call or to report it. A call that is already due, but was not tried,
    /// waits for another reconcile.
    pub(crate) fn next_reconcile(&self, now: Instant) -> Option<Duration> {
        let times = self.0.values().flat_map(|failure| {
            let report = failure.since.checked_add(REPORT_DELAY).filter(|_| !failure.cause.refused);
            [report, Some(failure.next)].into_iter().flatten()
        });
        times.filter(|time| *time > now).min().map(|time| time.saturating_duration_since(now))
    }

    /// Writes the condition, or removes it.
    pub(crate) fn write_condition(
        &self,
        status: &mut VersionedConfigStatus,
        generation: Option<i64>,
        now: Instant,
        time: &Time,
    ) {
        let is_reported = |Failure { cause, since, .. }: &Failure| {
            cause.refused || now.saturating_duration_since(*since) >= REPORT_DELAY
        };
        let reported: Vec<(&SideCall, &Failure)> = self.0.iter().filter(|(_, failure)| is_reported(failure)).collect();
        let [(first, _), others @ ..] = &reported[..] else {
            status.conditions.retain(|condition| condition.type_ != ConditionType::Impaired.as_str());
            return;
        };
        let reason = if others.is_empty() { first.reason() } else { Reason::Several };
        let messages: Vec<&str> = reported.iter().map(|(_, failure)| failure.message.as_str()).collect();
        let new_condition = condition(ConditionType::Impaired, true, reason, messages.join("; "), generation, time);
        set_condition(&mut status.conditions, new_condition);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::find_condition;

    use super::*;

    fn cause(refused: bool) -> FailureCause {
        FailureCause { refused, code: Some(500), text: "the API server answers with code 500".to_owned() }
    }

    fn said(calls: &FailedSideCalls, status: &mut VersionedConfigStatus, now: Instant) -> Option<(String, String)> {
        calls.write_condition(status, Some(1), now, &Time(Timestamp::UNIX_EPOCH));
        let condition = find_condition(&status.conditions, ConditionType::Impaired)?;
        Some((condition.reason.clone(), condition.message.clone()))
    }

    #[test]
    fn a_call_that_fails_is_said_after_a_while_and_one_that_is_refused_at_once() {
        let (mut calls, mut status, began) =
            (FailedSideCalls::default(), VersionedConfigStatus::default(), Instant::now());
        calls.note_failure(SideCall::Nodes, "nodes can't be read", cause(false), began, 1.0);
        assert_eq!(said(&calls, &mut status, began), None);
        assert_eq!(calls.next_reconcile(began), Some(Duration::from_secs(1)));
        let later = began + REPORT_DELAY;
        calls.note_failure(SideCall::Nodes, "nodes can't be read", cause(false), later, 1.0);
        let (reason, message) = said(&calls, &mut status, later).unwrap();
        let text = "nodes can't be read, because the API server answers with code 500";
        assert_eq!((&*reason, &*message), ("NodesUnread", text));
        calls.note_failure(SideCall::Versions, "a can't be deleted", cause(true), later, 1.0);
        let (reason, message) = said(&calls, &mut status, later).unwrap();
        assert!(reason == "Several" && message.starts_with(text) && message.contains("; a can't"), "{message}");
        calls.note_success(SideCall::Nodes);
        assert_eq!(said(&calls, &mut status, later).unwrap().0, "NotPruned");
        calls.note_success(SideCall::Versions);
        assert_eq!((said(&calls, &mut status, later), calls.next_reconcile(later)), (None, None));
    }

    #[test]
    fn deletions_are_tried_again_after_one_minute_and_up_to_thirty() {
        let (mut calls, mut now) = (FailedSideCalls::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            calls.note_failure(SideCall::Versions, "a", cause(true), now, 1.0);
            let wait = calls.next_reconcile(now).unwrap();
            assert!(!calls.is_due(SideCall::Versions, now) && calls.is_due(SideCall::Nodes, now));
            now += wait;
            assert_eq!(calls.next_reconcile(now), None, "nothing is reconciled again and again where nothing is tried");
            assert!(calls.is_due(SideCall::Versions, now));
            waits.push(wait.as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }
}
