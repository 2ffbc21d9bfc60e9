//! The last attempts to publish the objects of a config, and when to try again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nudge_api::{Explanation, PartKind};
use nudge_core::followed_objects::WriteBack;
use nudge_core::keys::PublishedMeta;
use nudge_core::publish::Publication;
use nudge_core::rollout::{PublishAttempt, PublishFailure, SteadyTime};
use nudge_protocol::backoff::Backoff;

/// The delay before the next attempt at an object that has the right content, or that other clients have changed. No
/// watch shows a Secret, or a ConfigMap without our label.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
/// The waits after attempts in a row that failed or were refused.
const PUBLISH_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: RECHECK_INTERVAL };
/// The waits after texts in a row that passed a gate.
const CONTEST_BACKOFF: Backoff = PUBLISH_BACKOFF;
/// The waits if a rollout waits for the publication.
const SHORT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// The subject of an attempt; another subject is tried at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishSubject {
    pub(crate) version: String,
    /// The generation of the spec.
    pub(crate) generation: Option<i64>,
    /// Whether `spec.objects` has the kind.
    pub(crate) publishes: bool,
    /// The metadata that the watch shows; `None` if the object is missing, does not have our label, or is not watched.
    pub(crate) meta: Option<PublishedMeta>,
    /// The text that gives way to the version.
    pub(crate) write_back: Option<WriteBack>,
}

/// The writes in a row by which a text that passed a gate gave way, and the earliest time of the next one.
#[derive(Debug, Default)]
struct Contest {
    count: u32,
    next: Option<Instant>,
}

/// A call that failed.
#[derive(Clone, Debug)]
struct CallFailure {
    why: Explanation,
    at: Instant,
}

/// Whether an object has given way from a text to the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivingWay {
    /// The object still must be compared or written.
    Pending,
    /// The object stays: Nudge may not write it, nothing of it differs, or the text or the version has no such object.
    Needless,
    /// The object holds the version, and had other content in the text.
    Done,
}

impl GivingWay {
    /// Returns how far an object is, whose text differs from the version, after an attempt.
    pub(crate) fn of(publication: &Publication) -> Self {
        match publication {
            Publication::Published => Self::Done,
            Publication::Refused(_) => Self::Needless,
            _ => Self::Pending,
        }
    }
}

/// The last attempt to publish one object.
#[derive(Clone, Debug)]
struct ObjectAttempt {
    subject: PublishSubject,
    giving_way: GivingWay,
    /// The number of attempts in a row that failed or were refused.
    failures: u32,
    failure: Option<CallFailure>,
    /// The time of the next attempt; `None` for an object that is not published.
    next: Option<Instant>,
}

/// The last attempts to publish the objects of a config.
#[derive(Debug, Default)]
pub(crate) struct PublishAttempts {
    objects: BTreeMap<PartKind, ObjectAttempt>,
    contest: Contest,
}

