//! What the hub does with the text of a token: name it without keeping it, and read until when an accepted one is good.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

/// Stands for a token.
pub(super) type TokenHash = [u8; 32];

/// The token's SHA-256.
pub(super) fn hash(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

/// The `exp` of a JWT, in seconds since 1970. Its signature is not looked at: only for tokens that a review has accepted.
pub(super) fn expiry(token: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let payload = token.split('.').nth(1)?;
    let json = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice::<Claims>(&json).ok().map(|claims| claims.exp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_expiry_stands_in_the_payload() {
        let token = |payload: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
        assert_eq!(expiry(&token(r#"{"aud":["nudge"],"exp":1700000000,"iss":"x"}"#)), Some(1_700_000_000));
        for bad in [&token("{}"), &token(r#"{"exp":"soon"}"#), &token(r#"{"exp":-1}"#), "", "a.b", "opaque", "a.!.c"] {
            assert_eq!(expiry(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_token_makes_it_panic(token in "\\PC{0,60}") {
            let _ = (expiry(&token), hash(&token));
        }
    }
}
