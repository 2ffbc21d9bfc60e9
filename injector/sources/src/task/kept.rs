//! The content of a source in the memory that there is for it: from its reading until its version is sealed or refused.

use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionState;
use nudge_cluster::turns::Turn;
use nudge_core::sources;
use nudge_protocol::backoff::jittered;

use super::{Content, Task, later};
use crate::content::Newest;

/// When content is read again that there was no room for.
const NO_ROOM_RETRY: Duration = Duration::from_mins(1);

/// Content, which takes its room.
pub(super) struct Kept {
    pub(super) newest: Arc<Newest>,
    _room: Turn,
}

impl Task {
    /// Content as it is kept from now on.
    pub(super) fn kept(&mut self, newest: Newest, known: sources::Newest) -> Content {
        if self.is_sealed(&known.version) {
            return Content::Newest(None, known);
        }
        match self.sources.budget.keep(&self.namespace, newest.bytes()) {
            Ok(room) => Content::Newest(Some(Kept { newest: Arc::new(newest), _room: room }), known),
            Err(why) => {
                self.reread = Some(later(jittered(NO_ROOM_RETRY, rand::random())));
                Content::Refused(why)
            }
        }
    }

    pub(super) fn is_sealed(&self, version: &str) -> bool {
        let status = self.config.as_ref().and_then(|config| config.status.as_ref());
        status.and_then(|status| status.version(version)).is_some_and(|sealed| sealed.state != VersionState::Broken)
    }

    /// Content is needed no more when its version is sealed, or refused by the rules that there are.
    pub(super) fn let_go(&mut self) {
        let Content::Newest(Some(_), known) = &self.content else { return };
        let version = known.version.as_str();
        let status = self.config.as_ref().and_then(|config| config.status.as_ref());
        let is_invalid = status.is_some_and(|status| status.invalid.iter().any(|one| one.version == version));
        if (is_invalid || self.validity.refusal(version).is_some() || self.is_sealed(version))
            && let Content::Newest(kept, _) = &mut self.content
        {
            *kept = None;
        }
    }
}
