//! The crowd of pods that `bench hub` and the tests of `nudge-hub` let poll: their config and tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The namespace of all pods.
pub const NAMESPACE: &str = "crowd";
/// The config of all pods.
pub const CONFIG: &str = "shop";

/// A token of pod `number`, as long as a real one, valid for an hour.
pub fn token(number: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let payload = format!(r#"{{"exp":{},"filling":"{}"}}"#, now + 3600, "x".repeat(600));
    format!("{}.{}.{number}", "h".repeat(100), BASE64_URL_SAFE_NO_PAD.encode(payload))
}

/// The pod of a token.
pub fn number(token: &str) -> Option<usize> {
    token.split('.').nth(2)?.parse().ok()
}
