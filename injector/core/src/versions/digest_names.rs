//! Names of versions that a source makes, or the control plane makes of a text: digests of their contents. Sealing
//! checks them, so such a name never stands for other content, and nothing need be remembered of a deleted version.

use nudge_api::PartKind;
use nudge_protocol::hex::hex;
use ring::digest::{SHA256, digest};

/// The beginning of the names of versions that a source makes. No other version can be sealed under such a name.
pub const SOURCE_PREFIX: &str = "src-";
/// The beginning of the names of versions that the control plane makes of the text of a config's objects.
pub(super) const TEXT_PREFIX: &str = "txt-";
/// The size in bytes of a digest in a name: large enough that nobody can construct two contents with the same name. A
/// name has at most 63 characters, so at most 29 bytes fit after the prefixes.
pub(super) const NAME_BYTES: usize = 20;

/// Returns whether a source makes versions of this name.
pub fn is_of_source(version: &str) -> bool {
    version.starts_with(SOURCE_PREFIX)
}

/// Returns whether the control plane makes versions of this name of a text.
pub fn is_of_text(version: &str) -> bool {
    version.starts_with(TEXT_PREFIX)
}

/// Returns the beginning of the name, if the rest is the digest of the version's content.
pub(super) fn digest_prefix(version: &str) -> Option<&'static str> {
    [SOURCE_PREFIX, TEXT_PREFIX].into_iter().find(|prefix| version.starts_with(prefix))
}

/// Returns the digest over the digests of parts, in their order.
pub fn digest_of_parts(parts: impl IntoIterator<Item = (PartKind, String)>) -> String {
    hex(&digest(&SHA256, &message(parts)).as_ref()[..NAME_BYTES])
}

/// Encodes the digests of parts.
pub(super) fn message(parts: impl IntoIterator<Item = (PartKind, String)>) -> Vec<u8> {
    // Neither field can hold a zero byte.
    parts.into_iter().flat_map(|(kind, digest)| [kind.as_str(), "\0", &digest, "\0"].concat().into_bytes()).collect()
}
