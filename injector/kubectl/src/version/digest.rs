//! The digest of a version's content. Users give it to name the content that they have read.

use std::fmt;

use nudge_api::VersionStatus;
use nudge_core::governance::sealed_digest;

/// The beginning of a digest, which users may leave out.
const PREFIX: &str = "sha256:";
/// The minimum number of digits that identify a content: the number that is printed.
const MIN_DIGITS: usize = 32;

/// The digits that a digest begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest(String);

/// Parses hex digits, with `sha256:` or without.
pub(crate) fn parse(text: &str) -> Result<Digest, String> {
    let digits = text.strip_prefix(PREFIX).unwrap_or(text);
    if digits.len() < MIN_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(format!("give {MIN_DIGITS} hex digits or more, as kubectl nudge diff prints them"));
    }
    Ok(Digest(digits.to_ascii_lowercase()))
}

impl Digest {
    /// Returns whether the digest of the version, by its parts, begins with these digits.
    pub(crate) fn is_of(&self, version: &VersionStatus) -> bool {
        digits(version).starts_with(&self.0)
    }

    /// Returns the digest of the version, cut to the length of this digest.
    pub(crate) fn same_length_of(&self, version: &VersionStatus) -> String {
        digits(version).chars().take(self.0.len()).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn digits(version: &VersionStatus) -> String {
    let digest = sealed_digest(version);
    digest.strip_prefix(PREFIX).unwrap_or(&digest).to_owned()
}

#[cfg(test)]
mod tests {
    use nudge_core::governance::short_digest;
    use serde_json::json;

    use super::*;

    fn version(part: &str) -> VersionStatus {
        let part = json!({"kind": "ConfigMap", "name": "game-2", "uid": "u", "digest": part});
        // The status's own claim does not count.
        let said = "0".repeat(32);
        let version =
            json!({"version": "2", "state": "Available", "digest": said, "parts": [part], "keys": 1, "bytes": 1});
        serde_json::from_value(version).unwrap()
    }

    #[test]
    fn it_is_the_beginning_of_what_the_parts_have() {
        let (one, other) = (version("sha256:a"), version("sha256:b"));
        let (short, whole) = (short_digest(&one), sealed_digest(&one));
        let digits = &whole[PREFIX.len()..];
        for text in [short.as_str(), whole.as_str(), digits, &digits[..40], &digits.to_ascii_uppercase()] {
            let digest = parse(text).unwrap();
            assert!(digest.is_of(&one) && !digest.is_of(&other), "{text}");
        }
        let digest = parse(&short).unwrap();
        assert_eq!((digest.to_string(), digest.same_length_of(&other)), (short.clone(), short_digest(&other)));
        let longer = parse(&format!("{digits}0")).unwrap();
        assert!(!longer.is_of(&one) && longer.same_length_of(&one) == digits);
        assert!(!parse(&"0".repeat(32)).unwrap().is_of(&one));
    }

    #[test]
    fn fewer_digits_and_other_texts_name_nothing() {
        let digits = "4967c544".repeat(4);
        assert!(parse(&digits).is_ok());
        for bad in [
            String::new(),
            "sha256:".to_owned(),
            digits[1..].to_owned(),
            format!("{digits}g"),
            format!("sha512:{digits}"),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
    }
}
