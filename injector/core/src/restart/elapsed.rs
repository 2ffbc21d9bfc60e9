//! Elapsed times in seconds.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Returns whether this many seconds have passed since `since`.
pub(super) fn has_elapsed(since: Timestamp, seconds: u32, now: Timestamp) -> bool {
    since.checked_add(SignedDuration::from_secs(i64::from(seconds))).is_ok_and(|end_time| end_time <= now)
}
