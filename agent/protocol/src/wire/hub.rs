//! The hub's wire format: the requests to `/v1/poll` and `/v1/report`, and their replies.
//!
//! A poll's reply begins with a [`PollHead`] as JSON. The [blocks](crate::block) of the configs with a
//! [`PollConfig::length`] follow in the head's order. Before the head and before each block stands its length: four
//! bytes, big endian. A block is the same for every pod, so the hub makes it once and shares it.

use serde::{Deserialize, Serialize};

use crate::names::{ConfigName, ContainerName, VersionName};
use crate::settings::notify::{Ack, Notify};
use crate::wire::hub_ids::{self, BlockDigest, ConfigUid, SecretDigest};
use crate::wire::status::Outcome;

/// The path of [`PollRequest`].
pub const POLL_PATH: &str = "/v1/poll";
/// The path of [`ReportRequest`]. Its reply is 204 without a body.
pub const REPORT_PATH: &str = "/v1/report";
/// The line that ends a held poll. An agent sends it on the poll's connection if it has a report. The line is empty: a
/// server ignores an empty line before a request (RFC 9112, 2.2).
pub const INTERRUPT: &[u8; 2] = b"\r\n";
/// The media type of a poll's reply.
pub const POLL_MEDIA_TYPE: &str = "application/vnd.nudge.poll";
/// The maximum size of a request's body, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The maximum size of a head, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The longest wait that a hub grants, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 300;
/// The number of seconds that an agent waits beyond the time that it requested.
pub const WAIT_GRACE_SECONDS: u32 = 10;
/// The number of seconds that a hub holds a poll, before it answers 503, if it knows less than the agent.
pub const BEHIND_SECONDS: u32 = 5;

/// The body of `POST /v1/poll`: the agent's copies of configs. The hub learns the configs that the pod uses from the
/// pod's specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PollRequest {
    /// The version of the agent.
    pub agent: String,
    /// The configs that the agent holds, in any order; a config that it has nothing of may be left out.
    pub configs: Vec<ConfigClaim>,
    /// [`PollHead::containers_hash`] of the last head; empty before the first.
    pub containers_hash: String,
    /// The number of seconds that the hub holds the reply while nothing differs; with 0, it answers at once.
    pub wait_seconds: u32,
}

/// A config as an agent holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigClaim {
    /// The config that the agent holds a version of.
    pub name: ConfigName,
    /// [`PollConfig::uid`] of the last head, if it was ever known.
    #[serde(default, with = "hub_ids")]
    pub uid: Option<ConfigUid>,
    /// [`PollConfig::revision`] of the last head.
    #[serde(default)]
    pub revision: u64,
    /// The version whose content the agent holds, from the hub, from the last good contents or from a mounted version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionName>,
    /// [`PollConfig::sha256`] of that content, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hub_ids")]
    pub sha256: Option<BlockDigest>,
    /// The reason of the last head's problem with this config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<HubReason>,
    /// The digests of the Secret parts of a mounted version, in the order of the parts; empty if that was compared with
    /// what was sealed, or has no Secret part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounted_secrets: Vec<SecretDigest>,
}

/// The first part of a poll's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PollHead {
    /// Every config of the pod, in the order of merging.
    pub configs: Vec<PollConfig>,
    /// The pod's containers other than the agent.
    pub containers: Vec<PodContainer>,
    /// The digest of [`Self::containers`]; opaque to the agent.
    pub containers_hash: String,
    /// The settings for the agent.
    pub settings: HubSettings,
}

/// A config of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollConfig {
    /// The config, one of those that the pod may have.
    pub name: ConfigName,
    /// The uid of its `VersionedConfig`; `None` while there is none. Another uid replaces whatever the agent has.
    #[serde(default, with = "hub_ids")]
    pub uid: Option<ConfigUid>,
    /// The number of times that the versions assigned to pods have changed, within one uid. An agent never takes a
    /// lower number than it has.
    #[serde(default)]
    pub revision: u64,
    /// The version that this pod is to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionName>,
    /// The SHA-256 of the version's block in lower-case hex: the agent checks it, and it names the content.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hub_ids")]
    pub sha256: Option<BlockDigest>,
    /// The length of the block that follows, in bytes; absent if the agent has this content already, or there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// The reason why the hub can't give the config, or its assigned version. The agent keeps its copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<HubProblem>,
    /// The time that the pod's containers have for their acknowledgement, in seconds; absent if the hub does not
    /// say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_timeout_seconds: Option<u32>,
    /// The verdict about [`ConfigClaim::mounted_secrets`]; absent if the hub has not compared them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted_secrets: Option<MountedSecrets>,
}

/// The verdict about the Secret parts of a mounted version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountedSecrets {
    /// All parts have the content that was sealed.
    Sealed,
    /// A part has another content.
    Changed {
        /// The number of the part.
        part: usize,
    },
}

/// The reason why the hub can't give a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubProblem {
    /// The reason, for programs.
    pub reason: HubReason,
    /// The message, with the remedy.
    pub message: String,
}

