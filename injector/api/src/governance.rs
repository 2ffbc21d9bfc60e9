//! What keeps a version from pods although nothing is wrong with it: approval, windows, a hold; and the metrics that it is judged by. A user who
//! may not `override` the config can only make these stricter, except for a hold that is not protected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who must agree before a version is assigned to any pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Approval {
    /// How many different users must approve the version.
    #[schemars(range(min = 1, max = 8))]
    pub required: u32,
    /// Users who created an object of the version, or asked for it, do not count. Where these are not known, nobody counts.
    pub not_author: bool,
}

impl Default for Approval {
    fn default() -> Self {
        Self { required: 1, not_author: true }
    }
}

/// A time of the week in which versions may go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Its name, for messages.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The days on which it begins.
    #[schemars(length(min = 1, max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Day>,
    /// When it begins, such as 09:00.
    #[schemars(length(max = 5), regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// When it ends, such as 17:00, or 24:00. If that is not after `from`, it ends on the next day.
    #[schemars(length(max = 5), regex(pattern = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub to: String,
    /// The time zone by its name in the IANA database, such as Europe/Berlin or UTC.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: String,
}

impl Window {
    /// How many a config can have.
    pub const MOST: usize = 16;
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// No version begins or goes on. What pods run already is judged, and goes back if it is bad.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Why.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// When the hold ends; when absent, it ends when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
    /// Protects the hold: to set this field, and then to remove or shorten the hold, a user needs the verb `override` on the config.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// No version of the namespaces begins or goes on. What pods run already is judged, and goes back if it is bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyHold {
    /// Why.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// When the hold ends; when absent, it ends when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
}

/// A number that a version is judged by in each step and in the bake. It is asked for twice: of the pods with the version, and of those
/// without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// Its name, for messages.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the number comes from.
    pub prometheus: Prometheus,
    /// The number may be as high as this, such as 0.01. If the other pods have more too, that says nothing about the version. Either this or
    /// maxRatio, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?$"))]
    pub max: Option<String>,
    /// The number may be so many times that of the other pods, such as 1.5. With max, the version is bad only if its pods have more than both.
    /// Alone it says nothing while the other pods have 0, or all pods have the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?$"))]
    pub max_ratio: Option<String>,
    /// How often it is asked for, in seconds; not more often than the longest range of the query.
    #[serde(default = "default_period")]
    #[schemars(range(min = 5, max = 3600))]
    pub period_seconds: u32,
    /// So many answers in a row that are too high make the version bad; twice as many where no other pods are left to compare with. In the
    /// first step as many good ones must come before the next.
    #[serde(default = "default_failures")]
    #[schemars(range(min = 1, max = 10))]
    pub failures: u32,
}

impl Analysis {
    /// How many a config can have.
    pub const MOST: usize = 8;
    /// The most that `failures` can be.
    pub const MOST_FAILURES: u32 = 10;
}

fn default_period() -> u32 {
    30
}

fn default_failures() -> u32 {
    2
}

/// A query of a Prometheus server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// The URL of the server, such as `https://prometheus.monitoring.svc:9090`. Addresses of the node, of the API server and of kube-system are
    /// refused.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://[^\s?#@]+$"))]
    pub address: String,
    /// The query, in PromQL, whose answer is one number. {{pods}} stands for a regular expression of the names of pods, and {{namespace}}
    /// for their namespace: `sum(rate(errors_total{namespace="{{namespace}}",pod=~"{{pods}}"}[1m]))`.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// A Secret of the namespace with the key `token`, or `username` and `password`, and perhaps `ca.crt`. Its annotation
    /// nudge.dev/allowed-hosts names the hosts that get it. Who sets this must be allowed to get the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// A Secret of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
}
