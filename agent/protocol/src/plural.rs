//! Counts in messages: the noun and the verb agree with the number.

use std::fmt::Display;

/// Returns the count with its noun, such as `1 pod` or `3 pods`.
///
/// ```
/// use nudge_protocol::plural::counted;
///
/// assert_eq!(counted(1, "pod"), "1 pod");
/// assert_eq!(counted(0, "pod"), "0 pods");
/// ```
pub fn counted(count: impl Copy + Display + PartialEq + From<u8>, noun: &str) -> String {
    let ending = if count == 1.into() { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns the form of a word that agrees with the count, such as `has` or `have`.
pub fn agreeing<'a>(count: impl Copy + PartialEq + From<u8>, one: &'a str, several: &'a str) -> &'a str {
    if count == 1.into() { one } else { several }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_and_verbs_agree_with_the_number() {
        for (count, expected) in [(0, "0 configs wait"), (1, "1 config waits"), (2, "2 configs wait")] {
            assert_eq!(format!("{} {}", counted(count, "config"), agreeing(count, "waits", "wait")), expected);
        }
        let count: u32 = 1;
        assert_eq!(counted(count, "Secret"), "1 Secret");
        assert_eq!(counted(2_usize, "other object"), "2 other objects");
    }
}