impl PublishAttempts {
    /// Returns when a text that passed a gate may give way again, if it must wait.
    pub(crate) fn contest_wait(&self, now: Instant) -> Option<Duration> {
        self.contest.next?.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Notes that a text that passed a gate gave way. If somebody keeps writing it, the waits grow. `random` is between
    /// 0 and 1.
    pub(crate) fn note_contest(&mut self, now: Instant, random: f64) {
        let Contest { count, next } = &mut self.contest;
        let is_over = next.is_none_or(|next| now.saturating_duration_since(next) > CONTEST_BACKOFF.longest);
        *count = if is_over { 1 } else { count.saturating_add(1) };
        *next = Some(now + CONTEST_BACKOFF.jittered_wait(*count, random));
    }

    /// Brings the next attempt at the object forward.
    pub(crate) fn retry_within(&mut self, kind: PartKind, wait: Duration, now: Instant) {
        if let Some(attempt) = self.objects.get_mut(&kind) {
            attempt.next = attempt.next.map(|next| next.min(now + wait));
        }
    }

    /// Returns whether the text gave way: all objects that Nudge may write hold the version.
    pub(crate) fn has_given_way(&self, write_back: &WriteBack) -> bool {
        let giving_way = PartKind::ALL.map(|kind| match self.objects.get(&kind) {
            Some(attempt) if attempt.subject.write_back.as_ref() == Some(write_back) => attempt.giving_way,
            _ => GivingWay::Pending,
        });
        !giving_way.contains(&GivingWay::Pending) && giving_way.contains(&GivingWay::Done)
    }

    /// Returns whether an attempt at the object is due.
    pub(crate) fn is_due(&self, kind: PartKind, subject: &PublishSubject, now: Instant) -> bool {
        let is_due = |attempt: &ObjectAttempt| {
            attempt.subject != *subject || attempt.next.is_none_or(|retry_time| retry_time <= now)
        };
        self.objects.get(&kind).is_none_or(is_due)
    }

    /// Notes that the version needs no object of this kind.
    pub(crate) fn leave(&mut self, kind: PartKind, subject: PublishSubject) {
        let giving_way = GivingWay::Needless;
        let attempt = ObjectAttempt { subject, giving_way, failures: 0, failure: None, next: None };
        self.objects.insert(kind, attempt);
    }

    /// Keeps an attempt. After failures and refusals, the waits until the next one grow. `random` is between 0 and 1.
    pub(crate) fn keep(
        &mut self,
        kind: PartKind,
        subject: PublishSubject,
        publication: &Publication,
        giving_way: GivingWay,
        now: Instant,
        random: f64,
    ) {
        let before = self.objects.get(&kind).filter(|before| {
            let PublishSubject { version, generation, write_back, .. } = &before.subject;
            (version, generation, write_back) == (&subject.version, &subject.generation, &subject.write_back)
        });
        let failures = before.map_or(0, |before| before.failures).saturating_add(1);
        let is_retried = publication.is_retried(kind);
        // An object that was settled once keeps no rollout waiting: only the condition reports later failures.
        let is_settled = before.is_some_and(|before| before.failure.is_none());
        let failure = match publication {
            Publication::Failed(explanation) if !is_settled => Some(CallFailure { why: explanation.clone(), at: now }),
            _ => None,
        };
        let backoff = if failure.is_some() { SHORT_BACKOFF } else { PUBLISH_BACKOFF };
        let wait = if is_retried { backoff.jittered_wait(failures, random) } else { RECHECK_INTERVAL };
        let failures = if is_retried { failures } else { 0 };
        let attempt = ObjectAttempt { subject, giving_way, failures, failure, next: Some(now + wait) };
        self.objects.insert(kind, attempt);
    }

    /// Returns the attempt as a whole, if both kinds were tried with the same version. `steady` is the clock of
    /// rollouts.
    pub(crate) fn attempt(&self, steady: impl Fn(Instant) -> SteadyTime) -> Option<PublishAttempt> {
        let [config_map, secret] = PartKind::ALL.map(|kind| self.objects.get(&kind));
        let (config_map, secret) = (config_map?, secret?);
        let version = config_map.subject.version.clone();
        // Attempts without a failure do not differ for a rollout, so their time does not matter.
        let failure = config_map.failure.as_ref().or(secret.failure.as_ref());
        let failure = failure.map(|failure| PublishFailure { at: steady(failure.at), why: failure.why.clone() });
        (secret.subject.version == version).then_some(PublishAttempt { version, failure })
    }

    /// Returns the time of the next attempt.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.objects.values().filter_map(|attempt| attempt.next).min()
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::Reason;

    use super::*;

    #[test]
    fn what_fails_is_tried_again_less_and_less_often() {
        let (now, kind) = (Instant::now(), PartKind::Secret);
        let subject = |version: &str, generation| PublishSubject {
            version: version.to_owned(),
            generation: Some(generation),
            publishes: true,
            meta: None,
            write_back: None,
        };
        let failed = Publication::Failed(Reason::NotPublished.explained("m"));
        let mut attempts = PublishAttempts::default();
        let mut wait = |version: &str, generation, publication: &Publication| {
            attempts.keep(kind, subject(version, generation), publication, GivingWay::Pending, now, 1.0);
            let next = attempts.next().unwrap();
            let early = next.checked_sub(Duration::from_millis(1)).unwrap();
            assert!(!attempts.is_due(kind, &subject(version, generation), early));
            assert!(attempts.is_due(kind, &subject(version, generation), next));
            assert!(attempts.is_due(kind, &subject("9", generation), now));
            assert!(attempts.is_due(kind, &subject(version, 9), now));
            (next - now).as_secs()
        };
        let waits: Vec<u64> = (0..11).map(|_| wait("1", 1, &failed)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30]);
        assert_eq!((wait("2", 1, &failed), wait("2", 2, &failed)), (1, 1));
        assert_eq!((wait("2", 2, &Publication::Published), wait("2", 2, &failed)), (300, 1));
        let refused = |reason: Reason| Publication::Refused(reason.explained("m"));
        assert_eq!(wait("2", 2, &refused(Reason::NotAllowed)), 2);
        assert_eq!(wait("2", 2, &refused(Reason::NoSecretPart)), 300);
    }

