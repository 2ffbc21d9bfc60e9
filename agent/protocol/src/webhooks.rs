//! Webhooks: requests and replies of `/hooks`, and the events that subscribers get.

use serde::{Deserialize, Serialize};

use crate::names::{ConfigName, ContainerName, VersionName};
use crate::notified::Notified;

/// Body of `POST /hooks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// `http://` URL whose host is an IP literal of the pod, loopback, or `localhost`.
    pub url: String,
    /// The container that deliveries count for; by default the one in the header `Nudge-Container` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
}

/// One subscription, as `POST /hooks` and `GET /hooks` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookView {
    /// Name for `DELETE /hooks/{id}`.
    pub id: String,
    /// Where events are posted.
    pub url: String,
    /// The container that deliveries count for, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// `ETag` of the dictionary now. A subscriber that has another one reads again, so it misses nothing.
    pub etag: String,
    /// How the last event ended.
    pub notified: Notified,
}

/// Reply to `GET /hooks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookList {
    /// The subscriptions, oldest first.
    pub hooks: Vec<WebhookView>,
}

/// Another dictionary is served.
pub const CONFIG_CHANGED: &str = "config.changed";
/// Another dictionary is to be served: the answer says whether the container takes it.
pub const CONFIG_CHECK: &str = "config.check";

/// What a subscriber gets, and a container that is asked. It names versions and keys and never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEvent {
    /// [`CONFIG_CHANGED`] or [`CONFIG_CHECK`].
    #[serde(rename = "type")]
    pub kind: String,
    /// When the dictionary changed, or the question began, RFC 3339.
    pub timestamp: String,
    /// What changed.
    pub data: WebhookEventData,
}

/// What changed since the last event that this subscriber answered with 2xx; in a question, what would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEventData {
    /// `ETag` of the dictionary that the endpoint serves now; in a question, of the one that it would serve.
    pub etag: String,
    /// Every config of the pod with the version it has in that dictionary.
    pub configs: Vec<ConfigVersion>,
    /// In a question: the version for `GET /config?candidate=VERSION`, by which the endpoint gives that dictionary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<VersionName>,
    /// Keys that were added, removed, or have another value, sorted.
    pub changed: Vec<String>,
    /// More keys have changed, or may have, than [`Self::changed`] lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A config and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigVersion {
    /// The config.
    pub name: ConfigName,
    /// Its version.
    pub version: VersionName,
}
