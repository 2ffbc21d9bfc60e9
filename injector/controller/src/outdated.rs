//! Looks at which the API server does not have the objects that the index shows. The watch brings what it has; until then each look at the
//! config comes later than the last one.

use std::time::Duration;

use nudge_api::PartKind;
use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;

use super::Again;
use super::controller::Controller;

/// Waits between such looks.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

impl Controller {
    /// When to look again at a config whose objects `unread` have to be read, after those of `tried` were asked for; `None` where there are none.
    pub(super) fn read_again(
        &self,
        key: &ConfigKey,
        unread: &[(PartKind, String)],
        tried: &[(PartKind, String)],
    ) -> Option<Again> {
        if !unread.iter().any(|object| tried.contains(object)) {
            self.memories.known(key, |memory| memory.outdated_looks = 0);
            return (!unread.is_empty()).then_some(Again::Soon);
        }
        self.metrics.outdated();
        let looks = self.memories.change(key, |memory| {
            memory.outdated_looks = memory.outdated_looks.saturating_add(1);
            memory.outdated_looks
        });
        Some(Again::At(BACKOFF.wait(looks)))
    }
}