/// The kinds of [`HubProblem`]. A newer hub's kinds that this release does not know read as [`Self::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HubReason {
    /// The hub will fetch the config soon.
    Resolving,
    /// The config does not exist, or has no current version yet.
    NotFound,
    /// The namespace does not let Nudge read the config.
    NotAllowed,
    /// The version is over a bound.
    TooLarge,
    /// The stored objects differ from the sealed ones.
    Changed,
    /// Another reason.
    #[serde(other)]
    Other,
}

/// A container of the pod that polls, as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodContainer {
    /// The name in the pod's spec.
    pub name: ContainerName,
    /// The ID: 64 hex digits, without the runtime's prefix; empty while the container has not started.
    #[serde(default)]
    pub id: String,
    /// Whether the container has ended and will not be started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// The settings that the hub gives to every agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HubSettings {
    /// The wait to request, in seconds.
    pub wait_seconds: u32,
    /// The shortest time between two reports of an agent, in seconds; the first goes out at once.
    pub report_seconds: u32,
}

impl Default for HubSettings {
    fn default() -> Self {
        Self { wait_seconds: MAX_WAIT_SECONDS, report_seconds: 1 }
    }
}

/// The body of `POST /v1/report`: the versions that the pod runs, and how its containers took them. The body never
/// holds a value or a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportRequest {
    /// The version of the agent.
    pub agent: String,
    /// The configs that are served, in the order of merging.
    pub configs: Vec<ReportedConfig>,
    /// The containers that subscribe, and the webhooks that belong to no container.
    pub containers: Vec<ReportedContainer>,
    /// Whether all subscribers have acknowledged the served dictionary.
    pub acknowledged: bool,
    /// The time of the report in seconds since 1970, always later than the agent's previous report. Reports of one pod
    /// may reach several replicas, whose clocks differ.
    pub at: i64,
}

/// A config as the agent serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedConfig {
    /// The config, one of those that the pod may have.
    pub name: ConfigName,
    /// The uid of its `VersionedConfig`, if the content came from the hub.
    #[serde(default, with = "hub_ids")]
    pub uid: Option<ConfigUid>,
    /// The revision that was taken in last.
    #[serde(default)]
    pub revision: u64,
    /// The version that is served; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionName>,
    /// The reason why the assigned version is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ReportedProblem>,
    /// Whether all subscribers have acknowledged the served content of this config: the whole dictionary, or one that
    /// differs in other configs alone.
    #[serde(default)]
    pub acknowledged: bool,
}

/// The reason why an assigned version is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedProblem {
    /// The reason, such as `TooLarge`.
    pub reason: String,
    /// The explanation for people, which never holds a value.
    pub message: String,
}

/// A container, and its progress with the served dictionary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedContainer {
    /// The name in the pod's spec.
    pub name: ContainerName,
    /// The way to notify the container.
    pub notify: Notify,
    /// The event that counts as its acknowledgement.
    pub ack: Ack,
    /// The outcome of the notification.
    pub outcome: Outcome,
    /// The message, with the cause and the remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the container has acknowledged the served dictionary.
    pub acknowledged: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_known_is_empty_text() {
        for (wire, uid, sha256) in [
            (r#"{"name":"shop","uid":"","revision":0}"#, None, None),
            (r#"{"name":"shop","uid":"u","revision":0,"sha256":"ab"}"#, Some("u"), Some("ab")),
        ] {
            let held: ConfigClaim = serde_json::from_str(wire).unwrap();
            assert_eq!(held.uid, uid.and_then(ConfigUid::new));
            assert_eq!(held.sha256, sha256.and_then(BlockDigest::new));
            assert_eq!(serde_json::to_string(&held).unwrap(), wire);
            let config: PollConfig = serde_json::from_str(wire).unwrap();
            assert_eq!((&config.uid, &config.sha256), (&held.uid, &held.sha256));
            assert_eq!(serde_json::to_string(&config).unwrap(), wire);
        }
        let empty = r#"{"name":"shop","revision":0,"sha256":""}"#;
        let held: ConfigClaim = serde_json::from_str(empty).unwrap();
        assert_eq!((held.uid, held.sha256), (None, None));
        let report = r#"{"name":"shop","uid":"","revision":0,"acknowledged":false}"#;
        let reported: ReportedConfig = serde_json::from_str(report).unwrap();
        assert_eq!((&reported.uid, serde_json::to_string(&reported).unwrap().as_str()), (&None, report));
    }

    #[test]
    fn what_a_later_release_adds_is_ignored() {
        let head: PollHead = serde_json::from_str(
            r#"{"configs":[{"name":"shop","uid":"u","revision":3,"later":{},"problem":{"reason":"Later","message":"m"}}],
                "settings":{"waitSeconds":5,"later":1},"later":[]}"#,
        )
        .unwrap();
        assert_eq!(head.configs[0].problem.as_ref().unwrap().reason, HubReason::Other);
        assert_eq!(head.settings, HubSettings { wait_seconds: 5, ..HubSettings::default() });
        let poll: PollRequest = serde_json::from_str(r#"{"later":1,"configs":[{"name":"shop","later":2}]}"#).unwrap();
        assert_eq!(poll.configs[0].revision, 0);
        let report: ReportRequest = serde_json::from_str(r#"{"later":1}"#).unwrap();
        assert_eq!(report, ReportRequest::default());
    }
}
