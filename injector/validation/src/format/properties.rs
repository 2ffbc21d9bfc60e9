//! Properties as `java.util.Properties` reads them, except that no key may occur twice.

use serde_json::{Map, Value};

use super::FormatRefusal;
use crate::dictionary::Parsed;
use crate::finding::Place;

pub(super) fn read(text: &str) -> Result<Parsed, FormatRefusal> {
    let mut entries = Map::new();
    let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).zip(1..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches(is_space);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        // A backslash at the end joins the next line.
        let mut logical = line.to_owned();
        while is_continued(&logical) {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_space));
        }
        let fault = |rule| (Some(Place::Line { line: number, column: 1 }), rule);
        let (key, value) = split_entry(&logical);
        let escape = || fault("must be properties, where \\u is followed by four hexadecimal digits");
        let (key, value) = (unescape(key).ok_or_else(escape)?, unescape(value).ok_or_else(escape)?);
        if key.is_empty() {
            return Err(fault("must be properties, where each line begins with a key"));
        }
        if entries.insert(key, Value::String(value)).is_some() {
            return Err(fault("must be properties in which no key occurs twice"));
        }
    }
    Ok(Parsed(Value::Object(entries)))
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\u{c}')
}

fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Returns the key, and the text after `=`, `:` or white space.
fn split_entry(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let key_end = line.find(|letter: char| {
        let ends_key = !is_escaped && (is_space(letter) || matches!(letter, '=' | ':'));
        is_escaped = letter == '\\' && !is_escaped;
        ends_key
    });
    let (key, after_key) = line.split_at(key_end.unwrap_or(line.len()));
    let after_key = after_key.trim_start_matches(is_space);
    (key, after_key.strip_prefix(['=', ':']).unwrap_or(after_key).trim_start_matches(is_space))
}

/// Replaces escapes. In Java, each `\u` is a unit of UTF-16, so two units may form one character.
fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let decoded = match letter {
            '\\' => match letters.next() {
                None => break,
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits = letters
                        .as_str()
                        .get(..4)
                        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    letters = letters.as_str()[4..].chars();
                    continue;
                }
                Some(other) => other,
            },
            other => other,
        };
        units.extend_from_slice(decoded.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}
