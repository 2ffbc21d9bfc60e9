//! The seals of a config, which its status holds in place of the contents of Secret parts.
//!
//! A seal is an HMAC under a key of this one config, over the version, the part's number and the content. Equal
//! contents in two configs, versions or parts have unrelated seals, so without the key a seal says nothing about a
//! content. The key is derived from the content key by HKDF (RFC 5869) with the namespace, the name and the identity of
//! the config, so a copied identity gives no other config the same key.

use std::collections::BTreeMap;

use nudge_api::PartKind;
use nudge_protocol::SecretDigest;
use nudge_protocol::hex::hex;
use ring::hmac;

use super::digest::{Contents, DIGEST_BYTES, PLAIN, keyed_digest, part_digest};
use crate::derived_keys::{ContentKey, sub_key};
use crate::identity::Identity;
use crate::keys::ConfigKey;

/// The beginning of a seal.
pub const SEAL: &str = "seal:";
/// The text that separates these keys from the other uses of the content key.
const PURPOSE: &str = "nudge.dev/seal";

/// The text that separates the key of digests of single values from the other uses of a config's key.
const VALUES: &str = "nudge.dev/value";

/// The seals of one config.
#[derive(Clone, Debug)]
pub struct Seals {
    content_key: ContentKey,
    own: hmac::Key,
}

impl Seals {
    /// Returns the seals of this config.
    pub fn new(content_key: &ContentKey, config: &ConfigKey, identity: Identity) -> Self {
        Self { content_key: content_key.clone(), own: sub_key(&content_key.0, &info(config, identity)) }
    }

    /// Returns the seal of a part; `keyed` is the digest of its content under the content key.
    pub fn seal(&self, version: &str, number: usize, keyed: &str) -> String {
        let message = [version, &number.to_string(), keyed].join("\0");
        format!("{SEAL}{}", hex(&hmac::sign(&self.own, message.as_bytes()).as_ref()[..DIGEST_BYTES]))
    }

    /// Returns the key of keyed digests.
    pub(crate) fn content_key(&self) -> &ContentKey {
        &self.content_key
    }

    /// Returns the key behind notices about this config by holders of the content key. A notice's own key is derived
    /// from a message without a zero byte. The message of a seal has zero bytes, so no seal is such a key.
    pub(super) fn notice_key(&self) -> &hmac::Key {
        &self.own
    }

    /// Returns a tag of this config. The second field of this message is a digest; that of a seal's message is a
    /// number. So neither can be used as the other.
    pub(super) fn tag(&self, message: &[u8]) -> Vec<u8> {
        hmac::sign(&self.own, message).as_ref().to_vec()
    }

    /// Returns a digest of one value of a Secret, which can be compared between the versions of this config. Its key is
    /// derived from a message without a zero byte, so it is no seal.
    pub(crate) fn value_digest(&self, key: &str, value: &[u8]) -> String {
        let message = [key.as_bytes(), b"\0", value].concat();
        hex(&hmac::sign(&sub_key(&self.own, VALUES.as_bytes()), &message).as_ref()[..DIGEST_BYTES])
    }

    /// Returns whether `digest`, from the status, is that of this content as part `number` of the version.
    pub fn is_sealed<V: AsRef<[u8]>>(
        &self,
        digest: &str,
        version: &str,
        number: usize,
        content: &BTreeMap<String, V>,
    ) -> bool {
        if digest.starts_with(PLAIN) {
            return part_digest(content, None) == digest;
        }
        digest == self.seal(version, number, &part_digest(content, Some(&self.content_key)))
    }

    /// Returns whether `seal` is that of a Secret part with this digest, as part `number` of the version.
    pub fn is_secret_sealed(&self, seal: &str, version: &str, number: usize, digest: &SecretDigest) -> bool {
        seal == self.seal(version, number, &keyed_digest(digest.as_str(), &self.content_key))
    }

    /// Returns the mark of a published Secret with this content: the seal of part 0, which no version has.
    pub(crate) fn of_published(&self, kind: PartKind, version: &str, content: &Contents) -> String {
        match kind {
            PartKind::ConfigMap => part_digest(content, None),
            PartKind::Secret => self.seal(version, 0, &part_digest(content, Some(&self.content_key))),
        }
    }
}

