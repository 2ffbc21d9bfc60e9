//! Periods in the spec of a source.

use std::time::Duration;

use nudge_api::ConfigSource;

/// Longest `spec.debounceSeconds`.
const LONGEST_DEBOUNCE: Duration = Duration::from_hours(1);
/// Shortest `spec.periodSeconds`.
const SHORTEST_POLL: Duration = Duration::from_secs(10);
/// Longest `spec.minPeriodSeconds` and `spec.periodSeconds`.
const LONGEST_PERIOD: Duration = Duration::from_hours(24);
/// Longest `spec.secretRetentionSeconds`.
const LONGEST_RETENTION: Duration = Duration::from_hours(365 * 24);

/// How long the data must stay as it is.
pub fn debounce(source: &ConfigSource) -> Duration {
    seconds(source.spec.debounce_seconds, LONGEST_DEBOUNCE)
}

/// How often a server is asked.
pub fn interval(source: &ConfigSource) -> Duration {
    seconds(source.spec.period_seconds, LONGEST_PERIOD).max(SHORTEST_POLL)
}

/// The shortest time between two versions.
pub(super) fn min_period(source: &ConfigSource) -> Duration {
    seconds(source.spec.min_period_seconds, LONGEST_PERIOD)
}

/// How long older Secret versions stay after the Secret is gone.
pub(super) fn secret_retention(source: &ConfigSource) -> Duration {
    seconds(source.spec.secret_retention_seconds, LONGEST_RETENTION)
}

fn seconds(seconds: u32, most: Duration) -> Duration {
    Duration::from_secs(seconds.into()).min(most)
}
