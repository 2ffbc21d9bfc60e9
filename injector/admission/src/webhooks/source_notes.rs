//! The webhook that notes and signs who set the spec of a `ConfigSource` (see `nudge_core::requester`): that user is an
//! author of its versions. The note stays when a request changes nothing that decides the content of versions, or lacks
//! the note. Nobody else's text stays there.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::admission::Operation;
use kube::core::dynamic::DynamicObject;
use nudge_api::ConfigSource;
use nudge_core::derived_keys::NoteKey;
use nudge_core::requester::{read_setter, sign_setter};
use nudge_protocol::labels::SET_BY;
use serde_json::Value;

use super::sources::lending_change;
use super::webhook::{Webhook, WebhookError};
use crate::patch::set_annotations;
use crate::review::ReviewRequest;
use crate::verdict::AdmissionVerdict;

/// The fields of a spec that do not decide the content of versions, but when they are made and activated, and how long
/// they stay.
const TIMING_FIELDS: [&str; 7] = [
    "activate",
    "debounceSeconds",
    "historyLimit",
    "minPeriodSeconds",
    "periodSeconds",
    "secretRetentionSeconds",
    "suspend",
];

/// The webhook that notes who sets the spec of a source.
#[derive(Clone, Debug)]
pub(crate) struct MutateSources {
    pub(crate) key: Arc<NoteKey>,
}

#[async_trait]
impl Webhook for MutateSources {
    fn path(&self) -> &'static str {
        "/mutate/sources"
    }

    async fn review(&self, request: &ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
        request.check_kind::<ConfigSource>()?;
        let old = match request.operation {
            Operation::Create => None,
            Operation::Update => request.old_object.as_ref(),
            Operation::Delete | Operation::Connect => return Ok(AdmissionVerdict::allow()),
        };
        let new = request.required_object()?;
        let source = (request.required_namespace()?, request.object_name());
        let is_kept = |old: &&DynamicObject| {
            let is_noted = note(old).is_some_and(|note| read_setter(&self.key, source, note).is_some());
            // A user whose change needs the rights of the source also answers for a spec without a note.
            content(old) == content(new) && (is_noted || lending_change(Some(*old), Some(new)).is_none())
        };
        let note = if let Some(old) = old.filter(is_kept) {
            note(old).map(str::to_owned)
        } else {
            // Authors are compared by their whole names.
            let user = request.user_info.username.as_deref().unwrap_or_default();
            sign_setter(&self.key, source, user, Timestamp::now())
        };
        Ok(AdmissionVerdict::patch(set_annotations(new.metadata.annotations.as_ref(), [(SET_BY, note)])))
    }
}

fn note(source: &DynamicObject) -> Option<&str> {
    source.annotations().get(SET_BY).map(String::as_str)
}

