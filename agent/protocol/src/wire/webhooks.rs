//! Webhooks: requests and replies of `/hooks`, and the events that subscribers get.

use serde::{Deserialize, Serialize};

use crate::names::{ConfigName, ContainerName, VersionName};
use crate::wire::notification::NotificationStatus;

/// The body of `POST /hooks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// The `http://` URL, whose host is an IP literal of the pod, loopback, or `localhost`.
    pub url: String,
    /// The container that deliveries count for; by default the one in the header `Nudge-Container` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
}

/// A subscription, as `POST /hooks` and `GET /hooks` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookView {
    /// The ID for `DELETE /hooks/{id}`.
    pub id: String,
    /// The URL that receives the events.
    pub url: String,
    /// The container that deliveries count for, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerName>,
    /// The `ETag` of the dictionary now. A subscriber that has another one reads again, so it misses nothing.
    pub etag: String,
    /// The status of delivering the last event.
    pub notified: NotificationStatus,
}

/// The reply to `GET /hooks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookList {
    /// The subscriptions, oldest first.
    pub hooks: Vec<WebhookView>,
}

/// The type of an event that another dictionary is served.
pub const CONFIG_CHANGED: &str = "config.changed";
/// The type of a question about a dictionary that is to be served: the answer says whether the container takes it.
pub const CONFIG_CHECK: &str = "config.check";

/// The body that a subscriber gets, or a container that is asked. It names versions and keys and never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEvent {
    /// [`CONFIG_CHANGED`] or [`CONFIG_CHECK`].
    #[serde(rename = "type")]
    pub kind: String,
    /// The time when the dictionary changed, or the question began, RFC 3339.
    pub timestamp: String,
    /// The changes of the dictionary.
    pub data: WebhookEventData,
}

/// The changes since the last event that this subscriber answered with 2xx; in a question, those that would follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEventData {
    /// The `ETag` of the dictionary that the endpoint serves now; in a question, of the one that it would serve.
    pub etag: String,
    /// Every config of the pod with its version in that dictionary.
    pub configs: Vec<ConfigVersion>,
    /// The version in a question's `GET /config?candidate=VERSION`, which returns that dictionary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<VersionName>,
    /// The keys that were added, removed, or have another value, sorted.
    pub changed: Vec<String>,
    /// Whether more keys have changed, or may have, than [`Self::changed`] lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A config with the version that the dictionary has of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigVersion {
    /// The config, by the name of its `VersionedConfig`.
    pub name: ConfigName,
    /// The name of the version.
    pub version: VersionName,
}
