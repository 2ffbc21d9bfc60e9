//! What the index notifies its listeners of.

use std::sync::Arc;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;

/// A change.
#[derive(Clone, Debug)]
pub enum IndexEvent {
    /// The config, its parts or its published ConfigMap have changed.
    Config(ConfigKey),
    /// Pods that use the config have changed.
    Pods(ConfigKey),
    /// The config is gone; this is its last state.
    ConfigGone(ConfigKey, Arc<VersionedConfig>),
}
