//! What is wrong with a content: key, place and rule, in bounded text that holds no value.

use std::fmt;

/// Findings that a report names; the others are counted.
const MAX_NAMED_FINDINGS: usize = 3;
/// Most findings that one check makes.
pub(crate) const MAX_FINDINGS: usize = 16;
/// Longest name or pointer in a message, in bytes.
const MAX_PLACE_BYTES: usize = 96;
/// Longest message of one finding, in bytes.
const MAX_RULE_BYTES: usize = 200;
/// Longest message of a report, in bytes.
const MAX_REPORT_BYTES: usize = 300;

/// Where in a value a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both from 1; a column counts characters.
    Line {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A JSON pointer (RFC 6901).
    Pointer(String),
}

/// One rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The key, if the rule is about one.
    pub key: Option<String>,
    /// Where in its value, if that is known.
    pub place: Option<Place>,
    /// What the rule asks for.
    pub rule: String,
}

impl Finding {
    /// About the version as a whole.
    pub(crate) fn of_all(rule: impl Into<String>) -> Self {
        Self { key: None, place: None, rule: rule.into() }
    }

    /// About the value of a key.
    pub(crate) fn of(key: &str, place: Option<Place>, rule: impl Into<String>) -> Self {
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

/// All that is wrong with a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The findings, in the order of the rules; at most 16.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    /// At most 300 bytes on one line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (named, others) = self.findings.split_at(self.findings.len().min(MAX_NAMED_FINDINGS));
        let mut text = named.iter().map(Finding::to_string).collect::<Vec<_>>().join("; ");
        let count = others.len();
        let more = if self.findings.len() >= MAX_FINDINGS { " or more" } else { "" };
        let rest = if count == 0 { String::new() } else { format!("; and {count}{more} others") };
        text = clip(&text, MAX_REPORT_BYTES - rest.len());
        write!(out, "{text}{rest}")
    }
}

/// The text on one line, cut where it is too long. What could hide something from the reader is replaced.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let shown = |letter: char| {
        if letter.is_control() || is_invisible(letter) { ' ' } else { letter }
    };
    let mut clipped = String::new();
    for letter in text.chars().map(shown) {
        if clipped.len() + letter.len_utf8() > most.saturating_sub(3) {
            let fits = text.len() <= most && !text.chars().any(|letter| shown(letter) != letter);
            return if fits { text.to_owned() } else { clipped + "..." };
        }
        clipped.push(letter);
    }
    clipped
}

/// Marks that change the direction of text, and the like.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_key_place_and_rule() {
        let line = Some(Place::Line { line: 3, column: 9 });
        assert_eq!(Finding::of("a.json", line, "no JSON").to_string(), "key a.json, line 3, column 9: no JSON");
        let pointer = Some(Place::Pointer("/lives".to_owned()));
        assert_eq!(
            Finding::of("a.json", pointer, "must be 1 or more").to_string(),
            "key a.json at /lives: must be 1 or more"
        );
        let root = Some(Place::Pointer(String::new()));
        assert_eq!(Finding::of("a", root, "must be object").to_string(), "key a: must be object");
        assert_eq!(Finding::of_all("key b is missing").to_string(), "key b is missing");
    }

    #[test]
    fn a_report_is_bounded_and_says_what_it_leaves_out() {
        let report = |count: usize, rule: &str| Report { findings: vec![Finding::of("k", None, rule); count] };
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
