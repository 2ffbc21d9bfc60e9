//! Attempts to publish a version: which object is due, its comparison with the version's parts, its write, and the
//! outcome in the status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason, VersionStatus, VersionedConfig};
use nudge_cluster::call::CallError;
use nudge_core::followed_objects::{WriteBack, WriteBackCause};
use nudge_core::keys::{ConfigKey, PublishedMeta};
use nudge_core::publish::{
    Attempt, ObjectUse, Publication, PublishGoal, PublishOutcome, PublishedContent, WriteRecord, apply_outcome,
    clear_publication, decide_publication, object_to_write, publish_time, text_time,
};
use nudge_core::rollout::{PublishAttempt, version_to_publish};
use nudge_core::versions::Seals;

use super::calls::{Act, ObjectApi, publication_fault};
use crate::controller::{Controller, FIELD_MANAGER};
use crate::memory::{GivingWay, PublishAttempts, PublishSubject};

/// What an attempt came to.
struct Tried {
    attempt: Attempt,
    giving_way: GivingWay,
    /// The object's metadata after a write.
    written: Option<PublishedMeta>,
}

impl Controller {
    /// Brings the proven version to the objects that the spec publishes. Returns the config after that. Only writes of
    /// its status can fail.
    pub(crate) async fn publish(
        &self,
        key: &ConfigKey,
        mut config: Arc<VersionedConfig>,
    ) -> Result<Arc<VersionedConfig>, CallError> {
        let write_back = WriteBack::of(&config);
        let mut has_written = false;
        for kind in PartKind::ALL {
            let (outcome, is_written) = self.publish_kind(kind, key, &config, write_back.as_ref()).await;
            has_written |= is_written;
            config = self.write_outcome(key, config, outcome).await?;
        }
        match write_back {
            Some(write_back) => self.note_write_back(key, config, &write_back, has_written).await,
            None => Ok(config),
        }
    }

    /// Writes into the status that a text gave way. A text that failed is noted once all objects that Nudge may write
    /// hold the current version, also by a write that an earlier attempt did not record.
    async fn note_write_back(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
        write_back: &WriteBack,
        has_written: bool,
    ) -> Result<Arc<VersionedConfig>, CallError> {
        let has_given_way = match write_back.cause {
            WriteBackCause::Failed => {
                self.memories.get(key, |memory| memory.publish.has_given_way(write_back)).unwrap_or_default()
            }
            WriteBackCause::ClosedGate(_) => {
                if has_written {
                    self.memories.change(key, |memory| memory.publish.note_contest(Instant::now(), rand::random()));
                }
                has_written
            }
        };
        if !has_given_way {
            return Ok(config);
        }
        let (status, event) = write_back.note(&config);
        if config.status.as_ref() == Some(&status) {
            self.events.record(&config, &[event]);
            return Ok(config);
        }
        let mut next = (*config).clone();
        next.status = Some(status);
        self.write_outcome(key, config, Some((next, vec![event]))).await
    }

    /// Returns the last attempt, if it was about the same version for all objects.
    pub(crate) fn publish_attempt(&self, key: &ConfigKey) -> Option<PublishAttempt> {
        let steady = |instant| self.steady_at(instant).unwrap_or_default();
        self.memories.get(key, |memory| memory.publish.attempt(steady)).flatten()
    }

    /// Returns whether workloads may be restarted with the version: once it is published, or can't be. `overdue`
    /// restarts don't wait for failed attempts.
    pub(crate) fn restarts_with(&self, key: &ConfigKey, version: &str, overdue: bool) -> bool {
        let attempt = self.publish_attempt(key).filter(|attempt| attempt.version == version);
        attempt.is_some_and(|attempt| overdue || attempt.failure.is_none())
    }

