//! A GitHub App: its private key makes a short proof, for which the API gives a token of an installation.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Reach, request};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::http::BOUNDS;

/// A token is not used for a fetch if it expires within this time.
const TOKEN_LEEWAY: SignedDuration = SignedDuration::from_mins(5);
/// A token lifetime above this is not believed. GitHub gives an hour.
const MAX_TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// A GitHub App.
#[derive(Clone)]
pub struct App {
    /// The app's id, or its client id.
    pub id: String,
    /// The number of its installation.
    pub installation: String,
    /// Its private key, as PEM.
    pub key: Zeroizing<Vec<u8>>,
    /// The API: `https://api.github.com`.
    pub api: Address,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("installation", &self.installation).finish_non_exhaustive()
    }
}

/// A token of an installation.
#[derive(Clone)]
pub(crate) struct AppToken {
    pub(crate) token: Zeroizing<String>,
    until: Timestamp,
}

impl AppToken {
    /// Returns whether it lasts for a fetch. The API may give any end, and one that is out of range is not believed.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        let is_longer = |wait| now.checked_add(wait).is_ok_and(|end| end < self.until);
        is_longer(TOKEN_LEEWAY) && !is_longer(MAX_TOKEN_LIFETIME)
    }
}

#[derive(Deserialize)]
struct Answer {
    token: String,
    expires_at: Timestamp,
}

/// Asks the API for a token.
pub(crate) async fn token(app: &App, reach: &Reach, roots: &Authorities, now: Timestamp) -> Result<AppToken, GitError> {
    let plain = |text: &str| {
        !text.is_empty()
            && text.len() <= 64
            && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
    };
    if !plain(&app.id) || !plain(&app.installation) {
        return Err(GitError::App(
            "the id and the installation are numbers, or hold letters, digits and -._".to_owned(),
        ));
    }
    if !app.api.tls {
        return Err(GitError::App("the address of the API must begin with https://".to_owned()));
    }
    let mut proof = HeaderValue::try_from(proof(app, now)?.as_str()).map_err(|_| GitError::AppKey)?;
    proof.set_sensitive(true);
    let path = format!("{}/app/installations/{}/access_tokens", app.api.prefix, app.installation);
    let asked = Request::post(path)
        .header(AUTHORIZATION, proof)
        .header(ACCEPT, "application/vnd.github+json")
        .body(Full::<Bytes>::default())
        .map_err(|_| GitError::AppKey)?;
    let answer =
        request(&app.api, reach, roots, asked, BOUNDS).await.map_err(|error| GitError::App(error.to_string()))?;
    let status = answer.status();
    match status.as_u16() {
        201 | 200 => {}
        401 => {
            return Err(GitError::App("the API refuses the key: compare the app's id and its private key".to_owned()));
        }
        403 | 404 => {
            return Err(GitError::App("the API knows no such installation of the app, or has suspended it".to_owned()));
        }
        300..=399 => return Err(GitError::App("the API redirects, and redirects are not followed".to_owned())),
        code => return Err(GitError::App(format!("the API answers with status {code}"))),
    }
    let answer: Answer = serde_json::from_slice(answer.body())
        .map_err(|_| GitError::App("the API's answer holds no token".to_owned()))?;
    Ok(AppToken { token: Zeroizing::new(answer.token), until: answer.expires_at })
}

/// The header for the API: a JSON web token by RS256, for nine minutes.
fn proof(app: &App, now: Timestamp) -> Result<Zeroizing<String>, GitError> {
    let pem = pem::parse(app.key.as_slice()).map_err(|_| GitError::AppKey)?;
    let der = Zeroizing::new(pem.contents().to_vec());
    // GitHub gives PKCS #1; tools make PKCS #8 of it.
    let key = match pem.tag() {
        "RSA PRIVATE KEY" => KeyPair::from_der(&der),
        "PRIVATE KEY" => KeyPair::from_pkcs8(&der),
        _ => return Err(GitError::AppKey),
    };
    let key = key.map_err(|_| GitError::AppKey)?;
    let now = now.as_second();
    let head = BASE64_URL_SAFE_NO_PAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
    // A minute back: clocks differ.
    let claims =
        serde_json::json!({"iat": now.saturating_sub(60), "exp": now.saturating_add(480), "iss": app.id}).to_string();
    let text = format!("{head}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).map_err(|_| GitError::AppKey)?;
    Ok(Zeroizing::new(format!("Bearer {text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_until_shortly_before_an_end_that_is_believed() {
        let minutes = SignedDuration::from_mins;
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let lasts = |until, now| AppToken { token: Zeroizing::default(), until }.lasts(now);
        for (until, expected) in [
            (Timestamp::MIN, false),
            (now - minutes(1), false),
            (now + minutes(5), false),
            (now + minutes(6), true),
            (now + minutes(60), true),
            (now + minutes(48 * 60), false),
            (Timestamp::MAX, false),
        ] {
            assert_eq!(lasts(until, now), expected, "{until}");
        }
        for now in [Timestamp::MIN, Timestamp::MAX] {
            assert!(!lasts(Timestamp::MIN, now) && !lasts(Timestamp::MAX, now), "a clock that was never set");
        }
    }
}
