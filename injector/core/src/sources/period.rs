//! Periods in the spec of a source, such as `1m30s`.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use nudge_api::ConfigSource;

/// Longest `spec.debounce`.
const LONGEST_DEBOUNCE: Duration = Duration::from_hours(1);
/// Longest `spec.minInterval`.
const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// Longest `spec.secretRetention`.
const LONGEST_RETENTION: Duration = Duration::from_hours(365 * 24);

/// How long the data must stay as it is.
pub fn debounce(source: &ConfigSource) -> Duration {
    period(&source.spec.debounce, LONGEST_DEBOUNCE)
}

/// The shortest time between two versions.
pub(super) fn min_interval(source: &ConfigSource) -> Duration {
    period(&source.spec.min_interval, LONGEST_INTERVAL)
}

/// How long older Secret versions stay after the Secret is gone.
pub(super) fn secret_retention(source: &ConfigSource) -> Duration {
    period(&source.spec.secret_retention, LONGEST_RETENTION)
}

/// The period, at most `most`. The API server takes no text that is none.
fn period(text: &str, most: Duration) -> Duration {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|period| Duration::try_from(period).ok());
    // What is no period here is a number that is too large.
    parsed.unwrap_or(most).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_within_their_bound() {
        let hour = Duration::from_hours(1);
        for (text, millis) in [("2s", 2000), ("500ms", 500), ("1m30s", 90_000), ("0s", 0), ("25h", 3_600_000)] {
            assert_eq!(period(text, hour).as_millis(), millis, "{text}");
        }
        assert_eq!(period("999999999999999h", hour), hour);
    }
}
