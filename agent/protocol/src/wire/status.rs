//! The reply to `GET /status`: the versions that the pod runs, and how its containers took them.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::named_enum;
use crate::names::{ConfigName, ContainerName, VersionName};
use crate::settings::notify::{Ack, Notify};

pub use crate::wire::notification::{NotificationStatus, Outcome};

/// The whole reply. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version of the agent itself.
    pub agent_version: String,
    /// The source of the configuration, such as `dir`.
    pub source: String,
    /// The time since the source was last read without fault, in seconds; it grows while a source fails.
    pub age_seconds: u64,
    /// The contact with the hub; absent if the source is not the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<ContactStatus>,
    /// The `ETag` of the dictionary now.
    pub etag: String,
    /// The configs in the order of their merge: later ones win.
    pub configs: Vec<ConfigStatus>,
    /// The configs without any readable version yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<UnservedConfig>,
    /// The keys that several configs have, and which config wins.
    #[serde(default)]
    pub overlaps: Vec<Overlap>,
    /// The containers, and how they are notified.
    #[serde(default)]
    pub containers: Vec<ContainerStatus>,
    /// The webhooks of the pod, with their last notifications.
    #[serde(default)]
    pub hooks: Vec<crate::wire::webhooks::WebhookView>,
    /// The files for the containers, if there is a folder for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesStatus>,
}

/// The contact with the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContactStatus {
    /// Whether the hub answered the last request.
    pub connected: bool,
    /// The number of requests that failed since the hub last answered.
    pub failures: u32,
    /// The reason of the last failure, for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of the last failure: the fault and its remedy.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether polls are repeated at an interval and not held, because held ones were cut.
    pub interval: bool,
}

/// A config that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// The config whose keys are in the dictionary.
    pub name: ConfigName,
    /// The version that is served.
    pub version: VersionName,
    /// `sha256:` and the hex digest over the version's keys and values, in key order.
    pub digest: String,
    /// The time when this content began to be served.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The number of keys.
    pub keys: usize,
    /// The number of bytes of all values together.
    pub bytes: usize,
    /// The reason why the version that the source assigns is not served; absent if it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// A config that has never been read without fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnservedConfig {
    /// The config without content.
    pub name: ConfigName,
    /// The reason why the config is not served.
    pub problem: Problem,
}

/// The reason why the assigned version of a config is not served. The old one stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The reason, for programs.
    pub reason: ProblemReason,
    /// The fault and its remedy.
    pub message: String,
    /// The time when the problem began.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

named_enum! {
    /// The kinds of [`Problem`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum ProblemReason {
        /// The config does not exist.
        ConfigMissing,
        /// The config has no `current`.
        CurrentMissing,
        /// `current` of the config can't be understood.
        CurrentInvalid,
        /// The version does not exist.
        VersionMissing,
        /// The version is incomplete, or is being written.
        VersionIncomplete,
        /// The version breaks a rule.
        VersionInvalid,
        /// The version, or the dictionary with it, is over a size limit.
        TooLarge,
        /// The operating system refused to read the version.
        Unreadable,
        /// The hub will fetch the version soon.
        Resolving,
        /// The hub knows no such config, or it has no current version yet.
        NotFound,
        /// The namespace does not let the hub read the config.
        NotAllowed,
        /// The stored objects differ from the sealed version.
        Changed,
        /// The hub has not answered yet whether the mounted Secret parts are what was sealed. The version is served.
        NotCompared,
        /// The content does not match its digest, or can't be read.
        Damaged,
        /// A container refuses the version.
        CheckRefused,
        /// A container did not answer in time whether it takes the version.
        CheckFailed,
        /// The pod can't take the version: its files can't be written, or variables of containers can't express it.
        CantApply,
        /// Another process listens on the agent's port.
        PortTaken,
        /// Another reason, which a newer hub may have.
        Other,
    }
}

/// A key that more than one config has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlap {
    /// The key that several configs have.
    pub key: String,
    /// The config whose value is served: the one listed last.
    pub winner: ConfigName,
    /// The configs whose values are hidden.
    pub hidden: Vec<ConfigName>,
}

/// A container that the agent serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// The name in the pod's spec.
    pub name: ContainerName,
    /// The way to notify the container.
    pub notify: Notify,
    /// The event that counts as its acknowledgement.
    pub ack: Ack,
    /// The status of notifying the container of the last change.
    pub notified: NotificationStatus,
    /// The `ETag` of the newest dictionary that this container has read; absent before its first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<String>,
    /// Whether the container has acknowledged the dictionary that is served now.
    pub acknowledged: bool,
}

/// The files written for the containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesStatus {
    /// The path of the folder.
    pub path: String,
    /// The `ETag` of the dictionary that the files hold; absent before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The reason why the files are not up to date; absent if they are. Containers are notified only after the files
    /// are in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
