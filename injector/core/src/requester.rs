//! The users who requested a version, as admission saw it: an annotation for `spec.version`, one for
//! `spec.rollout.override`, and one for another attempt with a version that failed. In the same way, the user who set
//! the spec of a `ConfigSource`, and so decided the content of its versions.
//!
//! The webhook writes these annotations and removes text that users wrote there. The controller believes no other
//! annotations: each is a note (`crate::signed_notes`) about the config and the request, with the user and the time. So
//! an old note says nothing about another version or a later request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use nudge_api::{ConfigSource, Override, VersionedConfig};
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::labels;

use crate::derived_keys::NoteKey;
use crate::signed_notes::{self, Clock, whole_second};

/// The maximum length of a user's name that is kept or shown.
const MAX_USER_BYTES: usize = 253;
/// The maximum length of an annotation: time, tag and user.
pub const MAX_REQUESTER_BYTES: usize = MAX_USER_BYTES + 80;

/// Returns the name of a user in one line of bounded length.
pub(crate) fn bounded_user(user: &str) -> String {
    one_line(user, MAX_USER_BYTES)
}

/// What a user wants of a config, in its spec or an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRequest<'a> {
    /// The version in `spec.version`.
    Version(&'a str),
    /// Another attempt with the version, by the annotation `nudge.dev/retry`.
    Retry(&'a str),
    /// A version for all pods at once, in `spec.rollout.override`.
    Override {
        /// The version for all pods.
        version: &'a str,
        /// The reason why nobody can wait.
        reason: &'a str,
        /// The end of the override.
        until: Timestamp,
    },
}

/// The user who made a request, and the time of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The user, in one line of bounded length.
    pub user: String,
    /// The time, in whole seconds.
    pub at: Time,
}

/// The users who requested the contents of a config's spec; `None` for an unknown user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requesters {
    /// The user who set `spec.version`.
    pub current: Option<Requester>,
    /// The user who set `spec.rollout.override`.
    pub overridden: Option<Requester>,
    /// The user who asked last for another attempt with the version that `spec.version` names.
    pub retry: Option<Requester>,
}

impl Requester {
    /// Returns the requester with this name, at this time.
    pub fn new(user: &str, time: Timestamp) -> Self {
        Self { user: bounded_user(user), at: Time(whole_second(time)) }
    }

    /// Signs the annotation that records this user's request.
    pub fn sign(&self, key: &NoteKey, namespace: &str, name: &str, request: UserRequest<'_>) -> String {
        request.about(namespace, name, |purpose, subject| {
            signed_notes::sign(&key.0, purpose, subject, &self.user, self.at.0)
        })
    }
}

impl UserRequest<'_> {
    /// Reads the requester from the annotation, if its note is valid for this request.
    fn requester(self, annotation: &str, key: &NoteKey, namespace: &str, name: &str) -> Option<Requester> {
        let note = self.about(namespace, name, |purpose, subject| {
            signed_notes::read(&key.0, purpose, subject, annotation, Clock::Any)
        })?;
        Some(Requester::new(&note.value, note.time))
    }

    /// Passes the annotation's name and the facts that the note covers.
    fn about<T>(self, namespace: &str, name: &str, note: impl FnOnce(&str, &[&str]) -> T) -> T {
        match self {
            Self::Version(version) => note(labels::REQUESTED_BY, &[namespace, name, version]),
            Self::Retry(version) => note(labels::RETRY, &[namespace, name, version]),
            Self::Override { version, reason, until } => {
                note(labels::OVERRIDDEN_BY, &[namespace, name, version, reason, &until.to_string()])
            }
        }
    }
}

impl Requesters {
    /// Returns the users who requested the contents of this config's spec.
    pub fn of(config: &VersionedConfig, key: &NoteKey) -> Self {
        let meta = &config.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let requester = |label: &str, request: Option<UserRequest<'_>>| {
            let annotation = meta.annotations.as_ref()?.get(label)?;
            request?.requester(annotation, key, namespace, name)
        };
        let spec = &config.spec;
        Self {
            current: requester(labels::REQUESTED_BY, spec.version.as_deref().map(UserRequest::Version)),
            overridden: requester(labels::OVERRIDDEN_BY, spec.rollout.overridden.as_ref().map(UserRequest::from)),
            retry: requester(labels::RETRY, config.requested_version().map(UserRequest::Retry)),
        }
    }

    /// Returns the time when somebody last requested another attempt.
    pub fn retry_time(&self) -> Option<Time> {
        self.retry.as_ref().map(|requester| requester.at.clone())
    }
}

