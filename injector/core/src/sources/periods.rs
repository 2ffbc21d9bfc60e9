//! The periods in the spec of a source, within their bounds.

use std::time::Duration;

use nudge_api::ConfigSource;

/// The maximum value of `spec.debounceSeconds`.
const MAX_DEBOUNCE: Duration = Duration::from_hours(1);
/// The minimum value of `spec.periodSeconds`.
const MIN_POLL_PERIOD: Duration = Duration::from_secs(10);
/// The maximum value of `spec.minPeriodSeconds` and `spec.periodSeconds`.
const MAX_PERIOD: Duration = Duration::from_hours(24);
/// The maximum value of `spec.secretRetentionSeconds`.
const MAX_RETENTION: Duration = Duration::from_hours(365 * 24);

/// Returns the time that the data must stay unchanged.
pub fn debounce(source: &ConfigSource) -> Duration {
    seconds(source.spec.debounce_seconds, MAX_DEBOUNCE)
}

/// Returns the time between two requests to a server.
pub fn poll_period(source: &ConfigSource) -> Duration {
    seconds(source.spec.period_seconds, MAX_PERIOD).max(MIN_POLL_PERIOD)
}

/// Returns the minimum time between two versions.
pub(super) fn min_period(source: &ConfigSource) -> Duration {
    seconds(source.spec.min_period_seconds, MAX_PERIOD)
}

/// Returns the time that older Secret versions stay after the Secret is gone.
pub(super) fn secret_retention(source: &ConfigSource) -> Duration {
    seconds(source.spec.secret_retention_seconds, MAX_RETENTION)
}

fn seconds(seconds: u32, max: Duration) -> Duration {
    Duration::from_secs(seconds.into()).min(max)
}
