//! The draft of a version, in the memory that is reserved for it from the reading of the draft until its version is
//! sealed or refused.

use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionState;
use nudge_cluster::turns::Turn;
use nudge_core::sources;
use nudge_protocol::backoff::with_jitter;

use super::{ContentState, Task, later};
use crate::draft::VersionDraft;

/// The delay before content is read again if there was no room for it.
const NO_ROOM_RETRY_DELAY: Duration = Duration::from_mins(1);

/// A draft, and the room that it takes.
pub(super) struct KeptDraft {
    pub(super) draft: Arc<VersionDraft>,
    _room: Turn,
}

impl Task {
    /// Keeps the draft, unless its version is sealed or there is no room.
    pub(super) fn keep(&mut self, draft: VersionDraft, newest: sources::DebouncedVersion) -> ContentState {
        if self.is_sealed(&newest.version) {
            return ContentState::Read { draft: None, newest };
        }
        match self.sources.budget.reserve_draft(&self.namespace, draft.bytes()) {
            Ok(room) => ContentState::Read { draft: Some(KeptDraft { draft: Arc::new(draft), _room: room }), newest },
            Err(explanation) => {
                self.reread_at = Some(later(with_jitter(NO_ROOM_RETRY_DELAY, rand::random())));
                ContentState::Refused(explanation)
            }
        }
    }

    pub(super) fn is_sealed(&self, version: &str) -> bool {
        let status = self.config().and_then(|config| config.status.as_ref());
        status.and_then(|status| status.version(version)).is_some_and(|sealed| sealed.state != VersionState::Broken)
    }

    /// Drops the draft if its version is sealed, or refused by the present rules.
    pub(super) fn drop_needless_draft(&mut self) {
        let ContentState::Read { draft: Some(_), newest } = &self.content else { return };
        let version = newest.version.as_str();
        let status = self.config().and_then(|config| config.status.as_ref());
        let is_invalid = status.is_some_and(|status| status.invalid.iter().any(|invalid| invalid.version == version));
        if (is_invalid || self.validity.refusal(version).is_some() || self.is_sealed(version))
            && let ContentState::Read { draft, .. } = &mut self.content
        {
            *draft = None;
        }
    }
}