/// Returns the fields that decide the content of versions, as JSON, so that unknown fields count too.
fn content(source: &DynamicObject) -> Option<Value> {
    let mut spec = source.data.get("spec")?.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|field, _| !TIMING_FIELDS.contains(&field.as_str()));
    }
    Some(spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::request;

    fn source(name: &str, annotations: Option<Value>) -> Value {
        let mut source = json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop", "namespace": "team"},
            "spec": {"from": {"git": {"url": format!("https://git.example.com/{name}")}}},
        });
        if let Some(annotations) = annotations {
            source["metadata"]["annotations"] = annotations;
        }
        source
    }

    fn key() -> NoteKey {
        NoteKey::new(b"key")
    }

    /// The source as alice has set it.
    fn of_alice() -> Value {
        source("live", Some(json!({SET_BY: sign_setter(&key(), ("team", "shop"), "alice", Timestamp::now()).unwrap()})))
    }

    fn with(source: &Value, pointer: &str, value: Value) -> Value {
        let (mut changed, (parent, field)) = (source.clone(), pointer.rsplit_once('/').unwrap());
        changed.pointer_mut(parent).unwrap()[field] = value;
        changed
    }

    /// The annotations of the source as it is stored.
    async fn stored(old: Option<&Value>, new: &Value) -> Value {
        stored_by("eve", old, new).await
    }

    async fn stored_by(user: &str, old: Option<&Value>, new: &Value) -> Value {
        let webhook = MutateSources { key: Arc::new(key()) };
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let mut request = request("ConfigSource", operation, old, Some(new));
        request.user_info.username = Some(user.to_owned());
        let verdict = webhook.review(&request).await.unwrap();
        let mut stored = new.clone();
        if let AdmissionVerdict::Allow { patch: Some(patch), .. } = verdict {
            json_patch::patch(&mut stored, &patch).unwrap();
        }
        stored["metadata"]["annotations"].take()
    }

    #[tokio::test]
    async fn it_is_who_set_the_spec_last_and_nobody_whom_a_user_names() {
        let made = stored(None, &source("live", None)).await;
        assert!(made[SET_BY].as_str().unwrap().ends_with(" eve"), "{made}");
        let forged = json!({SET_BY: "2026-01-01T00:00:00Z AAAA alice", "note": "b"});
        let created = stored(None, &source("live", Some(forged.clone()))).await;
        assert!(created[SET_BY].as_str().unwrap().ends_with(" eve") && created["note"] == "b", "{created}");
        // Something else changes.
        let old = source("live", Some(json!({SET_BY: "kept"})));
        assert_eq!(stored(Some(&old), &source("live", Some(forged.clone()))).await[SET_BY], "kept");
        assert_eq!(stored(Some(&old), &source("live", None)).await, json!({SET_BY: "kept"}));
        assert_eq!(stored(Some(&source("live", None)), &source("live", Some(forged))).await, json!({"note": "b"}));
        let changed = stored(Some(&old), &source("other", Some(json!({SET_BY: "kept"})))).await;
        assert!(changed[SET_BY].as_str().unwrap().ends_with(" eve"), "{changed}");
    }

    #[tokio::test]
    async fn who_changes_nothing_about_the_content_leaves_the_note() {
        let old = of_alice();
        let others = [
            ("suspend", json!(true)),
            ("activate", json!("Manual")),
            ("periodSeconds", json!(10)),
            ("debounceSeconds", json!(0)),
            ("minPeriodSeconds", json!(0)),
            ("historyLimit", json!(0)),
            ("secretRetentionSeconds", json!(0)),
        ];
        for (field, value) in others {
            let new = with(&old, &format!("/spec/{field}"), value);
            assert_eq!(stored(Some(&old), &new).await, old["metadata"]["annotations"], "{field}");
            assert_eq!(stored(Some(&new), &old).await, old["metadata"]["annotations"], "{field}, taken back");
        }
        let decides = [
            ("from", json!({"git": {"url": "https://git.example.com/other"}})),
            ("configName", json!("game")),
            ("include", json!(["a"])),
            ("exclude", json!(["a"])),
            ("prefix", json!("a")),
            ("unknown", json!(1)),
        ];
        for (field, value) in decides {
            let note = stored(Some(&old), &with(&old, &format!("/spec/{field}"), value)).await;
            assert!(note[SET_BY].as_str().unwrap().ends_with(" eve"), "{field}: {note}");
        }
    }

    #[tokio::test]
    async fn a_source_without_a_note_gets_one_of_who_needs_the_rights_for_it() {
        let foreign = json!({SET_BY: "2026-01-01T00:00:00Z AAAA alice"});
        for old in [source("live", Some(json!({}))), source("live", Some(foreign))] {
            let suspended = with(&old, "/spec/suspend", json!(true));
            let asked = with(&old, "/metadata/annotations", json!({"nudge.dev/sync": "now"}));
            for new in [suspended, asked] {
                let note = stored(Some(&old), &new).await;
                assert!(note[SET_BY].as_str().is_some_and(|note| note.ends_with(" eve")), "{old}: {note}");
            }
            let labelled = with(&old, "/metadata/labels", json!({"a": "b"}));
            assert_eq!(stored(Some(&old), &labelled).await, old["metadata"]["annotations"]);
        }
        let old = of_alice();
        let asked = with(&old, "/metadata/annotations", json!({"nudge.dev/sync": "now"}));
        assert_eq!(stored(Some(&old), &asked).await[SET_BY], old["metadata"]["annotations"][SET_BY]);
    }

    #[tokio::test]
    async fn a_user_with_another_name_in_one_line_is_not_noted() {
        let old = of_alice();
        let new = with(&old, "/spec/prefix", json!("a"));
        for user in ["x".repeat(300), "a\nb".to_owned()] {
            assert_eq!(stored_by(&user, None, &source("live", None)).await, Value::Null, "{user:?}");
            assert_eq!(stored_by(&user, Some(&old), &new).await, json!({}), "{user:?}");
        }
    }
}
