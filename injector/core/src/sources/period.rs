//! Periods in the spec of a source.

use std::time::Duration;

use nudge_api::ConfigSource;

use crate::period::period;

/// Longest `spec.debounce`.
const LONGEST_DEBOUNCE: Duration = Duration::from_hours(1);
/// Shortest `spec.interval`.
const SHORTEST_POLL: Duration = Duration::from_secs(10);
/// Longest `spec.minInterval` and `spec.interval`.
const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// Longest `spec.secretRetention`.
const LONGEST_RETENTION: Duration = Duration::from_hours(365 * 24);

/// How long the data must stay as it is.
pub fn debounce(source: &ConfigSource) -> Duration {
    period(&source.spec.debounce, LONGEST_DEBOUNCE)
}

/// How often a server is asked.
pub fn interval(source: &ConfigSource) -> Duration {
    period(&source.spec.interval, LONGEST_INTERVAL).max(SHORTEST_POLL)
}

/// The shortest time between two versions.
pub(super) fn min_interval(source: &ConfigSource) -> Duration {
    period(&source.spec.min_interval, LONGEST_INTERVAL)
}

/// How long older Secret versions stay after the Secret is gone.
pub(super) fn secret_retention(source: &ConfigSource) -> Duration {
    period(&source.spec.secret_retention, LONGEST_RETENTION)
}
