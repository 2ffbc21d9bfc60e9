//! What stands for a token where the token itself must not be kept.

use ring::digest::{SHA256, digest};

/// Stands for a token.
pub(super) type TokenHash = [u8; 32];

/// The token's SHA-256.
pub(super) fn hash(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}
