//! The names of versions that no user has named: digests of their contents.

use nudge_core::derived_keys::ContentKey;
use nudge_core::versions::{ContentDigests, Seals, digest_of_parts, part_digest};
use nudge_protocol::{NameError, VersionName};

use crate::parts::Part;

/// Returns the name for a version that `kubectl nudge create` makes without a given name. With a `key`, the name
/// reveals nothing about the values.
pub fn digest_name(parts: &[Part], key: Option<&ContentKey>) -> Result<VersionName, NameError> {
    let digests = parts.iter().map(|part| (part.kind, part_digest(&part.content, key)));
    let prefix = if key.is_some() { "hmac-" } else { "sha-" };
    VersionName::new(&format!("{prefix}{}", digest_of_parts(digests)))
}

/// Returns the name for a version that a source makes. Within a config, the same content always has the same name.
pub fn source_name(parts: &[Part], seals: &Seals) -> Result<VersionName, NameError> {
    let digests = ContentDigests::of(parts.iter().map(|part| (part.kind, &part.content)), seals);
    VersionName::new(&digests.source_version(seals))
}

#[cfg(test)]
mod tests {
    use nudge_core::identity::Identity;
    use nudge_core::keys::ConfigKey;
    use nudge_core::versions::SOURCE_PREFIX;

    use super::*;
    use crate::{Content, divide};

    fn parts(open: &[(&str, &str)], secret: &[(&str, &str)]) -> Vec<Part> {
        let mut content = Content::default();
        for (is_secret, pairs) in [(false, open), (true, secret)] {
            for (key, value) in pairs {
                content.add(is_secret, (*key).to_owned(), value.as_bytes().to_vec()).unwrap();
            }
        }
        divide(content).unwrap()
    }

    fn key(byte: u8) -> ContentKey {
        ContentKey::new(&[byte; 32])
    }

    fn seals(config: &str) -> Seals {
        Seals::new(&key(7), &ConfigKey::parse("team", config).unwrap(), Identity::of_uid("one"))
    }

    #[test]
    fn the_name_is_that_of_the_content() {
        let name = |open: &[(&str, &str)]| digest_name(&parts(open, &[]), None).unwrap();
        assert_eq!(name(&[("a", "1"), ("b", "2")]), name(&[("b", "2"), ("a", "1")]));
        assert_ne!(name(&[("a", "1")]), name(&[("a", "2")]));
    }

    #[test]
    fn a_name_has_enough_of_the_digest_that_nobody_finds_two_contents_with_it() {
        let (open, secret) = (parts(&[("a", "1")], &[]), parts(&[("a", "1")], &[("pin", "0000")]));
        for name in [
            digest_name(&open, None),
            digest_name(&secret, Some(&key(1))),
            source_name(&open, &seals("shop")),
            source_name(&secret, &seals("shop")),
        ] {
            let name = name.unwrap();
            let (_, digits) = name.as_str().split_once('-').unwrap();
            assert_eq!(digits.len() * 4, 160, "{name:?}");
        }
    }

    #[test]
    fn a_name_with_a_secret_says_nothing_without_the_key() {
        let secret = parts(&[("a", "1")], &[("pin", "0000")]);
        let [one, two] = [1, 2].map(|byte| digest_name(&secret, Some(&key(byte))).unwrap());
        assert!(one != two && one.as_str().starts_with("hmac-"));
        let [shop, web] = ["shop", "web"].map(|config| source_name(&secret, &seals(config)).unwrap());
        assert!(shop != web && shop.as_str().starts_with(SOURCE_PREFIX));
        assert_eq!(shop, source_name(&secret, &seals("shop")).unwrap());
    }

    #[test]
    fn a_secret_and_a_config_map_with_the_same_content_have_different_names() {
        let [open, secret] = [parts(&[("a", "1")], &[]), parts(&[], &[("a", "1")])];
        assert_ne!(source_name(&open, &seals("shop")), source_name(&secret, &seals("shop")));
        // Without a Secret the name is public, and the same in every config.
        assert_eq!(source_name(&open, &seals("shop")), source_name(&open, &seals("web")));
    }
}
