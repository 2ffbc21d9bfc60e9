//! Signed notes of who set `spec.version` and `spec.rollout.override`, and who requested another attempt (see
//! `nudge_core::requester`). They are written when a request sets these fields, and stay when a request changes
//! something else or lacks the notes. Other people's text never stays there.

use json_patch::PatchOperation;
use kube::ResourceExt as _;
use kube::core::dynamic::DynamicObject;
use nudge_core::derived_keys::NoteKey;
use nudge_core::requester::{Requester, UserRequest};
use nudge_protocol::labels::{OVERRIDDEN_BY, REQUESTED_BY, RETRY};

use crate::patch::set_annotations;

/// Returns the operations that note in the config who asked, if this requester does so now. Nothing is noted if `name`
/// is empty, because the API server has yet to generate it.
pub(crate) fn note_requester(
    old: Option<&DynamicObject>,
    new: &DynamicObject,
    namespace: &str,
    name: &str,
    requester: &Requester,
    key: &NoteKey,
) -> Vec<PatchOperation> {
    let fields = [(REQUESTED_BY, current as Field), (OVERRIDDEN_BY, at_once as Field), (RETRY, retry as Field)];
    let notes = fields.map(|(label, field)| {
        let note = match field(new) {
            Some(request) if Some(request) == old.and_then(field) && !is_retried(label, old, new) => {
                old.and_then(|old| old.annotations().get(label)).cloned()
            }
            Some(request) if !name.is_empty() => Some(requester.sign(key, namespace, name, request)),
            _ => None,
        };
        (label, note)
    });
    set_annotations(new.metadata.annotations.as_ref(), notes)
}

type Field = for<'a> fn(&'a DynamicObject) -> Option<UserRequest<'a>>;

/// Returns the request made by `spec.version`. The schema is checked later, so the field may be anything.
fn current(config: &DynamicObject) -> Option<UserRequest<'_>> {
    config.data["spec"]["version"].as_str().map(UserRequest::Version)
}

/// Returns the version whose next attempt is or was requested.
fn retry(config: &DynamicObject) -> Option<UserRequest<'_>> {
    config.annotations().get(RETRY)?;
    let text = || config.data["status"]["internal"]["text"]["version"].as_str();
    config.data["spec"]["version"].as_str().or_else(text).map(UserRequest::Retry)
}

/// Returns whether the user has given the annotation another value, to request another attempt.
fn is_retried(label: &str, old: Option<&DynamicObject>, new: &DynamicObject) -> bool {
    label == RETRY && new.annotations().get(label) != old.and_then(|old| old.annotations().get(label))
}

/// Returns the request made by `spec.rollout.override`.
fn at_once(config: &DynamicObject) -> Option<UserRequest<'_>> {
    let field = |name: &str| config.data["spec"]["rollout"]["override"][name].as_str();
    let until = field("untilTime")?.parse().ok()?;
    Some(UserRequest::Override { version: field("version")?, reason: field("reason")?, until })
}

#[cfg(test)]
mod tests {
    use json_patch::Patch;
    use k8s_openapi::jiff::Timestamp;
    use nudge_api::VersionedConfig;
    use nudge_core::requester::Requesters;
    use serde_json::{Value, json};

    use super::*;

    fn key() -> NoteKey {
        NoteKey::new(b"key")
    }

