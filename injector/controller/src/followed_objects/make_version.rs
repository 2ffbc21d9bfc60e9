//! The objects of a version that is made of a text.

use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfig;
use nudge_authoring::{Common, Keep, Part, object, object_names};
use nudge_cluster::call::CallError;
use nudge_core::baseline::FIRST_VERSION;
use nudge_core::followed_objects::FirstVersion;
use nudge_core::keys::ConfigKey;
use nudge_core::publish::PublishedObject;
use nudge_core::versions::{PartNumber, PartPlace, mark};
use nudge_protocol::{VersionName, labels};

use super::read_text::Draft;
use crate::controller::Controller;
use crate::failure_cause::FailureCause;
use crate::memory::SideCall;
use crate::publish::{Act, ObjectApi};

impl Controller {
    /// Creates the objects of the version, if the text is still the one of this digest. Returns whether they exist.
    pub(super) async fn make_version(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
        version: &str,
        digest: &str,
    ) -> bool {
        let Ok(draft) = self.draft(key, config).await else { return false };
        let seals = self.seals(key, config);
        if draft.digests(&seals).text_version(&seals) != digest {
            // The watch, or the next read, brings the newer text.
            return false;
        }
        let Ok(label) = VersionName::new(version) else { return false };
        for (part, number) in draft.parts.iter().zip(PartNumber::sequence(draft.parts.len())) {
            if !self.create_part(key, &label, &draft, part, number).await {
                return false;
            }
        }
        self.memories.side_call_succeeded(key, SideCall::Text);
        if version == FIRST_VERSION {
            self.memories.change(key, |memory| memory.text.note_first(digest));
        }
        tracing::info!(config = %key, version, "version made of the text of the config's objects");
        true
    }

    /// Creates one object of the version. Returns whether it exists.
    async fn create_part(
        &self,
        key: &ConfigKey,
        version: &VersionName,
        draft: &Draft,
        part: &Part,
        number: PartNumber,
    ) -> bool {
        let common = Common {
            config: &key.name,
            version,
            keep: Keep::Config,
            secret_type: &draft.secret_type,
            origin: None,
            set_by: None,
        };
        let (readable, hashed) = object_names(&key.name, version, number);
        let name = readable.unwrap_or(hashed);
        let mut created = object(part, &common, number, &name);
        // This is not left to the webhook, which may be away. The content is that of the config's objects, so it may
        // become current.
        let place = PartPlace { kind: part.kind, namespace: &key.namespace };
        if let Some(mark) = mark(&self.keys.note, place, &created.metadata, &part.content, Timestamp::now()) {
            created.metadata.annotations.get_or_insert_default().insert(labels::MAY_ACTIVATE.to_owned(), mark);
        }
        let api = ObjectApi { client: &self.client, namespace: &key.namespace, kind: part.kind };
        match api.write(&name, &created, Act::Create).await {
            Ok(_) => true,
            Err(error) if error.is_conflict() && is_same(api.read(&name).await, &created) => true,
            Err(error) => {
                if error.is_conflict() && version.as_str() == FIRST_VERSION {
                    self.memories.change(key, |memory| memory.text.first = FirstVersion::Taken);
                }
                let what = format!("{} {name} can't be created, so there is no version of the text", part.kind);
                self.memories.side_call_failed(key, SideCall::Text, &what, FailureCause::of_object(part.kind, &error));
                false
            }
        }
    }
}

/// Returns whether the stored object is the one to create, from an attempt that was interrupted.
fn is_same(stored: Result<Option<PublishedObject>, CallError>, expected: &PublishedObject) -> bool {
    let Ok(Some(stored)) = stored else { return false };
    let label = |object: &PublishedObject, label: &str| object.metadata.labels.as_ref()?.get(label).cloned();
    let is_labelled = [labels::CONFIG, labels::VERSION, labels::PART]
        .into_iter()
        .all(|name| label(&stored, name) == label(expected, name));
    is_labelled
        && stored.immutable == Some(true)
        && stored.metadata.deletion_timestamp.is_none()
        && stored.content.values() == expected.content.values()
}