/// Returns the time when somebody last requested another attempt, as noted by the webhook. The signature is not
/// checked.
pub fn noted_retry_time(config: &VersionedConfig) -> Option<Time> {
    let note = config.metadata.annotations.as_ref()?.get(labels::RETRY)?;
    Some(Time(note.split(' ').next()?.parse().ok()?))
}

impl<'a> From<&'a Override> for UserRequest<'a> {
    fn from(Override { version, reason, until_time }: &'a Override) -> Self {
        Self::Override { version, reason, until: until_time.0 }
    }
}

/// Returns the note that admission writes about the user who sets the spec of a source. `None` if a note can't hold the
/// source's name or the user.
pub fn sign_setter(key: &NoteKey, (namespace, source): (&str, &str), user: &str, now: Timestamp) -> Option<String> {
    let is_valid = !source.is_empty() && !user.is_empty() && one_line(user, MAX_USER_BYTES) == user;
    is_valid.then(|| signed_notes::sign(&key.0, labels::SET_BY, &[namespace, source], user, now))
}

/// Returns the user who set the spec of the source that has this note.
pub fn read_setter(key: &NoteKey, (namespace, source): (&str, &str), note: &str) -> Option<String> {
    signed_notes::read(&key.0, labels::SET_BY, &[namespace, source], note, Clock::Any).map(|note| note.value)
}

/// Returns the annotation `nudge.dev/set-by` of the parts that the source makes: the source's name and its note.
pub fn part_annotation(source: &ConfigSource) -> Option<String> {
    let (name, annotations) = (source.metadata.name.as_deref()?, source.metadata.annotations.as_ref()?);
    let note = annotations.get(labels::SET_BY).filter(|note| note.len() <= MAX_REQUESTER_BYTES)?;
    Some(format!("{name} {note}"))
}

