//! The events that listeners of the index get.

use std::sync::Arc;

use nudge_api::VersionedConfig;
use nudge_core::keys::ConfigKey;

/// A change of the index.
#[derive(Clone, Debug)]
pub enum IndexEvent {
    /// The config, its parts or its published ConfigMap have changed.
    Config(ConfigKey),
    /// A pod that uses the config has changed.
    Pods {
        /// The config that changed.
        config: ConfigKey,
        /// Whether the pod's containers became unready or restarted, or the pod reports that the version failed.
        harmed: bool,
    },
    /// The config is gone; this was its last state.
    ConfigGone(ConfigKey, Arc<VersionedConfig>),
}
