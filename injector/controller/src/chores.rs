//! Calls beside the decision about a config that failed: each is tried again later, and stands in the condition `Impaired`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, Reason, VersionedConfigStatus, condition, set_condition};
use nudge_protocol::backoff::Backoff;

use super::cause::Cause;

/// How long a call fails until the condition has it: a short fault of the API server is not written into every status.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is done beside the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// Nodes are read of pods that became unready.
    Nodes,
    /// Objects of versions are read that are not sealed.
    Objects,
    /// Versions are deleted that are no longer kept.
    Versions,
}

impl Chore {
    /// Waits after failures in a row.
    fn backoff(self) -> Backoff {
        match self {
            Self::Nodes | Self::Objects => Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) },
            Self::Versions => Backoff { first: Duration::from_mins(1), longest: Duration::from_mins(30) },
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::Nodes => Reason::NodesUnread,
            Self::Objects => Reason::ObjectsUnread,
            Self::Versions => Reason::NotPruned,
        }
    }
}

/// A chore whose last attempt failed.
#[derive(Clone, Debug)]
struct Failure {
    message: String,
    cause: Cause,
    /// How many attempts in a row failed.
    count: u32,
    since: Instant,
    next: Instant,
}

impl Failure {
    fn is_said(&self, now: Instant) -> bool {
        self.cause.refused || now.saturating_duration_since(self.since) >= PATIENCE
    }
}

/// The chores of one config that fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Chores(BTreeMap<Chore, Failure>);

impl Chores {
    /// Whether the chore may be tried.
    pub(super) fn is_due(&self, chore: Chore, now: Instant) -> bool {
        self.0.get(&chore).is_none_or(|failure| failure.next <= now)
    }

    /// The HTTP status with which the last attempt failed, or 0 where there was none.
    pub(super) fn code(&self, chore: Chore) -> Option<u16> {
        self.0.get(&chore).map(|failure| failure.cause.code)
    }

    /// Notes an attempt that failed. `random` is between 0 and 1.
    pub(super) fn failed(&mut self, chore: Chore, what: &str, cause: Cause, now: Instant, random: f64) {
        let (count, since) = self.0.get(&chore).map_or((0, now), |before| (before.count, before.since));
        let count = count.saturating_add(1);
        let next = now.checked_add(chore.backoff().jittered(count, random)).unwrap_or(now);
        let message = format!("{what}, because {}", cause.text);
        self.0.insert(chore, Failure { message, cause, count, since, next });
    }

    /// Notes an attempt that succeeded, or that nothing is to be done.
    pub(super) fn succeeded(&mut self, chore: Chore) {
        self.0.remove(&chore);
    }

    /// After how long to look again: something is tried, or is to be said. What could be tried now, and was not, waits for another look.
    pub(super) fn again(&self, now: Instant) -> Option<Duration> {
        let times = self.0.values().flat_map(|failure| {
            let said = failure.since.checked_add(PATIENCE).filter(|_| !failure.cause.refused);
            [said, Some(failure.next)].into_iter().flatten()
        });
        times.filter(|time| *time > now).min().map(|time| time.saturating_duration_since(now))
    }

    /// Writes the condition, or takes it away.
    pub(super) fn write_condition(
        &self,
        status: &mut VersionedConfigStatus,
        generation: Option<i64>,
        (now, time): (Instant, &Time),
    ) {
        let said: Vec<(&Chore, &Failure)> = self.0.iter().filter(|(_, failure)| failure.is_said(now)).collect();
        let [(first, _), others @ ..] = &said[..] else {
            status.conditions.retain(|condition| condition.type_ != ConditionType::Impaired.as_str());
            return;
        };
        let reason = if others.is_empty() { first.reason() } else { Reason::Several };
        let messages: Vec<&str> = said.iter().map(|(_, failure)| failure.message.as_str()).collect();
        let condition = condition(ConditionType::Impaired, true, reason, messages.join("; "), generation, time);
        set_condition(&mut status.conditions, condition);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::find_condition;

    use super::*;

    fn cause(refused: bool) -> Cause {
        Cause { refused, code: 500, text: "the API server answers with code 500".to_owned() }
    }

    fn said(chores: &Chores, status: &mut VersionedConfigStatus, now: Instant) -> Option<(String, String)> {
        chores.write_condition(status, Some(1), (now, &Time(Timestamp::UNIX_EPOCH)));
        let condition = find_condition(&status.conditions, ConditionType::Impaired)?;
        Some((condition.reason.clone(), condition.message.clone()))
    }

    #[test]
    fn a_chore_that_fails_is_said_after_a_while_and_one_that_is_refused_at_once() {
        let (mut chores, mut status, began) = (Chores::default(), VersionedConfigStatus::default(), Instant::now());
        chores.failed(Chore::Nodes, "nodes can't be read", cause(false), began, 1.0);
        assert_eq!(said(&chores, &mut status, began), None);
        assert_eq!(chores.again(began), Some(Duration::from_secs(1)));
        let later = began + PATIENCE;
        chores.failed(Chore::Nodes, "nodes can't be read", cause(false), later, 1.0);
        let (reason, message) = said(&chores, &mut status, later).unwrap();
        let text = "nodes can't be read, because the API server answers with code 500";
        assert_eq!((&*reason, &*message), ("NodesUnread", text));
        chores.failed(Chore::Versions, "a can't be deleted", cause(true), later, 1.0);
        let (reason, message) = said(&chores, &mut status, later).unwrap();
        assert!(reason == "Several" && message.starts_with(text) && message.contains("; a can't"), "{message}");
        chores.succeeded(Chore::Nodes);
        assert_eq!(said(&chores, &mut status, later).unwrap().0, "NotPruned");
        chores.succeeded(Chore::Versions);
        assert_eq!((said(&chores, &mut status, later), chores.again(later)), (None, None));
    }

    #[test]
    fn deletions_are_tried_again_after_one_minute_and_up_to_thirty() {
        let (mut chores, mut now) = (Chores::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            chores.failed(Chore::Versions, "a", cause(true), now, 1.0);
            let wait = chores.again(now).unwrap();
            assert!(!chores.is_due(Chore::Versions, now) && chores.is_due(Chore::Nodes, now));
            now += wait;
            assert_eq!(chores.again(now), None, "nothing is looked at again and again where nothing is tried");
            assert!(chores.is_due(Chore::Versions, now));
            waits.push(wait.as_secs() / 60);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }
}
