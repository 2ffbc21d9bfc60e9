//! The status after an attempt to publish.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason, VersionedConfig, condition, find_condition, set_condition};

use super::Publication;
use crate::event_record::EventRecord;

/// The config with its new status, and the Events about the change.
pub type PublishOutcome = (VersionedConfig, Vec<EventRecord>);

/// The result of an attempt to bring a version to a published object.
pub struct Attempt {
    /// The decision about the object.
    pub publication: Publication,
    /// Whether the object may still hold the content that the status names.
    pub had_version: bool,
    /// The time when the object was written, if it holds the version.
    pub time: Timestamp,
}

/// Returns the config with conditions and fields as the attempt left them, if they changed.
pub fn apply_outcome(
    kind: PartKind,
    config: &VersionedConfig,
    version: &str,
    attempt: &Attempt,
    now: &Time,
) -> Option<PublishOutcome> {
    let mut next = config.clone();
    let status = next.status.get_or_insert_default();
    let mut events = Vec::new();
    let message_of = |kind| find_condition(&status.conditions, kind).map(|condition| condition.message.clone());
    let before = [kind.condition(), kind.drift_condition()].map(message_of);
    let mut note = |reason: Reason, message: &String| {
        if !before.iter().flatten().any(|before| before == message) {
            events.push(EventRecord::new(reason, message.as_str()));
        }
    };
    let drifts = matches!(attempt.publication, Publication::Drifted(_));
    if !drifts && kind.drift_condition() != kind.condition() {
        status.conditions.retain(|condition| condition.type_ != kind.drift_condition().as_str());
    }
    let (is_true, reason, message) = match &attempt.publication {
        Publication::NotThere => {
            // The field stays: an object that somebody creates under the name is theirs until the next activation.
            let Some(published) = kind.published_version(status) else {
                status.conditions.retain(|condition| condition.type_ != kind.condition().as_str());
                return (next.status != config.status).then_some((next, events));
            };
            let name = config.metadata.name.as_deref().unwrap_or_default();
            let message =
                format!("{kind} {name}, which had version {published}, was deleted; create it again if it is needed");
            (false, Reason::NotFound, message)
        }
        // An object that was to be written has been written by now.
        Publication::Published | Publication::Write => {
            let message = format!("the published {kind} holds version {version}");
            let (published, time) = kind.version_fields(status);
            if published.as_deref() != Some(version) {
                note(Reason::Published, &message);
                (*published, *time) = (Some(version.to_owned()), Some(Time(attempt.time)));
            }
            (true, Reason::Published, message)
        }
        Publication::OtherText(Explanation { reason, message }) => {
            let (published, time) = kind.version_fields(status);
            (*published, *time) = (None, None);
            (false, *reason, message.clone())
        }
        Publication::Drifted(message) => {
            note(Reason::Drifted, message);
            // The condition Drifted is true if the kind has such a condition; SecretPublished is false.
            (kind.drift_condition() != kind.condition(), Reason::ChangedByOthers, message.clone())
        }
        Publication::Refused(Explanation { reason, message })
        | Publication::Failed(Explanation { reason, message }) => {
            note(Reason::NotPublished, message);
            if !attempt.had_version {
                let (published, time) = kind.version_fields(status);
                (*published, *time) = (None, None);
            }
            (false, *reason, message.clone())
        }
    };
    let condition_type = if drifts { kind.drift_condition() } else { kind.condition() };
    let new_condition = condition(condition_type, is_true, reason, message, config.metadata.generation, now);
    set_condition(&mut status.conditions, new_condition);
    (next.status != config.status).then_some((next, events))
}

/// Returns the config after the kind has left `spec.objects`: the object stays as it is, and the status says nothing
/// about it.
pub fn clear_publication(kind: PartKind, config: &VersionedConfig) -> Option<PublishOutcome> {
    let mut next = config.clone();
    let status = next.status.as_mut()?;
    let (published, time) = kind.version_fields(status);
    (*published, *time) = (None, None);
    let removed = [kind.condition(), kind.drift_condition()];
    status.conditions.retain(|condition| removed.iter().all(|kind| condition.type_ != kind.as_str()));
    (next.status != config.status).then_some((next, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> VersionedConfig {
        let mut config = VersionedConfig::new("shop", nudge_api::VersionedConfigSpec::default());
        config.status = Some(nudge_api::VersionedConfigStatus::default());
        config
    }

    fn after(
        kind: PartKind,
        config: &VersionedConfig,
        version: &str,
        attempt: (Publication, bool),
    ) -> Option<PublishOutcome> {
        let attempt = Attempt { publication: attempt.0, had_version: attempt.1, time: Timestamp::UNIX_EPOCH };
        apply_outcome(kind, config, version, &attempt, &Time(Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn the_status_claims_no_more_than_was_written() {
        for kind in [PartKind::ConfigMap, PartKind::Secret] {
            let (published, events) = after(kind, &config(), "1", (Publication::Published, true)).unwrap();
            let version_of =
                |config: &VersionedConfig| kind.published_version(config.status.as_ref().unwrap()).map(str::to_owned);
            assert_eq!((version_of(&published).as_deref(), events.len()), (Some("1"), 1));
            assert_eq!(after(kind, &published, "1", (Publication::Published, true)), None);
            for failed in [Publication::Refused, Publication::Failed] {
                let step = || failed(Reason::NotAllowed.explained("m"));
                let refused = |had_version| after(kind, &published, "2", (step(), had_version)).unwrap();
                assert_eq!((version_of(&refused(true).0).as_deref(), version_of(&refused(false).0)), (Some("1"), None));
                let (next, events) = refused(true);
                assert_eq!(events.len(), 1);
                assert_eq!(after(kind, &next, "2", (step(), true)), None, "one Event");
                let (gone, _) = clear_publication(kind, &next).unwrap();
                assert!(version_of(&gone).is_none() && gone.status.as_ref().unwrap().conditions.is_empty());
                assert_eq!(clear_publication(kind, &gone), None);
            }
        }
    }

    #[test]
    fn a_change_by_others_is_said_once_and_ends() {
        for kind in [PartKind::ConfigMap, PartKind::Secret] {
            let drifted = || (Publication::Drifted("m".to_owned()), true);
            let (next, events) = after(kind, &config(), "1", drifted()).unwrap();
            assert_eq!((events.len(), after(kind, &next, "1", drifted())), (1, None));
            let (next, _) = after(kind, &next, "1", (Publication::Published, true)).unwrap();
            let conditions: Vec<_> = next.status.unwrap().conditions.into_iter().map(|one| one.type_).collect();
            assert_eq!(conditions, [kind.condition().as_str()]);
        }
    }
}
