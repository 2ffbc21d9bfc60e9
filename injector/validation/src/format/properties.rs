//! Properties as `java.util.Properties` reads them, except that a key may stand once.

use serde_json::{Map, Value};

use super::Refusal;
use crate::dictionary::Parsed;
use crate::finding::Place;

pub(super) fn read(text: &str) -> Result<Parsed, Refusal> {
    let mut all = Map::new();
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
        let (key, value) = divided(&logical);
        let escape = || fault("must be properties, where \\u is followed by four hexadecimal digits");
        let (key, value) = (unescaped(key).ok_or_else(escape)?, unescaped(value).ok_or_else(escape)?);
        if key.is_empty() {
            return Err(fault("must be properties, where each line begins with a key"));
        }
        if all.insert(key, Value::String(value)).is_some() {
            return Err(fault("must be properties in which no key occurs twice"));
        }
    }
    Ok(Parsed(Value::Object(all)))
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\u{c}')
}

fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The key, and what follows `=`, `:` or white space.
fn divided(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|letter: char| {
        let ends = !escaped && (is_space(letter) || matches!(letter, '=' | ':'));
        escaped = letter == '\\' && !escaped;
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches(is_space);
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(is_space))
}

/// Java has half a character in each `\u`, so two of them may be one.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let meant = match letter {
            '\\' => match letters.next() {
                None => break,
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits = letters.as_str().get(..4).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    letters = letters.as_str()[4..].chars();
                    continue;
                }
                Some(other) => other,
            },
            other => other,
        };
        units.extend_from_slice(meant.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}