fn info(config: &ConfigKey, identity: Identity) -> Vec<u8> {
    // None of the fields can hold a zero byte.
    [PURPOSE, &config.namespace, config.name.as_str(), &identity.to_string()].join("\0").into_bytes()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::digest::KEYED;
    use super::*;

    fn content_key() -> ContentKey {
        ContentKey::new(&[7; 32])
    }

    /// Of the config `shop`.
    pub(crate) fn seals() -> Seals {
        of("team", "shop", "one")
    }

    fn of(namespace: &str, name: &str, identity: &str) -> Seals {
        Seals::new(&content_key(), &ConfigKey::parse(namespace, name).unwrap(), Identity::of_uid(identity))
    }

    fn content(value: &str) -> BTreeMap<String, Vec<u8>> {
        [("pin".to_owned(), value.as_bytes().to_vec())].into()
    }

    fn keyed(value: &str) -> String {
        part_digest(&content(value), Some(&content_key()))
    }

    #[test]
    fn equal_secrets_have_seals_with_nothing_in_common() {
        let shop = seals();
        let own = shop.seal("1", 1, &keyed("0000"));
        assert_eq!((own.len(), own.starts_with(SEAL)), (SEAL.len() + 48, true));
        assert!(!own.contains(&keyed("0000")[KEYED.len()..]));
        let others = [
            own.clone(),
            shop.seal("2", 1, &keyed("0000")),
            shop.seal("1", 2, &keyed("0000")),
            shop.seal("1", 1, &keyed("0001")),
            of("team", "shop", "two").seal("1", 1, &keyed("0000")),
            // A stranger who has copied the identity.
            of("team", "mine", "one").seal("1", 1, &keyed("0000")),
            of("evil", "shop", "one").seal("1", 1, &keyed("0000")),
        ];
        assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    }

    #[test]
    fn a_digest_of_a_value_belongs_to_one_config_and_one_key() {
        let digest = seals().value_digest("pin", b"0000");
        assert_eq!(seals().value_digest("pin", b"0000"), digest);
        for other in [
            seals().value_digest("pin", b"0001"),
            seals().value_digest("pi", b"n0000"),
            of("team", "shop", "two").value_digest("pin", b"0000"),
            of("team", "mine", "one").value_digest("pin", b"0000"),
        ] {
            assert_ne!(other, digest);
        }
    }

    #[test]
    fn only_the_content_in_its_place_is_what_was_sealed() {
        let shop = seals();
        let seal = shop.seal("1", 2, &keyed("0000"));
        assert!(shop.is_sealed(&seal, "1", 2, &content("0000")));
        for (version, number, value) in [("1", 2, "0001"), ("1", 1, "0000"), ("2", 2, "0000")] {
            assert!(!shop.is_sealed(&seal, version, number, &content(value)), "{version} {number} {value}");
        }
        assert!(!of("team", "shop", "two").is_sealed(&seal, "1", 2, &content("0000")));
        let plain = part_digest(&content("0000"), None);
        assert!(shop.is_sealed(&plain, "1", 2, &content("0000")), "of a ConfigMap");
        assert!(!shop.is_sealed(&plain, "1", 2, &content("0001")));
        for digest in ["", &keyed("0000")] {
            assert!(!shop.is_sealed(digest, "1", 2, &content("0000")), "{digest}");
        }
    }

    /// Returns the digest of a content as agents make it.
    fn secret_digest(value: &str) -> SecretDigest {
        let sum = super::super::digest::sha256(&content(value));
        SecretDigest::new(format!("{PLAIN}{}", hex(sum.as_ref())))
    }

    proptest! {
        /// The digest of a Secret part is compared with the seal of this part of this version of this config alone.
        #[test]
        fn a_digest_tests_no_other_seal(
            value in "[01]{1,2}", other in "[01]{1,2}", version in "[12]", sealed in "[12]", number in 1_usize..3,
            sealed_number in 1_usize..3, config in "[ab]", sealed_config in "[ab]",
        ) {
            let seal = of("team", &sealed_config, "one").seal(&sealed, sealed_number, &keyed(&other));
            let is_sealed = of("team", &config, "one").is_secret_sealed(&seal, &version, number, &secret_digest(&value));
            let same_place = (version, number, config) == (sealed, sealed_number, sealed_config);
            prop_assert_eq!(is_sealed, same_place && value == other);
        }

        /// No two places have the same message, even with unusual version names.
        #[test]
        fn no_other_place_has_the_same_seal(one in "[A-Za-z0-9.-]{1,4}", other in "[A-Za-z0-9.-]{1,4}", a in 1_usize..17, b in 1_usize..17) {
            let shop = seals();
            let same = shop.seal(&one, a, &keyed("0")) == shop.seal(&other, b, &keyed("0"));
            prop_assert_eq!(same, (one, a) == (other, b));
        }
    }
}
