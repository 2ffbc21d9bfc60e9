//! Periods as kubectl writes them: `30s`, `5m`, `1h30m`, `0`.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a period. A number without a unit is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed = text.parse::<SignedDuration>().ok().and_then(|period| Duration::try_from(period).ok());
    parsed.ok_or_else(|| format!("{text:?} is not a period; write 30s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read() {
        for (text, seconds) in
            [("0", 0), ("0s", 0), ("90", 90), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1m1s", 61)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "s", "5x", "-1s", "-1", "1h30", "99999999999999999999h", "5é", "1d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
