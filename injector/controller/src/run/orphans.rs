//! Deletions, by a new leader, of the parts of configs that were deleted while no controller led.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::controller::Controller;

/// The time that parts stay without their config, which may come back.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_mins(5);
/// The maximum number of attempts. Each wait is twice as long as the one before.
const MAX_ATTEMPTS: u32 = 8;

/// Deletes the parts of configs that are gone as this replica begins to lead, and waits for ever after that.
pub(super) async fn delete_orphans(controller: &Controller) -> Infallible {
    let undeleted = delete_parts_of(controller, controller.index.configs_of_orphans()).await;
    if !undeleted.is_empty() {
        tracing::warn!(configs = ?undeleted, "versions of deleted configs stay; delete them by hand");
    }
    std::future::pending().await
}

/// Deletes the parts of these configs. Returns the configs whose parts could not be deleted.
pub(super) async fn delete_parts_of(controller: &Controller, mut keys: BTreeSet<ConfigKey>) -> BTreeSet<ConfigKey> {
    let mut wait = ORPHAN_GRACE;
    for _ in 0..MAX_ATTEMPTS {
        if keys.is_empty() {
            break;
        }
        sleep(wait).await;
        for key in std::mem::take(&mut keys) {
            let deletion = controller.delete_orphans(&key).instrument(nudge_cluster::spans::reconcile_span(&key));
            if let Err(error) = deletion.await {
                tracing::warn!(config = %key, error = chain(&error), "versions of a deleted config not deleted; retrying");
                keys.insert(key);
            }
        }
        wait *= 2;
    }
    keys
}
