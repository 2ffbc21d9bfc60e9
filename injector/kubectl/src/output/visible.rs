//! Text that a terminal shows as it is. Text from a cluster may hold characters that move the cursor, change colours,
//! hide text or reverse its order. They are written as escapes, such as `\u{1b}`.

use std::borrow::Cow;

use nudge_protocol::bounded_text::is_hidden;

/// Returns the text in one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |char| char.escape_default().to_string(), is_hidden)
}

/// Returns the text with its lines and tabs.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    escape(text, |char| char.escape_default().to_string(), |char| is_hidden(char) && !is_layout(char))
}

/// Returns the JSON document with escapes in place of hidden characters. Its strings keep their meaning. Outside of
/// strings, only the layout has hidden characters.
pub(crate) fn json(document: &str) -> Cow<'_, str> {
    let units = |char: char| {
        let mut units = [0; 2];
        let units: Vec<String> = char.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect();
        units.concat()
    };
    escape(document, units, |char| is_hidden(char) && !is_layout(char))
}

/// Returns whether nothing but the layout is hidden in the text.
pub(crate) fn is_visible(text: &str) -> bool {
    text.chars().all(|char| is_layout(char) || !is_hidden(char))
}

fn is_layout(char: char) -> bool {
    matches!(char, '\n' | '\t')
}

fn escape(text: &str, replace: impl Fn(char) -> String, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() * 2);
    for char in text.chars() {
        if is_hidden(char) {
            escaped += &replace(char);
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        for (written, shown) in [
            ("plain, ü, 語, 🙂 and C:\\new", "plain, ü, 語, 🙂 and C:\\new"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{7f}\u{0}", "\\u{9b}31m\\u{7f}\\u{0}"),
            ("ready\rfailed", "ready\\rfailed"),
            ("user\u{202e}nimda\u{2066}\u{200f}", "user\\u{202e}nimda\\u{2066}\\u{200f}"),
            ("a\u{200b}b\u{feff}\u{e0041}", "a\\u{200b}b\\u{feff}\\u{e0041}"),
            ("ad\u{3164}min\u{fe0f}\u{e0100}", "ad\\u{3164}min\\u{fe0f}\\u{e0100}"),
        ] {
            assert_eq!((line(written), text(written)), (shown.into(), shown.into()));
        }
        assert_eq!((line("a\n\tb"), text("a\n\tb")), ("a\\n\\tb".into(), "a\n\tb".into()));
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_and_the_rest_stays(written in any::<String>()) {
            let (line, text) = (line(&written), text(&written));
            prop_assert!(!line.chars().any(is_hidden), "{:?}", line);
            prop_assert!(is_visible(&text), "{:?}", text);
            prop_assert_eq!(written.chars().any(is_hidden), *line != *written);
            // Written twice, as a cell of a table is, it is the same.
            prop_assert_eq!(&*super::text(&line), &*line);
        }

        /// Bytes of a terminal's language rather than text of any kind.
        #[test]
        fn no_sequence_of_controls_gets_through(chars in proptest::collection::vec(
            prop_oneof![proptest::char::range('\0', '\u{a0}'), proptest::char::range('\u{2000}', '\u{2070}')], 0..40
        )) {
            let written: String = chars.into_iter().collect();
            let line = line(&written);
            prop_assert!(!line.chars().any(char::is_control));
            let reverses = |char| matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            prop_assert!(!line.chars().any(reverses), "{line:?}");
        }

        #[test]
        fn a_json_document_means_the_same(key in any::<String>(), value in any::<String>()) {
            let value = serde_json::json!({key: [value, 1]});
            let shown = json(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
            prop_assert!(is_visible(&shown), "{:?}", shown);
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
