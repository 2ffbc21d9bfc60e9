//! Predicates of a config's spec and status: whether it is being moved, or may be.

use nudge_api::VersionedConfig;

/// Returns whether the config may begin to move now.
pub fn may_begin(config: &VersionedConfig) -> bool {
    let Some(status) = &config.status else { return false };
    let requested = config.requested_version();
    status.rollout.stage.is_none()
        && status.current_version.is_some()
        && requested.is_some()
        && requested != status.current_version.as_deref()
}

/// Returns whether the config's move lets others pass, and may continue now.
pub fn lets_others_pass(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.internal.yields)
}

/// Returns whether the config is being moved, or may begin to move now.
pub fn is_moved(config: &VersionedConfig) -> bool {
    config.status.as_ref().is_some_and(|status| status.rollout.stage.is_some()) || may_begin(config)
}
