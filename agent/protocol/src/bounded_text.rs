//! Texts of a bounded length that are safe to show.

/// At most so many bytes of `text`, cut between two characters.
pub fn clipped(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
    }
    text.shrink_to_fit();
    text
}

/// The text that somebody else wrote, as one line of at most so many bytes. A terminal acts on some characters, and others change how the rest
/// is read. Each of them becomes a space.
pub fn one_line(text: &str, max_bytes: usize) -> String {
    // No more is read than can be kept: a space is as short as the shortest character.
    let text = &text[..text.floor_char_boundary(max_bytes)];
    text.chars().map(|letter| if acts(letter) { ' ' } else { letter }).collect()
}

/// Whether the character is no text: controls (escape sequences begin with one), line and paragraph separators, and marks that turn
/// the direction of the text around them.
fn acts(letter: char) -> bool {
    let turns =
        matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') || turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, max_bytes, expected) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("xéé", 4, "xé"), ("é", 1, "")] {
            assert_eq!(clipped(text.to_owned(), max_bytes), expected);
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
            ("größer, 大きい", "größer, 大きい"),
        ] {
            assert_eq!(one_line(text, 100), expected);
        }
    }

    proptest! {
        #[test]
        fn no_text_gets_past(text in any::<String>(), max_bytes in 0_usize..80) {
            let line = one_line(&text, max_bytes);
            prop_assert!(line.len() <= max_bytes && !line.chars().any(acts));
            prop_assert_eq!(&one_line(&line, max_bytes), &line);
        }

        #[test]
        fn text_that_is_safe_stays(text in "[a-zA-Z0-9 .,:;/\"'é大-]{0,40}") {
            prop_assert_eq!(one_line(&text, 200), text);
        }
    }
}
