//! The reach of a query: how far back it looks. Data from before pods ran a version say nothing about the version.

use std::time::Duration;

/// The maximum time that a query may look back.
pub const MAX_REACH: Duration = Duration::from_hours(1);

/// The reason why the reach of a query can't be used, or is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    /// The text in brackets is not a range.
    #[error("[{0}] is not a range, such as [1m]")]
    Range(String),
    /// The offset is not a period.
    #[error("offset {0:?} is not a period, such as 1m")]
    Offset(String),
    /// The query requests a fixed time (`@`).
    #[error("it requests a fixed time with @, which is not allowed")]
    At,
    /// The query looks too far back.
    #[error("it looks back for {} s, and at most {} s are allowed", .0.as_secs(), MAX_REACH.as_secs())]
    TooFar(Duration),
    /// A bracket or a quote is not closed.
    #[error("a bracket or a quote is not closed")]
    Open,
}

/// Returns how far back the query looks at most: its longest range, plus all of its subqueries and offsets.
pub fn reach(query: &str) -> Result<Duration, ReachError> {
    let mut longest_range = Duration::ZERO;
    let mut shift = Duration::ZERO;
    let mut remainder = query;
    while let Some(first) = remainder.chars().next() {
        let after = &remainder[first.len_utf8()..];
        remainder = match first {
            '"' | '\'' | '`' => &after[literal_end(after, first).ok_or(ReachError::Open)?..],
            '#' => after.find('\n').map_or("", |end_index| &after[end_index..]),
            '@' => return Err(ReachError::At),
            '[' => {
                let end_index = after.find(']').ok_or(ReachError::Open)?;
                let text = &after[..end_index];
                let bad = || ReachError::Range(text.chars().take(32).collect());
                let (range, subquery) = text.split_once(':').map_or((text, false), |(range, _)| (range, true));
                let range = duration(range.trim()).ok_or_else(bad)?;
                if subquery {
                    shift = shift.saturating_add(range);
                } else {
                    longest_range = longest_range.max(range);
                }
                &after[end_index.saturating_add(1)..]
            }
            _ if first.is_ascii_alphabetic() || first == '_' => {
                let name_end = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && !"_:.".contains(c));
                let end_index = name_end(remainder).unwrap_or(remainder.len());
                let (name, after) = remainder.split_at(end_index);
                if name.eq_ignore_ascii_case("offset") && after.starts_with(char::is_whitespace) {
                    let text = after.trim_start().trim_start_matches('-').trim_start();
                    let text = &text[..name_end(text).unwrap_or(text.len())];
                    shift = shift.saturating_add(duration(text).ok_or_else(|| ReachError::Offset(text.to_owned()))?);
                }
                after
            }
            _ => after,
        };
    }
    let reach = longest_range.saturating_add(shift);
    if reach > MAX_REACH { Err(ReachError::TooFar(reach)) } else { Ok(reach) }
}

/// Returns the index after the end of a string literal whose opening quote is just before `text`.
fn literal_end(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (index, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            _ if letter == quote => return Some(index.saturating_add(1)),
            _ => {}
        }
    }
    None
}

/// Reads a period of PromQL: numbers with units, or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok().filter(|period| !period.is_zero());
    }
    let mut remainder = text;
    let mut millis = 0_u64;
    while !remainder.is_empty() {
        let digits = remainder.find(|c: char| !c.is_ascii_digit()).filter(|end_index| *end_index > 0)?;
        let (number, after) = remainder.split_at(digits);
        let end_index = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end_index);
        let unit_millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "y" => 31_536_000_000,
            _ => return None,
        };
        millis = millis.saturating_add(number.parse::<u64>().ok()?.saturating_mul(unit_millis));
        remainder = after;
    }
    (millis > 0).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_range_and_all_that_is_added_to_it() {
        for (query, seconds) in [
            ("up", 0),
            ("rate(a[1m])", 60),
            ("sum(rate(a{pod=~\"[a-z]+[9h]\"}[1m])) / sum(rate(b[5m]))", 300),
            ("max_over_time(rate(a[1m])[5m:30s])", 360),
            ("max_over_time(a[5m:])", 300),
            ("rate(a[1m] offset 2m)", 180),
            ("rate(a[1m] OFFSET -2m)", 180),
            ("rate(a[1h])", 3600),
            ("rate(a[1m30s])", 90),
            ("rate(a[90])", 90),
            ("a # [2h\n + rate(b[ 1m ])", 60),
            ("a{b='\\'[2h]'} + a{b=`\\`}", 0),
            ("offset_total + count_offset", 0),
        ] {
            assert_eq!(reach(query), Ok(Duration::from_secs(seconds)), "{query}");
        }
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        for (query, said) in [
            ("rate(a[1x])", "[1x] is not a range, such as [1m]"),
            ("rate(a[])", "[] is not a range, such as [1m]"),
            ("rate(a[0s])", "[0s] is not a range, such as [1m]"),
            ("rate(a[2h])", "it looks back for 7200 s, and at most 3600 s are allowed"),
            ("rate(a[40m] offset 40m)", "it looks back for 4800 s, and at most 3600 s are allowed"),
            ("a offset soon", "offset \"soon\" is not a period, such as 1m"),
            ("a @ start()", "it requests a fixed time with @, which is not allowed"),
            ("a{b=\"", "a bracket or a quote is not closed"),
            ("a[1m", "a bracket or a quote is not closed"),
        ] {
            assert_eq!(reach(query).unwrap_err().to_string(), said, "{query}");
        }
    }

    proptest! {
        #[test]
        fn every_text_has_an_answer_and_no_range_is_missed(text in "\\PC{0,40}", minutes in 1_u64..60) {
            let _ = reach(&text);
            let strings = text.contains(['"', '\'', '`', '#', '[', '@']);
            prop_assume!(!strings);
            if let Ok(found) = reach(&format!("{text} rate(a[{minutes}m])")) {
                prop_assert!(found >= Duration::from_secs(60 * minutes));
            }
        }
    }
}
