//! The override of a config: a version that is assigned to all pods at once, until a time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version that is assigned to all pods at once, whatever else the spec says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Name of the version. The override has no effect while spec.version names another one.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"))]
    pub version: String,
    /// Reason why the rollout can't wait for its steps, in 1 to 256 characters. Events and status.releases show it.
    #[schemars(length(min = 1, max = 256))]
    pub reason: String,
    /// Time at which the override ends, at most a day after it is set. Then it has no effect any more, and pods keep
    /// what they run.
    pub until_time: Time,
}

impl Override {
    /// The maximum time from now to the end of an override when it is set.
    pub const MAX_REMAINING_TIME: SignedDuration = SignedDuration::from_hours(24);

    /// The maximum difference between the clocks of a process that admits an override and one that reads it.
    pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

    /// Returns whether the end is farther from now than it may be.
    pub fn ends_too_late(&self, now: Timestamp) -> bool {
        self.until_time.0.duration_since(now) > Self::MAX_REMAINING_TIME
    }

    /// Returns whether the override assigns this version at this time. An override that ends too late was stored while
    /// the webhook was away, and assigns nothing.
    pub fn assigns(&self, version: &str, now: Timestamp) -> bool {
        self.version == version && now < self.until_time.0 && !self.ends_too_late(Self::reader_time(now))
    }

    /// Returns the time by which a reader checks the end, in favour of the writer whose clock is ahead.
    pub fn reader_time(now: Timestamp) -> Timestamp {
        now.checked_add(Self::MAX_CLOCK_SKEW).unwrap_or(Timestamp::MAX)
    }
}
