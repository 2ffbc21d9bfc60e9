//! The digest of one part's content: over all keys and values in key order, each after its length.
//!
//! Digests have 192 bits: enough that nobody finds two contents with the same digest, and short enough for the status
//! of a config with many versions.
//!
//! A bare hash of a Secret would let a short value be guessed, so there is also an HMAC of it under a key of the
//! injector. The HMAC stays in memory: the status holds a [seal](super::seal) in its place. An agent that sends the
//! bare hash of a Secret part that it has learns whether that is what was sealed.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use nudge_protocol::hex::hex;
use ring::digest::{Context, Digest, SHA256};
use ring::hmac;
use zeroize::Zeroizing;

use crate::derived_keys::ContentKey;

/// The beginning of the digest of a ConfigMap.
pub const PLAIN: &str = "sha256:";
/// The beginning of a digest under the injector's key.
pub(super) const KEYED: &str = "hmac-sha256:";

/// The text that separates keyed digests from the other uses of the content key.
const PURPOSE: &str = "nudge.dev/part";

/// The size in bytes of digests and seals.
pub(super) const DIGEST_BYTES: usize = 24;

/// The keys and values of one part, which are wiped on drop.
pub type Contents = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// Returns the contents of a ConfigMap or Secret: text and bytes in one map. The API allows no key in both.
pub fn contents_of(text: Option<BTreeMap<String, String>>, bytes: Option<BTreeMap<String, ByteString>>) -> Contents {
    let text = text.into_iter().flatten().map(|(key, value)| (key, Zeroizing::new(value.into_bytes())));
    let bytes = bytes.into_iter().flatten().map(|(key, value)| (key, Zeroizing::new(value.0)));
    text.chain(bytes).collect()
}

/// Returns the hex digits of the digest of a ConfigMap, as the status has it; `None` for any other text.
pub fn plain_digits(digest: &str) -> Option<&str> {
    let is_hex =
        |digits: &&str| digits.len() == 2 * DIGEST_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    digest.strip_prefix(PLAIN).filter(is_hex)
}

/// Returns [`PLAIN`] or, with a key, `KEYED`, and lower-case hex.
pub fn part_digest<V: AsRef<[u8]>>(content: &BTreeMap<String, V>, key: Option<&ContentKey>) -> String {
    let digest = sha256(content);
    match key {
        None => format!("{PLAIN}{}", hex(&digest.as_ref()[..DIGEST_BYTES])),
        Some(key) => keyed_digest(&format!("{PLAIN}{}", hex(digest.as_ref())), key),
    }
}

/// Returns the digest under the injector's key of a content with this `sha256:` and hex digest, which agents make, too.
pub(super) fn keyed_digest(sha256: &str, key: &ContentKey) -> String {
    let message = [PURPOSE, sha256].join("\0");
    format!("{KEYED}{}", hex(hmac::sign(&key.0, message.as_bytes()).as_ref()))
}

pub(super) fn sha256<V: AsRef<[u8]>>(content: &BTreeMap<String, V>) -> Digest {
    let mut sum = Context::new(&SHA256);
    for (key, value) in content {
        for field in [key.as_bytes(), value.as_ref()] {
            sum.update(&(field.len() as u64).to_be_bytes());
            sum.update(field);
        }
    }
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn the_digest_names_the_content_and_nothing_else() {
        let one = part_digest(&content(&[("a", "bc")]), None);
        assert_eq!(one.len(), "sha256:".len() + 48);
        assert_ne!(one, part_digest(&content(&[("ab", "c")]), None));
        assert_ne!(one, part_digest(&content(&[("a", "bc"), ("b", "")]), None));
        assert_eq!(one, part_digest(&contents_of(Some([("a".into(), "bc".into())].into()), None), None));
    }

    #[test]
    fn a_keyed_digest_reveals_nothing_without_its_key() {
        let keys = [[1; 32], [2; 32]].map(|bytes| ContentKey::new(&bytes));
        let [one, two] = keys.each_ref().map(|key| part_digest(&content(&[("pin", "0000")]), Some(key)));
        assert!(one.starts_with("hmac-sha256:") && one != two);
        assert_eq!(one, part_digest(&content(&[("pin", "0000")]), Some(&keys[0])));
    }
}
