//! Decides how a container's reason for refusing a candidate is shown. The text is not trusted: it is shown as one
//! bounded line without hidden characters, and not at all if it holds a value. Does no I/O.
//!
//! A text holds a value if it has the value itself, as it is or as in JSON, or a scalar of a longer one, such as a
//! password in YAML. The whole text is searched before it is cut.

use nudge_protocol::bounded_text::one_line;

use crate::content::Dictionary;

/// The maximum size of a text that is read, in bytes. Of a longer one nothing is shown: its end could be the beginning
/// of a value.
pub(super) const MAX_READ_BYTES: usize = 4096;
/// The maximum size of a text that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 512;
/// The minimum size of a value that counts even within a word. A shorter value counts only as a whole word: 8075 does
/// not hold the number 5.
const MIN_PART_BYTES: usize = 8;
/// The minimum size of a scalar that counts by itself within a longer value. A shorter scalar is not a secret, and many
/// texts contain it.
const MIN_SCALAR_BYTES: usize = 6;

/// Returns the part of a text that may be shown. `None` is a text that was not read whole.
pub fn displayable_reason(text: Option<&[u8]>, dictionaries: &[&Dictionary]) -> String {
    let Some(raw) = text else {
        return format!("(its text is left out: it has more than {MAX_READ_BYTES} bytes, or is incomplete)");
    };
    let text = String::from_utf8_lossy(raw);
    let line = one_line(&text, text.len());
    let texts = [raw, text.as_bytes(), line.as_bytes()];
    if texts.iter().any(|text| dictionaries.iter().any(|dictionary| contains_a_value(text, dictionary))) {
        return "(its text is left out: it has a value of the configuration in it)".to_owned();
    }
    match one_line(line.trim(), MAX_SHOWN_BYTES) {
        empty if empty.is_empty() => "(it gives no reason)".to_owned(),
        line => line,
    }
}

fn contains_a_value(text: &[u8], dictionary: &Dictionary) -> bool {
    // The first bytes rule out most values and scalars.
    let mut beginnings: Vec<&[u8]> = text.windows(MIN_SCALAR_BYTES).collect();
    beginnings.sort_unstable();
    let contains_value = |value: &[u8]| {
        let value = trim(value);
        let is_possible = |begin: &[u8]| beginnings.binary_search(&begin).is_ok();
        value.get(..MIN_SCALAR_BYTES).is_none_or(is_possible) && holds_value(text, value)
    };
    let mut entries = dictionary.entries().iter().filter(|entry| !entry.is_reserved());
    entries.any(|entry| {
        let value = dictionary.raw(entry);
        contains_value(&value) || contains_value(dictionary.literal(entry)) || scalars(&value).any(contains_value)
    })
}

/// Returns whether the text holds the value; a short value as a word.
fn holds_value(text: &[u8], value: &[u8]) -> bool {
    let is_letter = |index: Option<&u8>| index.is_some_and(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii());
    let is_word = |index: usize| {
        !is_letter(index.checked_sub(1).and_then(|before| text.get(before)))
            && !is_letter(text.get(index + value.len()))
    };
    let must_be_word = value.len() < MIN_PART_BYTES;
    !value.is_empty()
        && value.len() <= text.len()
        && text.windows(value.len()).enumerate().any(|(index, part)| part == value && (!must_be_word || is_word(index)))
}

/// Returns the scalars of a value in JSON, YAML, or another format of lines with a key and a value.
fn scalars(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pieces = value.split(|byte| b"\n\r,;{}[]".contains(byte)).map(trim);
    let scalars = pieces.map(|piece| {
        let separator_index = piece.iter().position(|byte| b":=".contains(byte));
        let behind = separator_index.map(|separator_index| trim(&piece[separator_index + 1..]));
        behind.filter(|behind| behind.len() >= MIN_SCALAR_BYTES).unwrap_or(piece)
    });
    scalars.filter(|scalar| scalar.len() >= MIN_SCALAR_BYTES)
}

