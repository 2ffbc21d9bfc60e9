//! Hashes of tokens, for maps and logs that must not hold the tokens themselves.

use ring::digest::{SHA256, digest};

/// The SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

pub(super) fn hash_token(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}
