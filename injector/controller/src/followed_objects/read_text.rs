//! Reads of the text of a config's objects, and the label that lets a watch show its changes.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use nudge_api::{Explanation, PartKind, Reason, VersionedConfig};
use nudge_authoring::{Content, OPAQUE, Part, divide};
use nudge_cluster::call::CallError;
use nudge_core::followed_objects::{TextWrites, read_object};
use nudge_core::keys::{ConfigKey, PublishedMeta};
use nudge_core::publish::{Publication, PublishedObject};
use nudge_core::versions::ContentDigests;
use nudge_protocol::labels;

use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::{SideCall, TextReading, TextSubject};
use crate::publish::{Act, ObjectApi, publication_fault};

/// A text that can become a version.
pub(super) struct Draft {
    pub(super) parts: Vec<Part>,
    /// The type of the version's Secrets.
    pub(super) secret_type: String,
    writes: TextWrites,
    /// Whether a watch shows changes of the text.
    is_watched: bool,
}

impl Draft {
    pub(super) fn digests(&self, seals: &nudge_core::versions::Seals) -> ContentDigests {
        ContentDigests::of(self.parts.iter().map(|part| (part.kind, &part.content)), seals)
    }
}

impl Controller {
    /// Reads the text and keeps its digests.
    pub(super) async fn read_text(&self, key: &ConfigKey, config: &VersionedConfig, meta: Option<PublishedMeta>) {
        let draft = self.draft(key, config).await;
        let seals = self.seals(key, config);
        let is_watched = draft.as_ref().is_ok_and(|draft| draft.is_watched);
        let read = draft.map(|draft| {
            let digests = draft.digests(&seals);
            let version = digests.text_version(&seals);
            TextReading { digests, version, writes: draft.writes }
        });
        let subject = TextSubject { meta, generation: config.metadata.generation };
        let (now, time) = (Instant::now(), Timestamp::now());
        self.memories.change(key, |memory| memory.text.keep(read, subject, is_watched, now, time));
    }

    /// Reads the text of all objects, or returns why it can't become a version.
    pub(super) async fn draft(&self, key: &ConfigKey, config: &VersionedConfig) -> Result<Draft, Explanation> {
        let name = key.name.as_str();
        let (mut content, mut secret_type, mut is_watched) = (Content::default(), OPAQUE.to_owned(), true);
        let mut writes = TextWrites::default();
        for kind in PartKind::ALL.into_iter().filter(|kind| config.spec.owns(*kind)) {
            let api = ObjectApi { client: &self.client, namespace: &key.namespace, kind };
            let object = api.read(name).await.map_err(|error| explain(&error, kind, name))?;
            is_watched &= self.is_watched(key, &api, object.as_ref()).await;
            if let Some(object) = &object {
                writes.add(&object.metadata);
            }
            let text = read_object(kind, name, object)?;
            secret_type = text.secret_type.unwrap_or(secret_type);
            for (text_key, mut value) in text.contents {
                let value = std::mem::take(&mut *value);
                content.add(kind == PartKind::Secret, text_key, value).map_err(|error| refuse(name, &error))?;
            }
        }
        content.check().map_err(|error| refuse(name, &error))?;
        let parts = divide(content).map_err(|error| refuse(name, &error))?;
        // A type requires certain keys, which one of several parts may not have.
        let secret_parts = parts.iter().filter(|part| part.kind == PartKind::Secret).count();
        let secret_type = if secret_parts > 1 { OPAQUE.to_owned() } else { secret_type };
        Ok(Draft { parts, secret_type, writes, is_watched })
    }

    /// Gives the object the label by which a watch shows changes of a ConfigMap, and admission checks edits. Returns
    /// whether a watch shows its changes.
    async fn is_watched(&self, key: &ConfigKey, api: &ObjectApi<'_>, object: Option<&PublishedObject>) -> bool {
        let (kind, name) = (api.kind, key.name.as_str());
        let is_owned = |object: &PublishedObject| object.metadata.owner_references.iter().flatten().next().is_some();
        // The Secret of an operator stays as it is.
        let is_labelled = |object: &&PublishedObject| kind == PartKind::ConfigMap || !is_owned(object);
        let Some(object) = object.filter(is_labelled) else { return false };
        let label = object.metadata.labels.as_ref().and_then(|labels| labels.get(labels::FOLLOWS));
        if label.is_some_and(|config| config == name) {
            return kind.is_watched();
        }
        // Somebody who takes the label away again must not be fought.
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let is_due = self.memories.change(key, |memory| memory.text.label_is_due(kind, &uid, Instant::now()));
        if !is_due || !self.memories.side_call_is_due(key, SideCall::Label) {
            return false;
        }
        match api.label(object, (labels::FOLLOWS, name)).await {
            Ok(()) => {
                self.memories.side_call_succeeded(key, SideCall::Label);
                self.memories.change(key, |memory| memory.text.note_label(kind, uid, Instant::now()));
                kind.is_watched()
            }
            Err(error) => {
                let what =
                    format!("{kind} {name} can't get the label {}, so its changes are seen late", labels::FOLLOWS);
                let cause = FailureCause::of_object(kind, &error);
                self.memories.side_call_failed(key, SideCall::Label, &what, cause);
                false
            }
        }
    }
}

/// Explains that the content can't become a version.
fn refuse(name: &str, error: &nudge_authoring::ContentError) -> Explanation {
    Reason::NoText.explained(format!("the text of config {name} can't become a version: {error}"))
}

/// Explains that an object can't be read.
fn explain(error: &CallError, kind: PartKind, name: &str) -> Explanation {
    match publication_fault(error, kind, name, Act::Read) {
        Publication::Refused(why) | Publication::Failed(why) => Reason::TextNotTaken.explained(why.message),
        _ => Reason::TextNotTaken.explained(format!("{kind} {name} can't be read")),
    }
}