    /// Returns when to publish again.
    pub(crate) fn next_publication(&self, key: &ConfigKey) -> Option<Duration> {
        let next = self.memories.get(key, |memory| memory.publish.next()).flatten()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Forgets the attempts, so that publications that the status does not record are tried again.
    pub(super) fn forget_published(&self, key: &ConfigKey) {
        self.memories.get(key, |memory| memory.publish = PublishAttempts::default());
    }

    /// Notes that the version was brought to all published objects.
    #[cfg(test)]
    pub(crate) fn note_published(&self, key: &ConfigKey, version: &str) {
        let (version, write_back) = (version.to_owned(), None);
        let subject = PublishSubject { version, generation: None, publishes: true, meta: None, write_back };
        self.memories.change(key, |memory| {
            for kind in PartKind::ALL {
                memory.publish.leave(kind, subject.clone());
            }
        });
    }

    /// Writes the outcome of an attempt into the status.
    async fn write_outcome(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
        outcome: Option<PublishOutcome>,
    ) -> Result<Arc<VersionedConfig>, CallError> {
        let Some((next, events)) = outcome else { return Ok(config) };
        let written = Box::pin(self.write_status(key, &config, &next.status.unwrap_or_default())).await;
        // An outcome that is not written is not known to others, so it is tried again.
        let Some(written) = written.inspect_err(|_| self.forget_published(key))? else { return Ok(config) };
        self.events.record(&written, &events);
        Ok(Arc::new(written))
    }

    /// Brings the version to the object of this kind, if it is due. Returns the outcome, and whether it was written.
    async fn publish_kind(
        &self,
        kind: PartKind,
        key: &ConfigKey,
        config: &VersionedConfig,
        write_back: Option<&WriteBack>,
    ) -> (Option<PublishOutcome>, bool) {
        let Some(status) = &config.status else { return (None, false) };
        let is_published = config.spec.owns(kind);
        let Some(version) = version_to_publish(status).and_then(|version| status.version(version)) else {
            self.forget_published(key);
            return (if is_published { None } else { clear_publication(kind, config) }, false);
        };
        let mut subject = PublishSubject {
            version: version.version.clone(),
            generation: config.metadata.generation,
            publishes: is_published,
            meta: self.index.published_meta(key).filter(|_| kind.is_watched()),
            write_back: write_back.cloned(),
        };
        let now = Instant::now();
        if !is_published {
            self.memories.change(key, |memory| memory.publish.leave(kind, subject));
            return (clear_publication(kind, config), false);
        }
        if self.memories.get(key, |memory| memory.publish.is_due(kind, &subject, now)) == Some(false) {
            return (None, false);
        }
        let contest_wait = self.contest_wait(key, write_back, now);
        let allowed = write_back.filter(|_| contest_wait.is_none());
        let Tried { mut attempt, giving_way, written } = self.attempt(kind, key, config, version, allowed).await;
        if let (Some(wait), Publication::OtherText(explanation)) = (contest_wait, &mut attempt.publication) {
            *explanation = contested(kind, key, &version.version, wait);
        }
        if let Publication::Failed(explanation) = &attempt.publication {
            tracing::warn!(config = %key, reason = %explanation.reason, message = explanation.message, "publishing failed; retrying");
        }
        let is_written = written.is_some();
        // The metadata that the watch shows now, or after this write.
        subject.meta = written.filter(|_| kind.is_watched()).or(subject.meta);
        let outcome = apply_outcome(kind, config, &version.version, &attempt, &Time(Timestamp::now()));
        self.memories.change(key, |memory| {
            memory.publish.keep(kind, subject, &attempt.publication, giving_way, now, rand::random());
            if let Some(wait) = contest_wait {
                memory.publish.retry_within(kind, wait, now);
            }
        });
        (outcome, is_written)
    }

    /// Returns how long a text that passed a gate stays, because it has given way a short time ago.
    fn contest_wait(&self, key: &ConfigKey, write_back: Option<&WriteBack>, now: Instant) -> Option<Duration> {
        write_back.filter(|write_back| matches!(write_back.cause, WriteBackCause::ClosedGate(_)))?;
        self.memories.get(key, |memory| memory.publish.contest_wait(now)).flatten()
    }

    /// Reads the text of this kind that gives way; `None` if none does.
    async fn left_text(
        &self,
        api: &ObjectApi<'_>,
        key: &ConfigKey,
        config: &VersionedConfig,
        write_back: &WriteBack,
    ) -> Result<Option<PublishedContent>, Publication> {
        let sealed = config.status.as_ref().and_then(|status| status.version(&write_back.version));
        if let Some(version) = sealed {
            return read_content(api, version, &self.seals(key, config)).await;
        }
        // A version that breaks a rule is not sealed. Its text is compared with the object, and never written.
        let mut content = None;
        for part in self.index.parts(key) {
            if part.kind != api.kind || part.version != write_back.version || part.terminating {
                continue;
            }
            let read = api.read(&part.name).await;
            let object = read.map_err(|error| publication_fault(&error, api.kind, &part.name, Act::Read))?;
            let Some(object) = object else { return Ok(None) };
            let joined = PublishedContent::join(content, object.content, &write_back.version);
            content = Some(joined.map_err(Publication::Refused)?);
        }
        Ok(content)
    }

    /// Compares the object with the version, and writes it if it differs.
    async fn attempt(
        &self,
        kind: PartKind,
        key: &ConfigKey,
        config: &VersionedConfig,
        version: &VersionStatus,
        write_back: Option<&WriteBack>,
    ) -> Tried {
        let (name, now) = (key.name.as_str(), Timestamp::now());
        let without_write = |publication, had_version: bool, time| {
            // The status keeps the previous content of a ConfigMap that users made.
            let attempt = Attempt { publication, had_version: had_version || !kind.is_created(), time };
            Tried { giving_way: GivingWay::of(&attempt.publication), attempt, written: None }
        };
        let api = ObjectApi { client: &self.client, namespace: &key.namespace, kind };
        let stored = match api.read(name).await {
            Ok(stored) => stored,
            Err(error) => return without_write(publication_fault(&error, kind, name, Act::Read), true, now),
        };
        let record = stored.as_ref().map(|stored| WriteRecord::Stored(&stored.metadata));
        let exists = stored.is_some();
        let time = match &stored {
            Some(stored) if config.spec.follows_text() => text_time(&stored.metadata, now),
            _ => publish_time(record, FIELD_MANAGER, now),
        };
        if !exists && !kind.is_created() {
            return without_write(Publication::NotThere, true, time);
        }
        let seals = self.seals(key, config);
        let content = match read_content(&api, version, &seals).await {
            Ok(content) => content,
            Err(publication) => return without_write(publication, exists, time),
        };
        let text = match write_back {
            Some(write_back) => self.left_text(&api, key, config, write_back).await,
            None => Ok(None),
        };
        let text = match text {
            Ok(text) => text,
            Err(publication) => return without_write(publication, exists, time),
        };
        let differs = matches!((&text, &content), (Some(text), Some(content)) if text.values() != content.values());
        let without_write = |publication, had_version, time| {
            let tried = without_write(publication, had_version, time);
            if differs { tried } else { Tried { giving_way: GivingWay::Needless, ..tried } }
        };
        let object_use = match (&text, write_back) {
            (Some(text), Some(back)) => ObjectUse::LeftText { text, needs_label: back.needs_label },
            _ if config.spec.follows_text() => ObjectUse::Text,
            _ => ObjectUse::Published,
        };
        let goal = PublishGoal {
            kind,
            name,
            version: &version.version,
            object_use,
            published: config.status.as_ref().and_then(|status| kind.published_version(status)),
            content: content.as_ref(),
            seals: &seals,
            writer: FIELD_MANAGER,
        };
        let step = decide_publication(stored.as_ref(), &goal);
        let had_version = exists && !step.is_of_others();
        if step != Publication::Write {
            return without_write(step, had_version, time);
        }
        let Some(next) = object_to_write(stored, &goal) else { return without_write(step, had_version, time) };
        let act = if exists { Act::Replace } else { Act::Create };
        let written = match api.write(name, &next, act).await {
            Ok(written) => written,
            Err(error) => return without_write(publication_fault(&error, kind, name, act), had_version, time),
        };
        // Pods read the object as another party's webhook has changed it.
        if decide_publication(Some(&written), &goal) != Publication::Published {
            let message = format!(
                "{kind} {name} was changed while it was written and does not hold version {}; look for an admission webhook that changes \
                 {kind}s",
                version.version
            );
            return without_write(Publication::Refused(Reason::ChangedByOthers.explained(message)), false, time);
        }
        tracing::info!(%kind, version = version.version, gives_way = ?write_back, "version published");
        let time = publish_time(Some(WriteRecord::Answer(&written.metadata)), FIELD_MANAGER, Timestamp::now());
        let meta = PublishedMeta {
            uid: written.metadata.uid.unwrap_or_default(),
            resource_version: written.metadata.resource_version.unwrap_or_default(),
        };
        Tried { written: Some(meta), ..without_write(Publication::Published, true, time) }
    }
}

/// Explains that a text that passed a gate stays for a while, because somebody keeps writing it.
fn contested(kind: PartKind, key: &ConfigKey, version: &str, wait: Duration) -> Explanation {
    let name = &key.name;
    let seconds = wait.as_secs().saturating_add(1);
    Reason::TextContested.explained(format!(
        "somebody keeps writing a text to {kind} {name} that may not go out yet; Nudge puts version {version} back \
         in {seconds} s; see who writes it (kubectl get --show-managed-fields)"
    ))
}

/// Reads the version's parts of the kind as they were sealed; `None` without any.
async fn read_content(
    api: &ObjectApi<'_>,
    version: &VersionStatus,
    seals: &Seals,
) -> Result<Option<PublishedContent>, Publication> {
    let kind = api.kind;
    let mut content = None;
    for (part, number) in version.parts.iter().zip(1..).filter(|(part, _)| part.kind == kind) {
        let name = &part.name;
        let stored = api.read(name).await.map_err(|error| publication_fault(&error, kind, name, Act::Read))?;
        let sealed = stored.filter(|object| {
            object.metadata.uid.as_ref() == Some(&part.uid)
                && seals.is_sealed(&part.digest, &version.version, number, object.content.values())
        });
        let Some(object) = sealed else {
            let message = format!(
                "{kind} {name} is gone or is not what was sealed as version {}; put it back as it was",
                version.version
            );
            return Err(Publication::Refused(Reason::Changed.explained(message)));
        };
        let joined = PublishedContent::join(content, object.content, &version.version);
        content = Some(joined.map_err(Publication::Refused)?);
    }
    Ok(content)
}
