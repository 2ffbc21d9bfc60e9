//! What the index tells those who listen.

use std::sync::Arc;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;

/// Something that a controller may want to look at.
#[derive(Clone, Debug)]
pub enum IndexEvent {
    /// The config, its parts or its plain ConfigMap have changed.
    Config(ConfigKey),
    /// Pods that use the config have changed.
    Pods(ConfigKey),
    /// The config is gone; this is its last state.
    ConfigGone(ConfigKey, Arc<VersionedConfig>),
}
