//! The text of an object as a YAML document that people edit: keys and values alone, below a header of comments.

use std::collections::BTreeMap;

use nudge_core::versions::Contents;
use serde_json::Value;
use zeroize::Zeroizing;

/// Returns the document with this header, without the keys whose values are not text.
pub(crate) fn document(header: &[String], contents: &Contents) -> Result<Zeroizing<String>, String> {
    let values: BTreeMap<&str, &str> =
        contents.iter().filter_map(|(key, value)| Some((key.as_str(), std::str::from_utf8(value).ok()?))).collect();
    // Long lines stay lines.
    let options = serde_saphyr::ser_options! {folded_wrap_chars: usize::MAX};
    let yaml = serde_saphyr::to_string_with_options(&values, options).ok().map(Zeroizing::new);
    let json = || serde_json::to_string_pretty(&values).ok().map(|text| Zeroizing::new(text + "\n"));
    // JSON is YAML, too. It has a form for every text.
    let body = yaml.filter(|text| is_text_of(text, &values)).or_else(json).filter(|text| is_text_of(text, &values));
    let body = body.ok_or("a value can't be written as YAML; use kubectl nudge set --from-file")?;
    Ok(Zeroizing::new(comments(header) + &body))
}

pub(crate) fn comments(lines: &[String]) -> String {
    lines.iter().map(|line| if line.is_empty() { "#\n".to_owned() } else { format!("# {line}\n") }).collect()
}

fn is_text_of(document: &str, values: &BTreeMap<&str, &str>) -> bool {
    let Ok(contents) = parse(document) else { return false };
    let texts = contents.iter().map(|(key, value)| (key.as_str(), &***value));
    texts.eq(values.iter().map(|(key, value)| (*key, value.as_bytes())))
}

/// Reads the keys and values of a document. No error quotes the document.
pub(crate) fn parse(document: &str) -> Result<Contents, String> {
    let value: Option<Value> =
        serde_saphyr::from_str_with_options(document, serde_saphyr::options! {with_snippet: false})
            .map_err(|error| yaml_fault(&error))?;
    let values = match value {
        None | Some(Value::Null) => return Ok(Contents::new()),
        Some(Value::Object(values)) => values,
        Some(_) => return Err("it must have a value for each key: KEY: VALUE".to_owned()),
    };
    let texts = values.into_iter().map(|(key, value)| match value {
        Value::String(text) => Ok((key, Zeroizing::new(text.into_bytes()))),
        Value::Null => Err(format!("key {key} has no value; write \"\" for an empty text, or remove the key")),
        Value::Array(_) | Value::Object(_) => {
            Err(format!("the value of key {key} must be a text; write it below {key}: |"))
        }
        Value::Bool(_) | Value::Number(_) => Err(format!("the value of key {key} must be a text; write it in quotes")),
    });
    texts.collect()
}

/// Returns the message about text that is not YAML, with the place of the fault. It quotes nothing of the text, which
/// may have values of Secrets.
pub(crate) fn yaml_fault(error: &serde_saphyr::Error) -> String {
    match error.location().filter(|location| location.line() > 0) {
        Some(location) => format!("it is not YAML: see line {}, column {}", location.line(), location.column()),
        None => "it is not YAML".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(pairs: &[(&str, &[u8])]) -> Contents {
        pairs.iter().map(|&(key, value)| (key.to_owned(), Zeroizing::new(value.to_vec()))).collect()
    }

    #[test]
    fn a_document_has_a_header_and_the_texts_alone() {
        let long = "x".repeat(200);
        let text = contents(&[("game", b"a\nb\n"), ("lives", b"3"), ("raw", &[0xff]), ("long", long.as_bytes())]);
        let header = ["Edit the values.".to_owned(), String::new()];
        let expected = format!("# Edit the values.\n#\ngame: |\n  a\n  b\nlives: \"3\"\nlong: {long}\n");
        assert_eq!(*document(&header, &text).unwrap(), expected);
        assert_eq!(*document(&[], &Contents::new()).unwrap(), "{}\n");
    }

    #[test]
    fn only_texts_are_values() {
        assert_eq!(parse("# comment\nlives: \"3\"\n"), Ok(contents(&[("lives", b"3")])));
        for empty in ["", "# comment\n", "{}\n"] {
            assert_eq!(parse(empty), Ok(Contents::new()), "{empty:?}");
        }
        for (text, part) in [
            ("lives: 3", "in quotes"),
            ("on: true", "in quotes"),
            ("lives:", "has no value"),
            ("lives: {a: b}", "must be a text"),
            ("- lives", "KEY: VALUE"),
            ("pin: hidden\nfoo: [", "line "),
            ("pin: hidden\npin: hidden", "it is not YAML"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part) && !fault.contains("hidden"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn every_text_survives(values in proptest::collection::btree_map("[a-z.]{1,4}", any::<String>(), 0..4)) {
            let text: Contents = values.iter().map(|(key, value)| (key.clone(), Zeroizing::new(value.clone().into_bytes()))).collect();
            let written = document(&["header".to_owned()], &text).unwrap();
            prop_assert_eq!(parse(&written).unwrap(), text);
        }

        #[test]
        fn no_fault_quotes_the_text(text in "[a-z:{}\\[\\]\n\" -]{0,20}") {
            if let Err(fault) = parse(&format!("a: 4711x\n{text}\nb: [4711x")) {
                prop_assert!(!fault.contains("4711x"));
            }
        }
    }
}
