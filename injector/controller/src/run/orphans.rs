//! What is left of configs that were deleted while no controller led: a new leader deletes it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use nudge_core::keys::ConfigKey;
use nudge_protocol::error_chain::chain;
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::controller::Controller;

/// The time for which parts stay without their config, which may come back.
pub(super) const GRACE: Duration = Duration::from_mins(5);
/// The maximum number of attempts. Each pause is twice as long as the one before.
const ATTEMPTS: u32 = 8;

/// Deletes the parts of configs that are gone as this replica begins to lead. Does nothing more after that.
pub(super) async fn delete_orphans(controller: &Controller) -> Infallible {
    let left = delete_parts_of(controller, controller.index.configs_of_orphans()).await;
    if !left.is_empty() {
        tracing::warn!(configs = ?left, "versions of deleted configs stay; delete them by hand");
    }
    std::future::pending().await
}

/// Deletes the parts of these configs. Returns those whose parts could not be deleted.
pub(super) async fn delete_parts_of(controller: &Controller, mut keys: BTreeSet<ConfigKey>) -> BTreeSet<ConfigKey> {
    let mut pause = GRACE;
    for _ in 0..ATTEMPTS {
        if keys.is_empty() {
            break;
        }
        sleep(pause).await;
        for key in std::mem::take(&mut keys) {
            let deletion = controller.delete_orphans(&key).instrument(nudge_cluster::spans::reconcile(&key));
            if let Err(error) = deletion.await {
                tracing::warn!(config = %key, error = chain(&error), "versions of a deleted config not deleted; retrying");
                keys.insert(key);
            }
        }
        pause *= 2;
    }
    keys
}