    #[test]
    fn what_was_settled_once_keeps_no_rollout_waiting() {
        let now = Instant::now();
        let subject = |version: &str| PublishSubject {
            version: version.to_owned(),
            generation: Some(1),
            publishes: true,
            meta: None,
            write_back: None,
        };
        let failed = Publication::Failed(Reason::NotPublished.explained("m"));
        let mut attempts = PublishAttempts::default();
        let mut failure = |version: &str, publication: &Publication| {
            attempts.leave(PartKind::Secret, subject(version));
            attempts.keep(PartKind::ConfigMap, subject(version), publication, GivingWay::Pending, now, 1.0);
            attempts.attempt(|_| SteadyTime(0)).unwrap().failure.map(|failure| failure.why.reason)
        };
        assert_eq!(failure("1", &failed), Some(Reason::NotPublished));
        assert_eq!(failure("1", &Publication::Published), None);
        assert_eq!(failure("1", &failed), None, "it is tried every few minutes");
        assert_eq!(failure("2", &failed), Some(Reason::NotPublished));
    }

    #[test]
    fn a_text_that_is_written_again_and_again_gives_way_less_and_less_often() {
        let (mut attempts, mut now) = (PublishAttempts::default(), Instant::now());
        assert_eq!(attempts.contest_wait(now), None);
        let mut wait = |pause: u64| {
            now += Duration::from_secs(pause);
            attempts.note_contest(now, 1.0);
            let wait = attempts.contest_wait(now).unwrap();
            now += wait;
            assert_eq!(attempts.contest_wait(now), None);
            wait.as_secs()
        };
        let waits: Vec<u64> = (0..10).map(|_| wait(3)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(wait(301), 1, "nobody wrote it for a while");
    }

    #[test]
    fn a_text_has_given_way_once_all_objects_that_nudge_may_write_are_done() {
        use GivingWay::{Done, Needless, Pending};
        let (now, cause) = (Instant::now(), nudge_core::followed_objects::WriteBackCause::Failed);
        let back = WriteBack { version: "2".to_owned(), cause, needs_label: false };
        let subject = |write_back| PublishSubject {
            version: "1".to_owned(),
            generation: Some(1),
            publishes: true,
            meta: None,
            write_back,
        };
        let failed = Publication::Failed(Reason::NotPublished.explained("m"));
        let refused = Publication::Refused(Reason::NotOurs.explained("m"));
        // Somebody has corrected it.
        let other = Publication::OtherText(Reason::OtherText.explained("m"));
        let each = [Publication::Published, refused, failed, other].map(|publication| GivingWay::of(&publication));
        assert_eq!(each, [Done, Needless, Pending, Pending]);
        for (config_map, secret, expected) in [
            (Done, Done, true),
            (Needless, Done, true),
            (Done, Pending, false),
            (Pending, Done, false),
            (Needless, Needless, false),
        ] {
            let mut attempts = PublishAttempts::default();
            let mut keep = |kind, giving_way, write_back| {
                attempts.keep(kind, subject(write_back), &Publication::Published, giving_way, now, 1.0);
                attempts.has_given_way(&back)
            };
            assert!(!keep(PartKind::Secret, secret, Some(back.clone())), "the ConfigMap was not tried");
            assert!(!keep(PartKind::ConfigMap, config_map, None), "that was before");
            let has_given_way = keep(PartKind::ConfigMap, config_map, Some(back.clone()));
            assert_eq!(has_given_way, expected, "{config_map:?} {secret:?}");
            attempts.leave(PartKind::Secret, subject(Some(back.clone())));
            assert_eq!(attempts.has_given_way(&back), config_map == Done, "the config has no Secret");
        }
    }
}
