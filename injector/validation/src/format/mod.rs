//! The formats of values. A value is either read, or the answer is the place of the fault and the broken rule.
//!
//! The libraries' messages may quote a value that they can't read, so every message is our own.

mod documents;
mod json;
mod properties;
mod scalars;

pub use documents::line_after_document;
use nudge_api::ValueFormat;
use serde_json::Value;

use crate::dictionary::Parsed;
use crate::finding::Place;
use crate::meter::{Exhausted, charge, is_exhausted};

/// The place of the fault in a value, if it is known, and the broken rule.
type FormatRefusal = (Option<Place>, &'static str);

/// Returns the format for a value that has a schema but no format of its own.
pub(crate) fn format_of_key(key: &str) -> ValueFormat {
    match key.rsplit_once('.').map(|(_, extension)| extension) {
        Some("yaml" | "yml") => ValueFormat::Yaml,
        Some("toml") => ValueFormat::Toml,
        _ => ValueFormat::Json,
    }
}

/// Parses the schema in a ConfigMap, as JSON or YAML.
pub(crate) fn parse_schema(text: &str) -> Option<Value> {
    let read = json::read(text).or_else(|_| documents::yaml(text));
    read.ok().map(|mut parsed| std::mem::take(&mut parsed.0))
}

/// Reads a value and counts the work.
pub(crate) fn parse(format: ValueFormat, value: &[u8]) -> Result<Result<Parsed, FormatRefusal>, Exhausted> {
    // The number of steps for four bytes.
    let weight = match format {
        ValueFormat::Yaml => 12,
        ValueFormat::Toml => 6,
        _ => 1,
    };
    charge(value.len() as u64 * weight / 4 + 1)?;
    let parsed = read(format, value);
    if is_exhausted() { Err(Exhausted) } else { Ok(parsed) }
}

fn read(format: ValueFormat, value: &[u8]) -> Result<Parsed, FormatRefusal> {
    let text = match str::from_utf8(value) {
        Ok(text) => text,
        Err(error) => {
            let before = str::from_utf8(&value[..error.valid_up_to()]).unwrap_or_default();
            return Err((Some(end_of(before)), "must be text in UTF-8, and is binary"));
        }
    };
    if text.starts_with('\u{feff}') {
        return Err((Some(end_of("")), "must not begin with a byte order mark (BOM); save the file without it"));
    }
    match format {
        ValueFormat::Json => json::read(text),
        ValueFormat::Yaml => documents::yaml(text),
        ValueFormat::Toml => documents::toml(text),
        ValueFormat::Properties => properties::read(text),
        ValueFormat::Text => text_without_controls(text),
        _ => scalars::read(format, text).map_err(|rule| (None, rule)),
    }
}

fn text_without_controls(text: &str) -> Result<Parsed, FormatRefusal> {
    let is_bad = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n' | '\r');
    match text.find(is_bad) {
        Some(index) => Err((Some(end_of(&text[..index])), "must be text without control characters")),
        None => Ok(Parsed(Value::String(text.to_owned()))),
    }
}

/// Returns the place after this text.
fn end_of(text: &str) -> Place {
    let (line, last) = (text.matches('\n').count() + 1, text.rsplit('\n').next().unwrap_or_default());
    Place::Line { line, column: last.chars().count() + 1 }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
