//! The crowd of pods that `bench hub` and the tests of `nudge-hub` let poll: their config and tokens.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The namespace of all pods.
pub const NAMESPACE: &str = "crowd";
/// The config of all pods.
pub const CONFIG: &str = "shop";
/// The service account of all pods.
pub const SERVICE_ACCOUNT: &str = "default";
/// The uid of the account.
pub const ACCOUNT_UID: &str = "00000000-0000-4000-9000-000000000002";

/// Returns the name of pod `number`.
pub fn pod_name(number: usize) -> String {
    format!("web-7d4b9c6f5-{number:05}")
}

/// Returns its uid.
pub fn pod_uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Returns a token of pod `number`, as long as a real one, valid for an hour.
pub fn token(number: usize) -> String {
    token_with(number, |_| ())
}

/// When the tokens were made, in seconds since 1970: a pod has one token, whenever it is requested.
static MADE: LazyLock<u64> =
    LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());

/// Returns the same with other claims. The stand-in for the API server, which checks no signature, takes its number
/// from the signature.
pub fn token_with(number: usize, change: impl FnOnce(&mut Value)) -> String {
    let mut claims = json!({
        "aud": ["nudge"], "exp": *MADE + 3600, "jti": format!("id-{number}"), "filling": "x".repeat(300),
        "kubernetes.io": {
            "namespace": NAMESPACE,
            "pod": {"name": pod_name(number), "uid": pod_uid(number)},
            "serviceaccount": {"name": SERVICE_ACCOUNT, "uid": ACCOUNT_UID},
        },
    });
    change(&mut claims);
    format!("{}.{}.{number}", "h".repeat(100), BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Returns the pod of a token.
pub fn number(token: &str) -> Option<usize> {
    token.split('.').nth(2)?.parse().ok()
}
