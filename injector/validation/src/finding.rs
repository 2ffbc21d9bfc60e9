//! The findings of a check: key, place and rule, in text of limited length that holds no value.

use std::fmt;

use nudge_protocol::plural::agreeing;

/// The maximum number of findings that a report names. A report only counts further findings.
const MAX_NAMED_FINDINGS: usize = 3;
/// The maximum number of findings of one check.
pub(crate) const MAX_FINDINGS: usize = 16;
/// The maximum length of a name or pointer in a message.
const MAX_PLACE_BYTES: usize = 96;
/// The maximum length of the message of one finding.
const MAX_RULE_BYTES: usize = 200;
/// The maximum length of the message of a report.
const MAX_REPORT_BYTES: usize = 300;

/// The place in a value that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line and a column, both from 1. A column counts characters.
    Line {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
    },
    /// A JSON pointer (RFC 6901).
    Pointer(String),
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key, if the rule applies to a single key.
    pub key: Option<String>,
    /// The place in the value, if it is known.
    pub place: Option<Place>,
    /// The broken rule, in words that follow the place.
    pub rule: String,
}

impl Finding {
    /// Returns a finding about the version as a whole.
    pub(crate) fn of_version(rule: impl Into<String>) -> Self {
        Self { key: None, place: None, rule: rule.into() }
    }

    /// Returns a finding about the value of a key.
    pub(crate) fn of_key(key: &str, place: Option<Place>, rule: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), place, rule: rule.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(out, "key {}", clip(key, MAX_PLACE_BYTES))?;
            match &self.place {
                Some(Place::Line { line, column }) => write!(out, ", line {line}, column {column}")?,
                Some(Place::Pointer(pointer)) if !pointer.is_empty() => {
                    write!(out, " at {}", clip(pointer, MAX_PLACE_BYTES))?;
                }
                _ => {}
            }
            out.write_str(": ")?;
        }
        out.write_str(&clip(&self.rule, MAX_RULE_BYTES))
    }
}

/// All findings about a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The findings, in the order of the rules; at most 16.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    /// Writes at most 300 bytes on one line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.findings.split_at(self.findings.len().min(MAX_NAMED_FINDINGS));
        let mut text = named.iter().map(Finding::to_string).collect::<Vec<_>>().join("; ");
        let count = others.len();
        let bound = if self.findings.len() >= MAX_FINDINGS { " or more" } else { "" };
        let omission = if count == 0 {
            String::new()
        } else {
            format!("; and {count}{bound} {}", agreeing(count, "other", "others"))
        };
        text = clip(&text, MAX_REPORT_BYTES - omission.len());
        write!(out, "{text}{omission}")
    }
}

/// Returns the text on one line, cut if it is too long. Characters that could hide text from the reader are replaced.
pub(crate) fn clip(text: &str, max_bytes: usize) -> String {
    let replace_hidden = |letter: char| {
        if letter.is_control() || is_invisible(letter) { ' ' } else { letter }
    };
    let mut clipped = String::new();
    for letter in text.chars().map(replace_hidden) {
        if clipped.len() + letter.len_utf8() > max_bytes.saturating_sub(3) {
            let is_clean = text.len() <= max_bytes && !text.chars().any(|letter| replace_hidden(letter) != letter);
            return if is_clean { text.to_owned() } else { clipped + "..." };
        }
        clipped.push(letter);
    }
    clipped
}

/// Returns whether the character has no width, or changes the direction of text.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_key_place_and_rule() {
        let line = Some(Place::Line { line: 3, column: 9 });
        assert_eq!(Finding::of_key("a.json", line, "no JSON").to_string(), "key a.json, line 3, column 9: no JSON");
        let pointer = Some(Place::Pointer("/lives".to_owned()));
        assert_eq!(
            Finding::of_key("a.json", pointer, "must be 1 or more").to_string(),
            "key a.json at /lives: must be 1 or more"
        );
        let root = Some(Place::Pointer(String::new()));
        assert_eq!(Finding::of_key("a", root, "must be object").to_string(), "key a: must be object");
        assert_eq!(Finding::of_version("key b is missing").to_string(), "key b is missing");
    }

    #[test]
    fn a_report_is_bounded_and_says_what_it_leaves_out() {
        let report = |count: usize, rule: &str| Report { findings: vec![Finding::of_key("k", None, rule); count] };
        assert_eq!(report(2, "r").to_string(), "key k: r; key k: r");
        assert_eq!(report(5, "r").to_string(), "key k: r; key k: r; key k: r; and 2 others");
        let most = report(MAX_FINDINGS, &"ä".repeat(500)).to_string();
        assert!(most.len() <= MAX_REPORT_BYTES && most.ends_with("; and 13 or more others"), "{most}");
    }

    #[test]
    fn text_stays_on_its_line() {
        assert_eq!(clip("a\nb\u{202e}c", 100), "a b c");
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdefg", 6), "abc...");
        assert_eq!(clip("ääää", 7), "ää...");
    }
}
