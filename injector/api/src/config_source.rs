//! `ConfigSource`: the versions of a config are made from content that is kept elsewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reason, SourceFrom};
use crate::status::number;

/// Content that becomes versions of a config, and the times at which it does.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nudge.dev",
    version = "v1alpha1",
    kind = "ConfigSource",
    namespaced,
    shortname = "csrc",
    category = "nudge",
    doc = "ConfigSource makes versions of a config from the content of a git repository, an OCI artifact or Vault, each time that the content changes.",
    status = "ConfigSourceStatus",
    crates(kube_core = "::kube_core"),
    derive = "PartialEq",
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version","description":"The version that the source made last."}"#,
    printcolumn = r#"{"name":"Waiting","type":"string","jsonPath":".status.waiting.version","description":"The version that comes next."}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status","description":"The newest content is the requested version."}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason","description":"Why the newest content is requested, or why not."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSourceSpec {
    /// Name of the config. Defaults to the name of the source. The config is created if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub config_name: Option<String>,

    /// Place of the content. Set exactly one of the fields.
    pub from: SourceFrom,

    /// Time between two reads of git, a registry or Vault, in seconds, from 10 to 86400. Defaults to 60. Up to a tenth
    /// is added by chance.
    #[serde(default = "number::<60>")]
    #[schemars(range(min = 10, max = 86400))]
    pub period_seconds: u32,

    /// Keys to take, at most 64. `*` stands for any characters. The key of a file is its path with . for each /.
    /// Defaults to all keys.
    #[serde(default = "all_keys")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub include: Vec<String>,

    /// Keys to leave out although `include` takes them, at most 64. `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub exclude: Vec<String>,

    /// Text that is put before every key in the version, at most 63 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63), regex(pattern = r"^[-._A-Za-z0-9]*$"))]
    pub prefix: String,

    /// Who makes a new version current: with `Automatic` the source, when no rollout of the config is under way; with
    /// `Manual` a user, by `kubectl nudge use`. Defaults to Automatic.
    #[serde(default)]
    pub activate: Activate,

    /// Number of seconds for which the content must stay unchanged before it becomes a version, from 0 to 3600.
    /// Defaults to 2. Content that keeps changing becomes a version after ten times as long.
    #[serde(default = "number::<2>")]
    #[schemars(range(min = 0, max = 3600))]
    pub debounce_seconds: u32,

    /// Shortest time between two versions, in seconds, from 0 to 86400. Defaults to 60.
    #[serde(default = "number::<60>")]
    #[schemars(range(min = 0, max = 86400))]
    pub min_period_seconds: u32,

    /// Number of versions made by sources that are kept beside those in use, from 0 to 40. Defaults to 3. Older ones
    /// are deleted.
    #[serde(default = "number::<3>")]
    #[schemars(range(min = 0, max = 40))]
    pub history_limit: u32,

    /// Number of seconds for which older Secret versions made by sources are kept after the secret in Vault is gone,
    /// from 0 to 31536000. Defaults to 86400. The last one stays.
    #[serde(default = "number::<86_400>")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub secret_retention_seconds: u32,

    /// Whether the source is stopped. Its versions stay as they are. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

fn all_keys() -> Vec<String> {
    vec!["*".to_owned()]
}

/// The activation of new versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Activate {
    /// The source does, when no rollout of the config runs.
    #[default]
    Automatic,
    /// Somebody does, by `kubectl nudge use`.
    Manual,
}

/// State of the content of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSourceStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Version that the newest content is, or will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<String>,
    /// Version that the source made or chose last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Time at which the source made or chose that version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub make_time: Option<Time>,
    /// Time at which the content was found to be missing. Absent while it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_time: Option<Time>,
    /// Newest content, while it waits to become a version or to be requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingContent>,
    /// Versions of the source that failed, at most 8, newest last. They are not tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub failed_versions: Vec<String>,
    /// Last request by `kubectl nudge source sync` that was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<String>,
    /// Conditions of the source: Fetched, Valid, Ready and Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Content that must wait before it becomes a version, or before its version is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingContent {
    /// Version that the content is, or will be.
    pub version: String,
    /// Time at which the source began to wait.
    pub start_time: Time,
    /// Reason for programs why the content waits.
    pub reason: Reason,
}

impl ConfigSource {
    /// Returns the name of the config of the source.
    pub fn config(&self) -> &str {
        self.spec.config_name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SourcePlace;

    #[test]
    fn a_source_needs_a_place_and_nothing_else() {
        let source: ConfigSource = serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "ConfigSource", "metadata": {"name": "shop"},
            "spec": {"from": {"git": {"url": "https://git.example.com/shop"}}}
        }))
        .unwrap();
        assert_eq!((source.config(), source.spec.activate), ("shop", Activate::Automatic));
        assert_eq!((source.spec.debounce_seconds, source.spec.min_period_seconds), (2, 60));
        assert_eq!(source.spec.secret_retention_seconds, 86_400);
        assert_eq!((source.spec.include.as_slice(), source.spec.history_limit), (&["*".to_owned()][..], 3));
        assert!(matches!(source.spec.from.place(), Some(SourcePlace::Git(_))) && source.spec.period_seconds == 60);
    }
}
