//! Which of the published objects of a config hold a version, and since when.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nudge_api::VersionedConfigStatus;

/// Which of the published objects of a config hold a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The ConfigMap.
    pub config_map: bool,
    /// The Secret.
    pub secret: bool,
}

impl Holds {
    /// By this status.
    pub fn of(status: &VersionedConfigStatus, version: &str) -> Self {
        let is = |held: &Option<String>| held.as_deref() == Some(version);
        Self { config_map: is(&status.published_version), secret: is(&status.published_secret_version) }
    }

    /// Whether any does.
    pub fn any(self) -> bool {
        self.config_map || self.secret
    }

    /// Since when all of them do.
    pub fn since(self, status: &VersionedConfigStatus) -> Option<Timestamp> {
        let at = |holds: bool, time: &Option<Time>| time.as_ref().filter(|_| holds).map(|time| time.0);
        at(self.config_map, &status.publish_time).max(at(self.secret, &status.secret_publish_time))
    }
}