/// Returns the user who set the spec of the source that this part names.
pub fn part_setter(key: &NoteKey, part: &ObjectMeta) -> Option<String> {
    let (source, note) = part.annotations.as_ref()?.get(labels::SET_BY)?.split_once(' ')?;
    read_setter(key, (part.namespace.as_deref().unwrap_or_default(), source), note)
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;

    use super::*;
    use crate::signed_notes::tests::note_key;

    fn config(current: &str, overridden: Option<(&str, &str)>) -> VersionedConfig {
        let mut spec = VersionedConfigSpec { version: Some(current.to_owned()), ..VersionedConfigSpec::default() };
        spec.rollout.overridden = overridden.map(|(version, reason)| at_once(version, reason));
        let mut config = VersionedConfig::new("shop", spec);
        config.metadata.namespace = Some("team".to_owned());
        config
    }

    fn at_once(version: &str, reason: &str) -> Override {
        let until_time = Time(Timestamp::from_second(1_790_010_000).unwrap());
        Override { version: version.to_owned(), reason: reason.to_owned(), until_time }
    }

    fn annotate(config: &mut VersionedConfig, label: &str, text: &str) {
        config.metadata.annotations.get_or_insert_default().insert(label.to_owned(), text.to_owned());
    }

    fn alice() -> Requester {
        Requester::new("alice", Timestamp::from_second(1_790_000_000).unwrap())
    }

    #[test]
    fn what_admission_wrote_is_read_for_that_version_of_that_config_alone() {
        let written = alice().sign(&note_key(1), "team", "shop", UserRequest::Version("2"));
        assert!(written.starts_with("2026-09-21T14:13:20Z ") && written.ends_with(" alice"), "{written}");
        let says = |change: &dyn Fn(&mut VersionedConfig), key: &NoteKey| {
            let mut config = config("2", None);
            annotate(&mut config, labels::REQUESTED_BY, &written);
            change(&mut config);
            Requesters::of(&config, key).current
        };
        assert_eq!(says(&|_| {}, &note_key(1)), Some(alice()));
        assert_eq!(says(&|config| config.spec.rollout.bake_seconds = 1, &note_key(1)), Some(alice()), "something else");
        assert_eq!(says(&|config| config.spec.version = Some("3".into()), &note_key(1)), None);
        assert_eq!(says(&|config| config.spec.version = None, &note_key(1)), None);
        assert_eq!(says(&|config| config.metadata.namespace = Some("other".into()), &note_key(1)), None);
        assert_eq!(says(&|config| config.metadata.name = Some("game".into()), &note_key(1)), None);
        assert_eq!(says(&|_| {}, &note_key(2)), None, "another key");
        for forged in [written.replace("alice", "bob"), written.replacen("2026", "2027", 1), format!("{written} ")] {
            assert_eq!(says(&|config| annotate(config, labels::REQUESTED_BY, &forged), &note_key(1)), None, "{forged}");
        }
    }

    #[test]
    fn who_set_the_version_and_who_overrode_the_steps_are_two_notes() {
        let asked = at_once("2", "outage");
        let outage = UserRequest::from(&asked);
        let [current, overriding] =
            [UserRequest::Version("2"), outage].map(|asked| alice().sign(&note_key(1), "team", "shop", asked));
        let mut config = config("2", Some(("2", "outage")));
        annotate(&mut config, labels::OVERRIDDEN_BY, &overriding);
        let known = Requesters::of(&config, &note_key(1));
        assert_eq!((known.current, known.overridden), (None, Some(alice())));
        annotate(&mut config, labels::REQUESTED_BY, &overriding);
        annotate(&mut config, labels::OVERRIDDEN_BY, &current);
        assert_eq!(Requesters::of(&config, &note_key(1)), Requesters::default());
        annotate(&mut config, labels::OVERRIDDEN_BY, &overriding);
        config.spec.rollout.overridden = Some(at_once("2", "another"));
        assert_eq!(Requesters::of(&config, &note_key(1)).overridden, None);
        let later = Time(asked.until_time.0 + k8s_openapi::jiff::SignedDuration::from_hours(1));
        config.spec.rollout.overridden = Some(Override { until_time: later, ..asked });
        assert_eq!(Requesters::of(&config, &note_key(1)).overridden, None, "prolonged by somebody else");
    }

    #[test]
    fn a_part_names_who_set_the_spec_of_its_source_and_nobody_else() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let note = sign_setter(&note_key(1), ("team", "shop"), "alice", now);
        let part = |name: &str, note: &Option<String>| {
            let mut source: ConfigSource = serde_json::from_value(serde_json::json!({
                "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": name},
                "spec": {"from": {"git": {"url": "https://git.example.com/shop"}}},
            }))
            .unwrap();
            source.metadata.annotations = note.clone().map(|note| [(labels::SET_BY.to_owned(), note)].into());
            let annotations = part_annotation(&source).map(|note| [(labels::SET_BY.to_owned(), note)].into());
            ObjectMeta { namespace: Some("team".to_owned()), annotations, ..ObjectMeta::default() }
        };
        assert_eq!(part_setter(&note_key(1), &part("shop", &note)).as_deref(), Some("alice"));
        assert_eq!(part_setter(&note_key(1), &part("other", &note)), None, "another source");
        assert_eq!(part_setter(&note_key(2), &part("shop", &note)), None, "another key");
        assert_eq!(part_setter(&note_key(1), &part("shop", &None)), None);
        let elsewhere = ObjectMeta { namespace: Some("other".to_owned()), ..part("shop", &note) };
        assert_eq!(part_setter(&note_key(1), &elsewhere), None);
        let asked = alice().sign(&note_key(1), "team", "shop", UserRequest::Version(""));
        assert_eq!(part_setter(&note_key(1), &part("shop", &Some(asked))), None, "for something else");
        for user in ["", "a\nb", &"x".repeat(MAX_USER_BYTES + 1)] {
            assert_eq!(sign_setter(&note_key(1), ("team", "shop"), user, now), None, "{user:?}");
        }
    }

    #[test]
    fn a_user_is_one_line_of_bounded_length() {
        let at = Timestamp::from_second(1).unwrap();
        let user = format!("a b\n\u{202e}{}", "x".repeat(1000));
        let requester = Requester::new(&user, at);
        assert!(requester.user.len() <= MAX_USER_BYTES && requester.user.starts_with("a b  x"), "{}", requester.user);
        let written = requester.sign(&note_key(1), "team", "shop", UserRequest::Version("2"));
        assert!(written.len() <= MAX_REQUESTER_BYTES, "{}", written.len());
        let mut config = config("2", None);
        annotate(&mut config, labels::REQUESTED_BY, &written);
        assert_eq!(Requesters::of(&config, &note_key(1)).current, Some(requester));
    }
}
