//! What was last read of the text of a config's objects, and when to read it again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason};
use nudge_core::followed_objects::{FirstVersion, TEXT_DEBOUNCE, TextWrites};
use nudge_core::keys::PublishedMeta;
use nudge_core::sources::DebouncedVersion;
use nudge_core::versions::ContentDigests;
use nudge_protocol::backoff::Backoff;

/// The time between two reads of objects that a watch shows.
const WATCHED_INTERVAL: Duration = Duration::from_mins(5);
/// The time between two reads of a Secret, or of a ConfigMap without our label, which no watch shows.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(10);
/// The number of reads in a row after which a failure is reported, in about half a minute.
const LASTING_FAILURES: u32 = 6;
/// The waits after reads in a row that gave no text.
const MISSING_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// A text that can become a version, as it was read.
pub(crate) struct TextReading {
    pub(crate) digests: ContentDigests,
    /// The digest of the content as a name.
    pub(crate) version: String,
    pub(crate) writes: TextWrites,
}

/// A text that can become a version.
#[derive(Clone, Debug)]
pub(crate) struct TextContent {
    pub(crate) digests: ContentDigests,
    pub(crate) writes: TextWrites,
    /// The digest of the content, with the times of its changes.
    pub(crate) newest: DebouncedVersion,
}

#[derive(Clone, Debug, Default)]
enum TextState {
    /// The objects have not been read yet.
    #[default]
    Unread,
    /// The objects have no text that can become a version.
    Missing(Explanation),
    Read(TextContent),
}

/// What a text was read for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextSubject {
    /// The metadata of the ConfigMap that the watch showed before the read.
    pub(crate) meta: Option<PublishedMeta>,
    /// The generation of the spec.
    pub(crate) generation: Option<i64>,
}

/// What was last read of the text of a config's objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextMemory {
    state: TextState,
    subject: Option<TextSubject>,
    /// The number of reads in a row that gave no text.
    missing: u32,
    next: Option<Instant>,
    /// The digest of the text that the status records.
    recorded: Option<String>,
    /// The objects that last got the label, by their uids, and when.
    labelled: BTreeMap<PartKind, (String, Instant)>,
    /// What this leader knows of the objects of the first version, and for which digest it made them.
    pub(crate) first: FirstVersion,
    first_digest: Option<String>,
    /// The text whose readers were last looked for, and when to look again.
    readers: Option<(ReadersSubject, Instant)>,
}

/// The version of a text, and whether it gives way if somebody reads it.
type ReadersSubject = (String, bool);

impl TextMemory {
    /// Returns whether the object with this uid may get the label: at most once in a while.
    pub(crate) fn label_is_due(&self, kind: PartKind, uid: &str, now: Instant) -> bool {
        let last = self.labelled.get(&kind).filter(|(labelled, _)| labelled == uid);
        last.is_none_or(|(_, at)| now.saturating_duration_since(*at) >= WATCHED_INTERVAL)
    }

    /// Notes that the object with this uid got the label.
    pub(crate) fn note_label(&mut self, kind: PartKind, uid: String, now: Instant) {
        self.labelled.insert(kind, (uid, now));
    }

    /// Notes that the objects of the first version were made of the text with this digest.
    pub(crate) fn note_first(&mut self, digest: &str) {
        (self.first, self.first_digest) = (FirstVersion::Made, Some(digest.to_owned()));
    }

    /// Returns what is known of the first version, for the text with this digest.
    pub(crate) fn first_for(&self, digest: &str) -> FirstVersion {
        match self.first {
            FirstVersion::Made if self.first_digest.as_deref() != Some(digest) => FirstVersion::Taken,
            known => known,
        }
    }

    /// Returns whether the readers of the text must be looked for.
    pub(crate) fn readers_are_due(&self, subject: &ReadersSubject, now: Instant) -> bool {
        self.readers.as_ref().is_none_or(|(known, next)| known != subject || *next <= now)
    }

