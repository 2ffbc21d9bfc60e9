//! The differences between the published ConfigMap and the published Secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{ConditionType, PartKind, Reason, VersionedConfigStatus};

impl PartKind {
    /// Both kinds, in the order in which a config's objects are handled.
    pub const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    /// Returns whether Nudge creates the published object if it does not exist. Such an object is never adopted: it is
    /// Nudge's only with Nudge's label.
    pub fn is_created(self) -> bool {
        self == Self::Secret
    }

    /// Returns whether a watch shows changes of the published object.
    pub fn is_watched(self) -> bool {
        self == Self::ConfigMap
    }

    /// Returns whether messages may repeat the API server's errors about the object, which may quote a value.
    pub fn is_quotable(self) -> bool {
        self == Self::ConfigMap
    }

    /// Returns the condition that says whether the published object holds the version.
    pub fn condition(self) -> ConditionType {
        match self {
            Self::ConfigMap => ConditionType::Published,
            Self::Secret => ConditionType::SecretPublished,
        }
    }

    /// Returns the condition that says whether others have changed the published object.
    pub fn drift_condition(self) -> ConditionType {
        match self {
            Self::ConfigMap => ConditionType::Drifted,
            Self::Secret => ConditionType::SecretPublished,
        }
    }

    /// Returns the reason of a version that has no part of this kind.
    pub fn without_part(self) -> Reason {
        match self {
            Self::ConfigMap => Reason::NoConfigMapPart,
            Self::Secret => Reason::NoSecretPart,
        }
    }

    /// Returns the version that the status says the published object holds.
    pub fn published_version(self, status: &VersionedConfigStatus) -> Option<&str> {
        match self {
            Self::ConfigMap => status.published_version.as_deref(),
            Self::Secret => status.published_secret_version.as_deref(),
        }
    }

    /// Returns the time when the published object got the version that it holds.
    pub fn publish_time(self, status: &VersionedConfigStatus) -> Option<&Time> {
        match self {
            Self::ConfigMap => status.publish_time.as_ref(),
            Self::Secret => status.secret_publish_time.as_ref(),
        }
    }

    /// Returns the fields of the status for the version that the published object holds, and for the time when it was
    /// written.
    pub fn version_fields(self, status: &mut VersionedConfigStatus) -> (&mut Option<String>, &mut Option<Time>) {
        match self {
            Self::ConfigMap => (&mut status.published_version, &mut status.publish_time),
            Self::Secret => (&mut status.published_secret_version, &mut status.secret_publish_time),
        }
    }
}
