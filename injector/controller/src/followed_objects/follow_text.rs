//! The course of following a text: read it when it may have changed, make its version, and record that version.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::{PartKind, VersionedConfig, VersionedConfigStatus};
use nudge_cluster::call::CallError;
use nudge_core::event_record::EventRecord;
use nudge_core::followed_objects::{TextRequest, record_text};
use nudge_core::keys::ConfigKey;

use crate::controller::Controller;
use crate::memory::{SideCall, TextMemory};

/// What following a text came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Followed {
    /// Whether another version, or another reason why there is none, was recorded.
    pub(crate) is_recorded: bool,
    /// The time until the next look.
    pub(crate) wait: Option<Duration>,
}

impl Controller {
    /// Follows the text of the config's objects. Only writes of the config's status can fail.
    pub(crate) async fn follow_text(
        &self,
        key: &ConfigKey,
        config: Arc<VersionedConfig>,
    ) -> Result<Followed, CallError> {
        if !config.spec.follows_text() {
            self.memories.get(key, |memory| memory.text = TextMemory::default());
            return Ok(Followed::default());
        }
        let meta = self.index.published_meta(key).filter(|_| config.spec.owns(PartKind::ConfigMap));
        let generation = config.metadata.generation;
        if self.memories.change(key, |memory| memory.text.is_due(meta.as_ref(), generation, Instant::now())) {
            self.read_text(key, &config, meta).await;
        }
        let mut is_recorded = false;
        if let Some((status, event)) = self.settled_text(key, &config).await {
            let is_known = config.status.as_ref() == Some(&status);
            if !is_known && let Some(written) = Box::pin(self.write_status(key, &config, &status)).await? {
                self.record_events(key, &written, event.as_slice());
                is_recorded = true;
            }
            if is_known || is_recorded {
                self.memories.change(key, |memory| memory.text.note_recorded());
            }
        }
        let wait = self.memories.get(key, |memory| memory.text.wait(Instant::now(), Timestamp::now())).flatten();
        Ok(Followed { is_recorded, wait })
    }

    /// Returns the status that records the text, and the Event of a change; `None` while the text is not known. Creates
    /// the objects of its version if they do not exist.
    async fn settled_text(
        &self,
        key: &ConfigKey,
        config: &VersionedConfig,
    ) -> Option<(VersionedConfigStatus, Option<EventRecord>)> {
        let now = Timestamp::now();
        let settled =
            self.memories.get(key, |memory| memory.text.settled(now).map(|text| text.cloned().map_err(Clone::clone)));
        let content = match settled.flatten()? {
            Ok(content) => content,
            Err(why) => return Some(record_text(config, Err(&why), &Time(now))),
        };
        let status = config.status.clone().unwrap_or_default();
        let (parts, seals) = (self.index.parts(key), self.seals(key, config));
        let digest = &content.newest.version;
        let first = self.memories.get(key, |memory| memory.text.first_for(digest)).unwrap_or_default();
        let request = TextRequest::of(&content.digests, &status, &parts, first, &seals);
        let is_recorded = status.internal.text.as_ref().is_some_and(|text| text.version == request.version);
        if request.is_new {
            if !self.memories.side_call_is_due(key, SideCall::Text)
                || !self.make_version(key, config, &request.version, digest).await
            {
                return None;
            }
        } else if !is_recorded {
            // The text may have changed since it was read, and a version that exists goes out at once.
            let draft = self.draft(key, config).await.ok()?;
            if draft.digests(&seals).text_version(&seals) != *digest {
                return None;
            }
        }
        Some(record_text(config, Ok((&request.version, &content.writes)), &Time(now)))
    }
}
