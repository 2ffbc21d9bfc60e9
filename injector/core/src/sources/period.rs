//! Periods in the spec of a source.

use std::time::Duration;

use nudge_api::ConfigSource;

/// The maximum of `spec.debounceSeconds`.
const MAX_DEBOUNCE: Duration = Duration::from_hours(1);
/// The minimum of `spec.periodSeconds`.
const MIN_POLL_PERIOD: Duration = Duration::from_secs(10);
/// The maximum of `spec.minPeriodSeconds` and `spec.periodSeconds`.
const MAX_PERIOD: Duration = Duration::from_hours(24);
/// The maximum of `spec.secretRetentionSeconds`.
const MAX_RETENTION: Duration = Duration::from_hours(365 * 24);

/// How long the data must stay as it is.
pub fn debounce(source: &ConfigSource) -> Duration {
    seconds(source.spec.debounce_seconds, MAX_DEBOUNCE)
}

/// How often a server is asked.
pub fn interval(source: &ConfigSource) -> Duration {
    seconds(source.spec.period_seconds, MAX_PERIOD).max(MIN_POLL_PERIOD)
}

/// The shortest time between two versions.
pub(super) fn min_period(source: &ConfigSource) -> Duration {
    seconds(source.spec.min_period_seconds, MAX_PERIOD)
}

/// How long older Secret versions stay after the Secret is gone.
pub(super) fn secret_retention(source: &ConfigSource) -> Duration {
    seconds(source.spec.secret_retention_seconds, MAX_RETENTION)
}

fn seconds(seconds: u32, most: Duration) -> Duration {
    Duration::from_secs(seconds.into()).min(most)
}
