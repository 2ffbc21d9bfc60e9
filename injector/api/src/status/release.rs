//! The record of one release, in which pods were moved to a version, or were to be.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::variant_names::impl_as_str;
use crate::{EvidenceStatus, Reason};

/// A release: a move to a version, or the return to the previous one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Version that pods were moved to.
    pub version: String,
    /// Version that was current before. Absent for the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// User who set spec.version to the version, as admission saw it. Absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Time at which the user set spec.version. Absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_time: Option<Time>,
    /// Field managers that last wrote the text that is the version, the last one first. Each names itself, and Nudge
    /// has not verified it. Absent if requestedBy is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(min = 1, max = 64)))]
    pub unverified_managers: Vec<String>,
    /// Time at which the release began.
    pub start_time: Time,
    /// Time at which the release ended. Absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// Steps that went out. Absent if there was no room for details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 34))]
    pub steps: Vec<ReleaseStep>,
    /// User who assigned the version to all pods at once, with the reason. Absent for a move in steps.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<ReleaseOverride>,
    /// Users who had approved the version when it last continued. Absent if no approval was required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub approvals: Vec<ReleaseApproval>,
    /// Evidence for and against the version when it was last judged. Absent if there was no room for details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<EvidenceStatus>,
    /// Outcome of the release. Absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ReleaseOutcome>,
    /// Reason for programs why the version did not become current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Message for people why the version did not become current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Release {
    /// The maximum number of releases in the status.
    pub const MAX_RELEASES: usize = 20;
    /// The maximum number of approvals of a release: as many as can be required.
    pub const MAX_APPROVALS: usize = 8;
    /// The maximum number of steps of a release: those of the spec, the last one to all pods, and an override.
    pub const MAX_STEPS: usize = 34;

    /// Returns a release that begins.
    pub fn new(version: impl Into<String>, from_version: Option<String>, start_time: Time) -> Self {
        Self {
            version: version.into(),
            from_version,
            requested_by: None,
            request_time: None,
            unverified_managers: Vec::new(),
            start_time,
            end_time: None,
            steps: Vec::new(),
            overridden: None,
            approvals: Vec::new(),
            evidence: None,
            outcome: None,
            reason: None,
            message: None,
        }
    }

    /// Returns whether both values are about the same release.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.version, &self.from_version, &self.start_time)
            == (&other.version, &other.from_version, &other.start_time)
    }

    /// Returns who requested the release.
    pub fn requester(&self) -> ReleaseRequester<'_> {
        match (&self.requested_by, self.unverified_managers.as_slice()) {
            (Some(user), _) => ReleaseRequester::User(user),
            (None, []) => ReleaseRequester::Unknown,
            (None, managers) => ReleaseRequester::Managers(managers),
        }
    }
}

/// The requester of a release, as text for people: `alice`, `helm (not verified)` or `<unknown>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseRequester<'a> {
    /// The user who requested the version, as admission saw it.
    User(&'a str),
    /// The field managers that wrote the text that is the version, as they name themselves.
    Managers(&'a [String]),
    /// Nothing shows who requested the version.
    Unknown,
}

impl fmt::Display for ReleaseRequester<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => out.write_str(user),
            Self::Managers(managers) => write!(out, "{} (not verified)", managers.join(", ")),
            Self::Unknown => out.write_str("<unknown>"),
        }
    }
}

/// A step of a release: more pods were assigned the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStep {
    /// Time at which the step began.
    pub start_time: Time,
    /// Number of pods with the version after the step.
    pub pods: u32,
}

/// The assignment of a version to all pods at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseOverride {
    /// Reason in spec.rollout.override.
    pub reason: String,
    /// User who set spec.rollout.override, as admission saw it. Absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Time at which the user set spec.rollout.override. Absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_time: Option<Time>,
}

/// An approval that the version had when it continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseApproval {
    /// Name of the user who approved the version.
    pub user: String,
    /// Time at which the user approved the version.
    pub approval_time: Time,
}

/// Outcome of the release. `Current`: the version became current. `RolledBack`: the version failed, and pods returned.
/// `Left`: another version was requested before. `Returned`: pods returned to the previous version, as asked. `Held`:
/// the version failed, and pods stay as they are (onFailure: Hold). Absent until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReleaseOutcome {
    /// The version was proven and became current.
    Current,
    /// The version failed, and pods returned to the one before.
    RolledBack,
    /// Another version was requested before this one was proven.
    Left,
    /// The version was the previous one, and pods returned to it because it was requested.
    Returned,
    /// The version failed and the rollout is stopped (onFailure: Hold). The release ends when somebody acts.
    Held,
}

impl_as_str!(ReleaseOutcome: Current RolledBack Left Returned Held);
