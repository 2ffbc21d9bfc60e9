//! Times that a rollout waits for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time so many seconds after another. One that is too late to be represented never comes.
pub(super) fn after(time: Timestamp, seconds: u32) -> Time {
    Time(time.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX))
}
