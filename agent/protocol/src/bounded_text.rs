//! Texts of a bounded length.

/// At most so many bytes of `text`, cut between two characters.
pub fn clipped(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
    }
    text.shrink_to_fit();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, max_bytes, expected) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("xéé", 4, "xé"), ("é", 1, "")] {
            assert_eq!(clipped(text.to_owned(), max_bytes), expected);
        }
    }
}
