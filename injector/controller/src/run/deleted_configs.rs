//! Deleted configs, which are remembered until a leader has deleted their versions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum of deleted configs that are remembered.
const REMEMBERED: usize = 1024;
/// The time for which they are remembered: longer than it takes to find a new leader.
const REMEMBER: Duration = Duration::from_mins(2);

/// The deleted configs, and when each was seen to be deleted; the oldest first.
#[derive(Default)]
pub(super) struct DeletedConfigs(Mutex<VecDeque<(Instant, ConfigKey, Arc<VersionedConfig>)>>);

impl DeletedConfigs {
    pub(super) fn add(&self, key: &ConfigKey, config: &Arc<VersionedConfig>) {
        let mut deleted = self.0.lock();
        if deleted.len() == REMEMBERED
            && let Some((_, config, _)) = deleted.pop_front()
        {
            tracing::warn!(%config, "too many configs were deleted at once; versions of the deleted config stay, delete them by hand");
        }
        deleted.push_back((Instant::now(), key.clone(), Arc::clone(config)));
    }

    /// Returns the deleted configs of this name. Those deleted too long ago are dropped: too much may have changed since.
    pub(super) fn of_name(&self, key: &ConfigKey) -> Vec<(Instant, Arc<VersionedConfig>)> {
        let mut deleted = self.0.lock();
        deleted.retain(|(at, name, _)| {
            let stays = at.elapsed() < REMEMBER;
            if !stays && name == key {
                tracing::warn!("versions of the deleted config stay; delete them by hand");
            }
            stays
        });
        deleted.iter().filter(|(_, name, _)| name == key).map(|(at, _, config)| (*at, Arc::clone(config))).collect()
    }

    /// Forgets a config whose versions are deleted.
    pub(super) fn forget(&self, config: &Arc<VersionedConfig>) {
        self.0.lock().retain(|(_, _, other)| !Arc::ptr_eq(other, config));
    }

    pub(super) fn keys(&self) -> Vec<ConfigKey> {
        self.0.lock().iter().map(|(_, key, _)| key.clone()).collect()
    }
}
