//! Texts of a bounded length.

/// Cuts `text` to at most so many bytes, between two characters.
pub fn clip(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for (text, most, desired) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("xéé", 4, "xé"), ("é", 1, "")] {
            let mut cut = text.to_owned();
            clip(&mut cut, most);
            assert_eq!(cut, desired);
        }
    }
}
