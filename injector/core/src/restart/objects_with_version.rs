//! The published objects of a config that have a version, and the time since which they do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfigStatus;

/// The published objects of a config that have a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectsWithVersion {
    /// Whether the ConfigMap has the version.
    pub config_map: bool,
    /// Whether the Secret has the version.
    pub secret: bool,
}

impl ObjectsWithVersion {
    /// Returns the objects that have the version by this status.
    pub fn of(status: &VersionedConfigStatus, version: &str) -> Self {
        let has_version = |current: &Option<String>| current.as_deref() == Some(version);
        Self {
            config_map: has_version(&status.published_version),
            secret: has_version(&status.published_secret_version),
        }
    }

    /// Returns whether any object has the version.
    pub fn any(self) -> bool {
        self.config_map || self.secret
    }

    /// Returns the time since which all of these objects have the version.
    pub fn since(self, status: &VersionedConfigStatus) -> Option<Timestamp> {
        let time_if_current =
            |has_version: bool, time: &Option<Time>| time.as_ref().filter(|_| has_version).map(|time| time.0);
        time_if_current(self.config_map, &status.publish_time)
            .max(time_if_current(self.secret, &status.secret_publish_time))
    }
}