/// Removes white space and quotes around a value.
fn trim(mut value: &[u8]) -> &[u8] {
    let is_trimmed = |byte: &u8| byte.is_ascii_whitespace() || b"\"'".contains(byte);
    while let [first, rest @ ..] = value
        && is_trimmed(first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_trimmed(last)
    {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use nudge_protocol::{ConfigName, Key, VersionName};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};

    const LEFT_OUT: &str = "(its text is left out: it has a value of the configuration in it)";

    fn dictionary(values: &[&[u8]]) -> Dictionary {
        let key = |at: usize| Key::new(&format!("key{at}")).unwrap();
        let values: BTreeMap<Key, Value> =
            values.iter().enumerate().map(|(at, value)| (key(at), Value::from(*value))).collect();
        let content = VersionContent::new(ConfigName::new("c").unwrap(), VersionName::new("1").unwrap(), values);
        Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap()
    }

    fn display(text: &[u8], values: &[&[u8]]) -> String {
        displayable_reason(Some(text), &[&dictionary(&[]), &dictionary(values)])
    }

    #[test]
    fn a_text_is_one_bounded_line() {
        assert_eq!(display(b" lives: 17 is\ttoo\x1b[2J many\n", &[b"x"]), "lives: 17 is too [2J many");
        assert_eq!(display(b"\xff bad", &[]), "\u{fffd} bad");
        assert_eq!(display("é".repeat(1000).as_bytes(), &[]).len(), 512);
        assert_eq!(display(b" \n", &[]), "(it gives no reason)");
        assert!(displayable_reason(None, &[]).contains("more than 4096 bytes"));
    }

    #[test]
    fn a_text_with_a_value_is_left_out() {
        let yaml = b"database:\n  user: shop\n  password: 'correct horse'\nurl: \"https://shop.example.com\"\n";
        let key = b"-----BEGIN KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ==\n-----END KEY-----\n";
        for (value, text) in [
            (&b"hunter2"[..], "the password hunter2 is too short"),
            (b"hunter2\n", "password=hunter2"),
            (b"5", "5 lives are too many"),
            (b"long enough", "xxlong enoughxx"),
            (b"two\nlines", "can't read two\nlines"),
            (b"a\"quote and more", r#"{"value": "a\"quote and more"}"#),
            (&[0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa], "base64 //79/Pv6 is no key"),
            (yaml, "correct horse is too short"),
            (yaml, "can't reach https://shop.example.com: refused"),
            (key, "no key: MC4CAQAwBQYDK2VwBCIEIJ=="),
            (br#"{"a": 1, "token": "abcdefgh"}"#, "abcdefgh has ended"),
        ] {
            assert_eq!(display(text.as_bytes(), &[value]), LEFT_OUT, "{text}");
            assert_eq!(
                displayable_reason(Some(text.as_bytes()), &[&dictionary(&[value]), &dictionary(&[])]),
                LEFT_OUT,
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_names_keys_and_places_stays() {
        let yaml = b"database:\n  user: shop\n  password: 'correct horse'\n";
        for (value, text) in [
            (&b"5"[..], "the port 8075 is in use"),
            (yaml, "database.password: missing field `host` at line 3 column 5"),
            (b"", "nothing"),
            (br#"{"lives": 3,}"#, "app.json: trailing comma at line 1 column 13"),
        ] {
            assert_eq!(display(text.as_bytes(), &[value]), text);
        }
    }

    #[test]
    fn a_value_beyond_what_is_shown_counts_too() {
        let text = format!("{} hunter22", "x".repeat(2000));
        assert_eq!(display(text.as_bytes(), &[b"hunter22"]), LEFT_OUT);
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_holds_a_value(
            values in vec("[a-zA-Z0-9][a-zA-Z0-9:=\n\"' ]{6,18}[a-zA-Z0-9]", 1..4),
            before in "\\PC{0,20}", after in "\\PC{0,20}", which: prop::sample::Index,
        ) {
            let value = which.get(&values);
            let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
            let text = format!("{before}{value}{after}");
            let shown = display(text.as_bytes(), &values);
            prop_assert_eq!(shown, LEFT_OUT, "{:?}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in vec(any::<u8>(), 0..200), value in vec(any::<u8>(), 0..40)) {
            let shown = display(&text, &[&value]);
            prop_assert!(!shown.is_empty() && shown.len() <= 512 && !shown.contains(char::is_control));
        }
    }
}
