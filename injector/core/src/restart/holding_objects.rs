//! The published objects of a config that hold a version, and the time since which they do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfigStatus;

/// The published objects of a config that hold a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingObjects {
    /// Whether the ConfigMap holds the version.
    pub config_map: bool,
    /// Whether the Secret holds the version.
    pub secret: bool,
}

impl HoldingObjects {
    /// Returns the objects that hold the version by this status.
    pub fn of(status: &VersionedConfigStatus, version: &str) -> Self {
        let holds_version = |held: &Option<String>| held.as_deref() == Some(version);
        Self {
            config_map: holds_version(&status.published_version),
            secret: holds_version(&status.published_secret_version),
        }
    }

    /// Returns whether any object holds the version.
    pub fn any(self) -> bool {
        self.config_map || self.secret
    }

    /// Returns the time since which all of these objects hold the version.
    pub fn since(self, status: &VersionedConfigStatus) -> Option<Timestamp> {
        let time_if_held = |is_held: bool, time: &Option<Time>| time.as_ref().filter(|_| is_held).map(|time| time.0);
        time_if_held(self.config_map, &status.publish_time).max(time_if_held(self.secret, &status.secret_publish_time))
    }
}
