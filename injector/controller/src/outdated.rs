//! Looks at which the API server does not have the objects that the index shows. The watch brings what it has; until then each look at the
//! config comes later than the last one.

use std::time::Duration;

use nudge_api::PartKind;
use nudge_core::keys::ConfigKey;
use nudge_protocol::backoff::Backoff;

use super::Again;
use super::controller::Controller;
use super::locked::locked;

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
        let mut outdated = locked(&self.outdated);
        if !unread.iter().any(|object| tried.contains(object)) {
            outdated.remove(key);
            return (!unread.is_empty()).then_some(Again::Soon);
        }
        self.metrics.outdated();
        let looks = outdated.entry(key.clone()).or_default();
        *looks = looks.saturating_add(1);
        Some(Again::At(BACKOFF.wait(*looks)))
    }
}
