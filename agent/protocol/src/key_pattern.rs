//! Patterns of keys: in sources, in rules of `spec.validation`, and of the keys that a container reads.

/// Returns whether the text matches the pattern. `*` stands for any characters.
///
/// ```
/// assert!(nudge_protocol::matches_pattern("tls.*", "tls.crt"));
/// assert!(!nudge_protocol::matches_pattern("tls.key", "tls.keys"));
/// ```
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((first, remainder)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = remainder.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        // The first match is the best: it leaves the most text for the pieces that follow.
        let Some(index) = text.find(piece) else { return false };
        text = &text[index.saturating_add(piece.len())..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "tls.key", true),
            ("tls.key", "tls.key", true),
            ("tls.key", "tls.keys", false),
            ("tls.*", "tls.crt", true),
            ("*.crt", "tls.crt", true),
            ("*.crt", "tls.crt.bak", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("ab*ba", "aba", false),
            ("a*b*c", "abc", true),
            ("**", "x", true),
            ("", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_it_is_made_of(pieces in proptest::collection::vec("[a-c.]{0,3}", 1..5), fill in "[a-c]{0,3}") {
            prop_assert!(matches_pattern(&pieces.join("*"), &pieces.join(&fill)));
        }
    }
}
