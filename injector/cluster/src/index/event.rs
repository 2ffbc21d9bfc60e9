//! What the index notifies its listeners of.

use std::sync::Arc;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;

/// A change.
#[derive(Clone, Debug)]
pub enum IndexEvent {
    /// The config, its parts or its published ConfigMap have changed.
    Config(ConfigKey),
    /// A pod that uses the config has changed.
    Pods {
        /// The config.
        config: ConfigKey,
        /// Whether its containers became unready or restarted, or it reports that the version failed.
        harmed: bool,
    },
    /// The config is gone; this is its last state.
    ConfigGone(ConfigKey, Arc<VersionedConfig>),
}
