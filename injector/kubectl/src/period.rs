//! Periods as kubectl writes them: `30s`, `5m`, `1h30m`, `0`.

use std::time::Duration;

/// Reads a period; a number alone is in seconds, 0 is none.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a period; write 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut all = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(refuse)?;
        let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
        let unit = rest[digits..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        let millis = match &rest[digits..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(refuse()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis).ok_or_else(refuse)?;
        all = all.checked_add(part).ok_or_else(refuse)?;
        rest = &rest[unit..];
    }
    if text.is_empty() { Err(refuse()) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn periods_are_read() {
        for (text, seconds) in
            [("0", 0), ("0s", 0), ("90", 90), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1m1s", 61)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "s", "5x", "-1s", "1h30", "99999999999999999999h", "1 s", "5é"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[0-9smhé]{0,12}") {
            let _ = parse(&text);
        }
    }
}
