//! Tokens that the API server would not issue, signed with its key: those that have expired, for example.

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

/// Returns the token with other claims and a new signature.
pub(super) fn signed_again(key: &KeyPair, token: &str, edit: impl FnOnce(&mut Value)) -> Result<String> {
    let mut claims = claims(token)?;
    edit(&mut claims);
    let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(json!({"alg": "ES256"})), encode(claims));
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der(), &random);
    let key = key.map_err(|error| anyhow!("the key of tokens can't sign: {error}"))?;
    let signature = key.sign(&random, signed.as_bytes()).map_err(|_| anyhow!("the token can't be signed"))?;
    Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// Returns what a token says.
pub fn claims(token: &str) -> Result<Value> {
    let claims = token.split('.').nth(1).context("no token")?;
    Ok(serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?)
}