    /// Notes that the readers of the text were looked for.
    pub(crate) fn note_readers(&mut self, subject: ReadersSubject, now: Instant) {
        self.readers = Some((subject, now + WATCHED_INTERVAL));
    }

    /// Returns whether the objects must be read, because they may have changed.
    pub(crate) fn is_due(&self, meta: Option<&PublishedMeta>, generation: Option<i64>, now: Instant) -> bool {
        let is_same =
            self.subject.as_ref().is_some_and(|known| known.meta.as_ref() == meta && known.generation == generation);
        !is_same || self.next.is_none_or(|next| next <= now)
    }

    /// Keeps the result of a read.
    pub(crate) fn keep(
        &mut self,
        read: Result<TextReading, Explanation>,
        subject: TextSubject,
        is_watched: bool,
        now: Instant,
        time: Timestamp,
    ) {
        self.missing = if read.is_ok() { 0 } else { self.missing.saturating_add(1) };
        let wait = match (self.missing, is_watched) {
            (0, true) => WATCHED_INTERVAL,
            (0, false) => UNWATCHED_INTERVAL,
            (missing, _) => MISSING_BACKOFF.jittered_wait(missing, rand::random()),
        };
        (self.subject, self.next) = (Some(subject), now.checked_add(wait));
        // A call that fails for a moment says nothing about the text.
        let is_passing = self.missing < LASTING_FAILURES;
        self.state = match (read, std::mem::take(&mut self.state)) {
            (Err(why), TextState::Read(content)) if is_passing && why.reason == Reason::TextNotTaken => {
                TextState::Read(content)
            }
            (Err(why), _) => TextState::Missing(why),
            (Ok(TextReading { digests, version, writes }), before) => {
                let newest = match before {
                    TextState::Read(TextContent { mut newest, .. }) => {
                        newest.observe(version, TEXT_DEBOUNCE, time);
                        newest
                    }
                    TextState::Unread | TextState::Missing(_) => DebouncedVersion::first(version, time),
                };
                TextState::Read(TextContent { digests, writes, newest })
            }
        };
    }

    /// Returns the text once it has settled, or why there is none; `None` while it is not known.
    pub(crate) fn settled(&self, now: Timestamp) -> Option<Result<&TextContent, &Explanation>> {
        match &self.state {
            TextState::Unread => None,
            TextState::Missing(why) => Some(Err(why)),
            TextState::Read(content) => (content.newest.settles_at(TEXT_DEBOUNCE) <= now).then_some(Ok(content)),
        }
    }

    /// Notes that the status records the version of the text.
    pub(crate) fn note_recorded(&mut self) {
        if let TextState::Read(content) = &self.state {
            self.recorded = Some(content.newest.version.clone());
        }
    }

    /// Returns the time at which the text settles, while the status does not record its version.
    pub(crate) fn unrecorded_settle_time(&self) -> Option<Timestamp> {
        let TextState::Read(content) = &self.state else { return None };
        let is_recorded = self.recorded.as_ref() == Some(&content.newest.version);
        (!is_recorded).then(|| content.newest.settles_at(TEXT_DEBOUNCE))
    }

    /// Returns whether the objects have no text. They may be gone.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&self.state, TextState::Missing(why) if why.reason == Reason::NoText)
    }

    /// Returns when to look again.
    pub(crate) fn wait(&self, now: Instant, time: Timestamp) -> Option<Duration> {
        let settles = match &self.state {
            TextState::Read(content) => {
                let left = content.newest.settles_at(TEXT_DEBOUNCE).duration_since(time);
                Duration::try_from(left).ok().filter(|left| !left.is_zero())
            }
            TextState::Unread | TextState::Missing(_) => None,
        };
        let reads = self.next.map(|next| next.saturating_duration_since(now));
        settles.into_iter().chain(reads).min()
    }
}
