//! The gates that keep a version from pods although nothing is wrong with it (approval, windows and a hold), and the
//! metrics that it is judged by. A user who may not `override` the config can only make these stricter, except for a
//! hold that is not protected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::number;

/// Approvals that a version needs before any pod gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Approval {
    /// Number of different users who must approve a version, from 1 to 8. Defaults to 1.
    #[schemars(range(min = 1, max = 8))]
    pub required: u32,
    /// Whether approvals by users who created an object of the version, or requested the version, are ignored. If it is
    /// not known who did, all approvals are ignored. Defaults to true.
    pub not_author: bool,
    /// Number of seconds for which an approval counts, from 3600 to 31536000. Defaults to 2592000, which are 30 days.
    /// If the approval runs out while pods get the version, the rollout stops where it is until the version is approved
    /// again.
    #[schemars(range(min = 3600, max = 31_536_000))]
    pub valid_seconds: u32,
}

impl Approval {
    /// The minimum time for which an approval counts, whatever the rule says.
    pub const MIN_VALIDITY: SignedDuration = SignedDuration::from_hours(1);
}

impl Default for Approval {
    fn default() -> Self {
        Self { required: 1, not_author: true, valid_seconds: 30 * 24 * 3600 }
    }
}

/// A time of the week in which versions may continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Name of the window, unique in the list, for messages.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Days of the week on which the window begins, 1 to 7, such as Mon.
    #[schemars(length(min = 1, max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Day>,
    /// Time of day at which the window begins, such as 09:00.
    #[schemars(length(max = 5), regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// Time of day at which the window ends, such as 17:00, or 24:00. If it is not after `from`, the window ends on the
    /// next day.
    #[schemars(length(max = 5), regex(pattern = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub to: String,
    /// Time zone of `from` and `to`, by its name in the IANA database, such as Europe/Berlin or UTC.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: String,
}

impl Window {
    /// The maximum number of windows in a config.
    pub const MAX_WINDOWS: usize = 16;
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

/// No version begins or continues. What pods run already is judged, and goes back if it is bad.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Reason why versions are held, in 1 to 256 characters. Conditions and `kubectl nudge status` show it.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// Time at which the hold ends. When absent, the hold lasts until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
    /// Whether the hold is protected. To protect a hold, and then to remove or shorten it, a user needs the verb
    /// `override` on the config. Defaults to false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// No version of the namespaces begins or continues. What pods run already is judged, and goes back if it is bad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyHold {
    /// Reason why versions are held, in 1 to 256 characters. Conditions and `kubectl nudge status` show it.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// Time at which the hold ends. When absent, the hold lasts until somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_time: Option<Time>,
}

/// A query that judges a version in each step and in the bake. Nudge asks it for the pods with the version, and for the
/// pods without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Analysis {
    /// Name of the analysis, unique in the list, for messages.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The Prometheus server, and the query.
    pub prometheus: Prometheus,
    /// Highest result that is good, such as 0.01. A higher one says nothing about the version while the pods without it
    /// are above max, too. Set max, maxRatio, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?$"))]
    pub max: Option<String>,
    /// Highest result that is good, as a multiple of the result of the pods without the version, such as 1.5. With max,
    /// a result is bad only if it is above both. Alone, maxRatio says nothing while the pods without the version have
    /// 0, or all pods have the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?$"))]
    pub max_ratio: Option<String>,
    /// Time between two queries, in seconds, from 5 to 3600. Defaults to 30. A query is not asked more often than its
    /// longest range.
    #[serde(default = "number::<30>")]
    #[schemars(range(min = 5, max = 3600))]
    pub period_seconds: u32,
    /// Number of bad results in a row after which the version fails, from 1 to 10. Defaults to 2. If no pods without
    /// the version are left, twice as many. The first step also waits for this number of good results in a row.
    #[serde(default = "number::<2>")]
    #[schemars(range(min = 1, max = 10))]
    pub failures: u32,
}

impl Analysis {
    /// The maximum number of analyses in a config.
    pub const MAX_ANALYSES: usize = 8;
}

/// A query of a Prometheus server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// URL of the server, such as `https://prometheus.monitoring.svc:9090`. Addresses of the node, of the API server
    /// and of the namespace kube-system are refused.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://[^\s?#@]+$"))]
    pub address: String,
    /// PromQL query whose result is one number. {{pods}} stands for a regular expression that matches the names of the
    /// pods, and {{namespace}} for their namespace:
    /// `sum(rate(errors_total{namespace="{{namespace}}",pod=~"{{pods}}"}[1m]))`.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// Secret of the namespace with the credentials: `token`, or `username` and `password`; and `ca.crt` for the
    /// authority of the server, if needed. Its annotation nudge.dev/allowed-hosts must name the host. To set this
    /// field, a user must be allowed to get the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// A Secret of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
}
