//! Texts of a bounded length that are safe to show.

/// Cuts `text` to at most `max_bytes`, between two characters.
pub fn clip(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
    }
    text.shrink_to_fit();
    text
}

/// Returns a text that somebody else wrote as one line of at most `max_bytes`. Each hidden character becomes a space.
pub fn one_line(text: &str, max_bytes: usize) -> String {
    // A space is as short as the shortest character, so no more needs to be read than can be kept.
    let text = &text[..text.floor_char_boundary(max_bytes)];
    text.chars().map(|letter| if is_hidden(letter) { ' ' } else { letter }).collect()
}

/// Returns whether a terminal would not show the character, or would act on it. This covers controls (escape sequences
/// begin with one), line and paragraph separators, marks that change the direction of the text around them, and all
/// characters that Unicode ignores by default, such as fillers, joiners, variation selectors and tags. U+2800 counts,
/// too: it looks like a space but is none.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, max_bytes, expected) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("xéé", 4, "xé"), ("é", 1, "")] {
            assert_eq!(clip(text.to_owned(), max_bytes), expected);
            assert_eq!(one_line(text, max_bytes), expected);
        }
    }

    #[test]
    fn what_a_terminal_acts_on_becomes_a_space() {
        for (text, expected) in [
            ("\x1b[31mred\x1b[0m", " [31mred [0m"),
            ("one\r\ntwo\ttabs", "one  two tabs"),
            ("\u{9b}2J\u{7f}\0", " 2J  "),
            ("user\u{202e}nimda\u{2069}", "user nimda "),
            ("line\u{2028}feed", "line feed"),
            ("a\u{200b}b\u{feff}c\u{e0041}d\u{3164}e\u{ffa0}f\u{115f}g", "a b c d e f g"),
            ("a\u{34f}b\u{2800}c\u{fe0f}d\u{e0100}e\u{e01ef}f\u{1160}g", "a b c d e f g"),
            ("größer, 大きい, 한글", "größer, 大きい, 한글"),
        ] {
            assert_eq!(one_line(text, 100), expected);
        }
    }

    proptest! {
        #[test]
        fn no_text_gets_past(text in any::<String>(), max_bytes in 0_usize..80) {
            let line = one_line(&text, max_bytes);
            prop_assert!(line.len() <= max_bytes && !line.chars().any(is_hidden));
            prop_assert_eq!(&one_line(&line, max_bytes), &line);
        }

        #[test]
        fn text_that_is_safe_stays(text in "[a-zA-Z0-9 .,:;/\"'é大-]{0,40}") {
            prop_assert_eq!(one_line(&text, 200), text);
        }
    }
}
