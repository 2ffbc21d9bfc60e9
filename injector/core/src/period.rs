//! Periods in specs, such as `1m30s`.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// The period, at most `most`. The API server takes no text that is none.
pub(crate) fn period(text: &str, most: Duration) -> Duration {
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