    fn config(spec: &Value) -> Value {
        json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": "shop", "namespace": "team"}, "spec": spec
        })
    }

    fn object(value: &Value) -> DynamicObject {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// The config as it is stored after this user has written it.
    fn written(old: Option<&Value>, new: &Value, user: &str, second: i64) -> Value {
        let (old, parsed) = (old.map(object), object(new));
        let now = Timestamp::from_second(second).unwrap();
        let patch = note_requester(old.as_ref(), &parsed, "team", "shop", &Requester::new(user, now), &key());
        let mut stored = new.clone();
        json_patch::patch(&mut stored, &Patch(patch)).unwrap();
        stored
    }

    /// Who requested the version, and who for all pods at once.
    fn known(stored: &Value) -> [Option<String>; 2] {
        let config: VersionedConfig = serde_json::from_value(stored.clone()).unwrap();
        let Requesters { current, overridden, .. } = Requesters::of(&config, &key());
        [current, overridden].map(|requester| requester.map(|it| it.user))
    }

    fn names(current: Option<&str>, now: Option<&str>) -> [Option<String>; 2] {
        [current, now].map(|user| user.map(str::to_owned))
    }

    #[test]
    fn it_is_who_set_the_field_last() {
        let one = written(None, &config(&json!({"version": "1"})), "alice", 1);
        assert_eq!(known(&one), names(Some("alice"), None));
        // Something else, by somebody who sends no annotations, as GitOps tools do.
        let baked = written(Some(&one), &config(&json!({"version": "1", "rollout": {"bakeSeconds": 1}})), "bob", 2);
        assert_eq!((known(&baked), &baked["metadata"]), (names(Some("alice"), None), &one["metadata"]));
        // kubectl edit sends the object as it read it.
        let mut edited = baked.clone();
        edited["spec"]["version"] = json!("2");
        let two = written(Some(&baked), &edited, "bob", 3);
        assert_eq!(known(&two), names(Some("bob"), None));
        let now = json!({"version": "2", "reason": "outage", "untilTime": "2026-11-25T12:00:00Z"});
        let at_once = written(Some(&two), &config(&json!({"version": "2", "rollout": {"override": now}})), "carol", 4);
        assert_eq!(known(&at_once), names(Some("bob"), Some("carol")));
        let later = written(Some(&at_once), &config(&json!({"version": "3", "rollout": {"override": now}})), "dave", 5);
        assert_eq!(known(&later), names(Some("dave"), Some("carol")));
        let none = written(Some(&later), &config(&json!({})), "dave", 6);
        assert_eq!(none["metadata"].get("annotations"), None);
    }

    #[test]
    fn what_a_user_writes_or_has_kept_is_replaced() {
        let one = written(None, &config(&json!({"version": "1"})), "alice", 1);
        let kept = one["metadata"]["annotations"].clone();
        let two = written(Some(&one), &config(&json!({"version": "2"})), "bob", 2);
        let mut replayed = config(&json!({"version": "1"}));
        replayed["metadata"]["annotations"] = kept.clone();
        assert_eq!(known(&written(Some(&two), &replayed, "mallory", 3)), names(Some("mallory"), None));
        assert_eq!(known(&written(None, &replayed, "mallory", 3)), names(Some("mallory"), None));
        // Beside a version that does not change.
        let unsigned = config(&json!({"version": "1"}));
        let stored = written(Some(&unsigned), &replayed, "mallory", 3);
        assert_eq!(stored["metadata"]["annotations"], json!({}));
        let mut other = two.clone();
        other["metadata"]["annotations"] = json!({REQUESTED_BY: "alice", "note": "b"});
        let stored = written(Some(&two), &other, "mallory", 4);
        assert_eq!(
            (known(&stored), &stored["metadata"]["annotations"]["note"]),
            (names(Some("bob"), None), &json!("b"))
        );
        other["metadata"]["annotations"] = Value::Null;
        assert_eq!(known(&written(Some(&two), &other, "mallory", 4)), names(Some("bob"), None), "none is removed");
    }

    #[test]
    fn another_value_requests_another_attempt_and_a_note_stays() {
        let one = written(None, &config(&json!({"version": "1"})), "alice", 1);
        let asked = |old: &Value, value: &str, user: &str, second: i64| {
            let mut new = old.clone();
            new["metadata"]["annotations"][RETRY] = value.into();
            written(Some(old), &new, user, second)
        };
        let retried = |stored: &Value| {
            let config: VersionedConfig = serde_json::from_value(stored.clone()).unwrap();
            Requesters::of(&config, &key()).retry.map(|it| (it.user, it.at.0.as_second()))
        };
        assert_eq!(retried(&one), None);
        let two = asked(&one, "now", "bob", 2);
        assert_eq!((retried(&two), known(&two)), (Some(("bob".to_owned(), 2)), names(Some("alice"), None)));
        assert_eq!(written(Some(&two), &two, "carol", 3), two);
        let three = asked(&two, "again", "carol", 3);
        assert_eq!(retried(&three), Some(("carol".to_owned(), 3)));
        // An old note is a new request.
        let note = two["metadata"]["annotations"][RETRY].as_str().unwrap();
        assert_eq!(retried(&asked(&three, note, "dave", 4)), Some(("dave".to_owned(), 4)));
        // The note says nothing about another version.
        let mut other = three.clone();
        other["spec"]["version"] = "2".into();
        other["metadata"]["annotations"][RETRY] = three["metadata"]["annotations"][RETRY].clone();
        let nameless = asked(&config(&json!({})), "now", "bob", 5);
        assert_eq!(nameless["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn what_is_no_config_or_has_no_name_is_left_as_it_is() {
        let overridden = |it: Value| json!({"rollout": {"override": it}});
        for spec in [
            json!(null),
            json!(1),
            json!({"version": 1}),
            json!({"rollout": 1}),
            overridden(json!("a")),
            overridden(json!({"version": "1"})),
        ] {
            assert_eq!(written(None, &config(&spec), "alice", 1), config(&spec), "{spec}");
        }
        let new = object(&config(&json!({"version": "1"})));
        let alice = Requester::new("alice", Timestamp::UNIX_EPOCH);
        assert!(note_requester(None, &new, "team", "", &alice, &key()).is_empty());
    }
}
