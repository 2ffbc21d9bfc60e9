//! GitHub Apps: the private key signs a short-lived proof, and the API gives a token of an installation for it.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION};
use jiff::{SignedDuration, Timestamp};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Reach, request, sensitive};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::error::GitError;
use crate::http::BOUNDS;

/// The minimum remaining lifetime of a token that is used for a fetch.
const TOKEN_LEEWAY: SignedDuration = SignedDuration::from_mins(5);
/// The maximum token lifetime that is believed. GitHub gives an hour.
const MAX_TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// A GitHub App.
#[derive(Clone)]
pub struct App {
    /// The app's id, or its client id.
    pub id: String,
    /// The number of the app's installation.
    pub installation: String,
    /// The app's private key, as PEM.
    pub key: Zeroizing<Vec<u8>>,
    /// The address of the API, such as `https://api.github.com`.
    pub api: Address,
}

impl fmt::Debug for App {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("App")
            .field("id", &self.id)
            .field("installation", &self.installation)
            .finish_non_exhaustive()
    }
}

/// A token of an installation.
#[derive(Clone)]
pub(crate) struct AppToken {
    pub(crate) token: Zeroizing<String>,
    expires_at: Timestamp,
}

impl AppToken {
    /// Returns whether the token stays valid for a whole fetch. The API may name any expiry time; an implausible one is
    /// not believed.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        let is_longer = |duration| now.checked_add(duration).is_ok_and(|needed_until| needed_until < self.expires_at);
        is_longer(TOKEN_LEEWAY) && !is_longer(MAX_TOKEN_LIFETIME)
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
    expires_at: Timestamp,
}

/// Fetches a token from the API.
pub(crate) async fn fetch_token(
    app: &App,
    reach: &Reach,
    roots: &Authorities,
    now: Timestamp,
) -> Result<AppToken, GitError> {
    let is_id = |text: &str| {
        let mut bytes = text.bytes();
        (1..=64).contains(&text.len()) && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if !is_id(&app.id) || !is_id(&app.installation) {
        return Err(GitError::App(
            "the id and the installation are numbers, or hold letters, digits and -._".to_owned(),
        ));
    }
    if !app.api.tls {
        return Err(GitError::App("the address of the API must begin with https://".to_owned()));
    }
    let proof = sensitive(proof(app, now)?.as_bytes()).ok_or(GitError::AppKey)?;
    let path = format!("{}/app/installations/{}/access_tokens", app.api.prefix, app.installation);
    let token_request = Request::post(path)
        .header(AUTHORIZATION, proof)
        .header(ACCEPT, "application/vnd.github+json")
        .body(Full::<Bytes>::default())
        .map_err(|_| GitError::AppKey)?;
    let answer = request(&app.api, reach, roots, token_request, BOUNDS)
        .await
        .map_err(|error| GitError::App(error.to_string()))?;
    let cause = match answer.status().as_u16() {
        201 | 200 => match serde_json::from_slice::<TokenAnswer>(answer.body()) {
            Ok(TokenAnswer { token, expires_at }) => return Ok(AppToken { token: Zeroizing::new(token), expires_at }),
            Err(_) => "the API's answer holds no token".to_owned(),
        },
        401 => "the API refuses the key: compare the app's id and its private key".to_owned(),
        403 | 404 => "the API knows no such installation of the app, or has suspended it".to_owned(),
        300..=399 => "the API redirects, and redirects are not followed".to_owned(),
        code => format!("the API answers with status {code}"),
    };
    Err(GitError::App(cause))
}

/// Makes the header for the API: a JSON web token by RS256, for nine minutes.
fn proof(app: &App, now: Timestamp) -> Result<Zeroizing<String>, GitError> {
    let pem = pem::parse(app.key.as_slice()).map_err(|_| GitError::AppKey)?;
    let der = Zeroizing::new(pem.contents().to_vec());
    // GitHub gives a key in PKCS #1, which tools convert to PKCS #8.
    let key = match pem.tag() {
        "RSA PRIVATE KEY" => KeyPair::from_der(&der),
        "PRIVATE KEY" => KeyPair::from_pkcs8(&der),
        _ => return Err(GitError::AppKey),
    };
    let key = key.map_err(|_| GitError::AppKey)?;
    let now = now.as_second();
    let head = BASE64_URL_SAFE_NO_PAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
    // The token is valid from a minute ago, because clocks differ.
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
        let lasts = |expires_at, now| AppToken { token: Zeroizing::default(), expires_at }.lasts(now);
        for (expires_at, expected) in [
            (Timestamp::MIN, false),
            (now - minutes(1), false),
            (now + minutes(5), false),
            (now + minutes(6), true),
            (now + minutes(60), true),
            (now + minutes(48 * 60), false),
            (Timestamp::MAX, false),
        ] {
            assert_eq!(lasts(expires_at, now), expected, "{expires_at}");
        }
        for now in [Timestamp::MIN, Timestamp::MAX] {
            assert!(!lasts(Timestamp::MIN, now) && !lasts(Timestamp::MAX, now), "a clock that was never set");
        }
    }
}
