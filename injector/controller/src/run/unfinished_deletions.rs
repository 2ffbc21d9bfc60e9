//! The deleted configs that are remembered until a leader has deleted their versions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of deleted configs that are remembered.
const MAX_REMEMBERED_DELETIONS: usize = 1024;
/// The time that deleted configs are remembered; it is longer than the search for a new leader takes.
const MAX_AGE: Duration = Duration::from_mins(2);

/// The deleted configs, the oldest first.
#[derive(Default)]
pub(super) struct UnfinishedDeletions(Mutex<VecDeque<DeletedConfig>>);

#[derive(Clone)]
pub(super) struct DeletedConfig {
    key: ConfigKey,
    /// The last state of the config.
    pub(super) config: Arc<VersionedConfig>,
    /// The time when the deletion was seen.
    pub(super) deleted_at: Instant,
}

impl UnfinishedDeletions {
    /// Remembers a config that was deleted now.
    pub(super) fn add(&self, key: &ConfigKey, config: &Arc<VersionedConfig>) {
        let mut deleted = self.0.lock();
        if deleted.len() == MAX_REMEMBERED_DELETIONS
            && let Some(DeletedConfig { key, .. }) = deleted.pop_front()
        {
            tracing::warn!(config = %key, "too many configs were deleted at once; versions of the deleted config stay, delete them by hand");
        }
        let (key, config) = (key.clone(), Arc::clone(config));
        deleted.push_back(DeletedConfig { key, config, deleted_at: Instant::now() });
    }

    /// Returns the deleted configs of a key. Configs that were deleted too long ago are forgotten, since too much may
    /// have changed.
    pub(super) fn of_key(&self, key: &ConfigKey) -> Vec<DeletedConfig> {
        let mut deleted = self.0.lock();
        deleted.retain(|config| {
            let is_recent = config.deleted_at.elapsed() < MAX_AGE;
            if !is_recent && config.key == *key {
                tracing::warn!("versions of the deleted config stay; delete them by hand");
            }
            is_recent
        });
        deleted.iter().filter(|config| config.key == *key).cloned().collect()
    }

    /// Forgets a config whose versions are deleted.
    pub(super) fn forget(&self, config: &Arc<VersionedConfig>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(&other.config, config));
    }

    /// Returns the keys of the deleted configs.
    pub(super) fn keys(&self) -> Vec<ConfigKey> {
        self.0.lock().iter().map(|config| config.key.clone()).collect()
    }
}
