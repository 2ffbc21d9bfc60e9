//! The differences between the published ConfigMap and the published Secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nudge_api::{ConditionType, PartKind, Reason, VersionedConfigStatus};

use crate::versions::{Seals, part_digest};

use super::PublishedContent;

/// The differences between the kinds of published objects.
pub trait PublishedKind: Copy {
    /// Returns whether Nudge creates the object if it does not exist. Such an object is never adopted: it is Nudge's
    /// only with Nudge's label.
    fn is_created(self) -> bool;

    /// Returns whether a watch shows changes of the object.
    fn is_watched(self) -> bool;

    /// Returns whether messages may repeat the API server's errors about the object, which may quote a value.
    fn is_quotable(self) -> bool;

    /// Returns the digest of a content that Nudge writes, which becomes an annotation of the object.
    fn mark(self, seals: &Seals, version: &str, content: &PublishedContent) -> String;

    /// Returns the condition that says whether the object holds the version.
    fn condition(self) -> ConditionType;

    /// Returns the condition that says whether others have changed the object.
    fn drift_condition(self) -> ConditionType;

    /// Returns the reason of a version that has no part of this kind.
    fn without_part(self) -> Reason;

    /// Returns the version that the status says the object holds.
    fn held_version(self, status: &VersionedConfigStatus) -> Option<&str>;

    /// Returns the fields of the status for the version that the object holds, and for the time when it was written.
    fn version_fields(self, status: &mut VersionedConfigStatus) -> (&mut Option<String>, &mut Option<Time>);
}

impl PublishedKind for PartKind {
    fn is_created(self) -> bool {
        self == Self::Secret
    }

    fn is_watched(self) -> bool {
        self == Self::ConfigMap
    }

    fn is_quotable(self) -> bool {
        self == Self::ConfigMap
    }

    fn mark(self, seals: &Seals, version: &str, content: &PublishedContent) -> String {
        match self {
            Self::ConfigMap => part_digest(content.values(), None),
            Self::Secret => seals.of_published(version, content.values()),
        }
    }

    fn condition(self) -> ConditionType {
        match self {
            Self::ConfigMap => ConditionType::Published,
            Self::Secret => ConditionType::SecretPublished,
        }
    }

    fn drift_condition(self) -> ConditionType {
        match self {
            Self::ConfigMap => ConditionType::Drifted,
            Self::Secret => ConditionType::SecretPublished,
        }
    }

    fn without_part(self) -> Reason {
        match self {
            Self::ConfigMap => Reason::NoConfigMapPart,
            Self::Secret => Reason::NoSecretPart,
        }
    }

    fn held_version(self, status: &VersionedConfigStatus) -> Option<&str> {
        match self {
            Self::ConfigMap => status.published_version.as_deref(),
            Self::Secret => status.published_secret_version.as_deref(),
        }
    }

    fn version_fields(self, status: &mut VersionedConfigStatus) -> (&mut Option<String>, &mut Option<Time>) {
        match self {
            Self::ConfigMap => (&mut status.published_version, &mut status.publish_time),
            Self::Secret => (&mut status.published_secret_version, &mut status.secret_publish_time),
        }
    }
}
