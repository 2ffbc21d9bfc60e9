//! What a registry wants to see before it answers: the credential, or a token that it is changed for.

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::challenge::{self, Challenge};
use crate::credential::{Credential, Hidden};
use crate::error::OciError;
use crate::session::{Ask, MAX_SMALL_ANSWER_BYTES, Session};
use crate::url::absolute;

/// What a realm answers.
#[derive(Deserialize)]
struct Token {
    token: Option<Hidden>,
    access_token: Option<Hidden>,
}

impl Session<'_> {
    /// What the registry wants to see.
    pub(super) async fn authorize<'b>(&self, values: impl Iterator<Item = &'b str>) -> Result<HeaderValue, OciError> {
        let challenges = challenge::read(values);
        let basic = self.credential.encoded();
        // The credential stays with the registry where that does.
        if let Some(basic) = basic.as_ref().filter(|_| challenges.contains(&Challenge::Basic)) {
            return authorization("Basic", basic).ok_or_else(|| OciError::CredentialRefused { host: self.host() });
        }
        let bearer = challenges.iter().find_map(|it| match it {
            Challenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            Challenge::Basic => None,
        });
        let Some((realm, service)) = bearer else {
            let is_asked = challenges.contains(&Challenge::Basic);
            return Err(if is_asked { self.no_access() } else { OciError::Challenge { host: self.host() } });
        };
        self.token(realm, service, basic.as_ref()).await
    }

    /// A token of the realm, for this repository and nothing else.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        basic: Option<&Zeroizing<String>>,
    ) -> Result<HeaderValue, OciError> {
        let registry = || self.host();
        let (address, mut path) = absolute(realm).ok_or_else(|| OciError::Realm { registry: registry() })?;
        let own = self.reference.address();
        // Elsewhere, a registry could have any URL within the cluster asked for.
        if !address.tls && (own.tls || address.host != own.host) {
            return Err(OciError::RealmWithoutTls { registry: registry(), host: address.authority() });
        }
        // Another port is another server.
        let is_own = (&address.host, address.port) == (&own.host, own.port);
        if basic.is_some() && !is_own && !(self.may_ask)(&address) {
            return Err(OciError::RealmElsewhere { registry: registry(), host: address.authority() });
        }
        let scope = format!("repository:{}:{}", self.reference.repository(), self.act.scope());
        for (name, value) in [("service", service), ("scope", Some(scope.as_str()))] {
            if let Some(value) = value {
                let sign = if path.contains('?') { '&' } else { '?' };
                path = format!("{path}{sign}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
            }
        }
        let ask = Ask { method: Method::GET, path, accept: None, content: None, bytes: MAX_SMALL_ANSWER_BYTES };
        let basic = basic.and_then(|it| authorization("Basic", it));
        let host = address.authority();
        let answer = self.send(&address, &ask, basic).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(match self.credential {
                    Credential::Anonymous => self.no_access(),
                    Credential::Basic { .. } => OciError::CredentialRefused { host },
                });
            }
            StatusCode::TOO_MANY_REQUESTS => return Err(OciError::Busy { host }),
            status => {
                let what = "the request for a token";
                return Err(OciError::Status { host, what, status: status.as_u16() });
            }
        }
        let token: Option<Token> = serde_json::from_slice(answer.body()).ok();
        let token = token.and_then(|it| it.token.or(it.access_token)).filter(|it| !it.0.is_empty());
        token.and_then(|it| authorization("Bearer", &it.0)).ok_or(OciError::NoToken { host })
    }
}

/// A header, which no log shows. `None` if the text can't stand in one.
fn authorization(scheme: &str, text: &str) -> Option<HeaderValue> {
    let value = Zeroizing::new(format!("{scheme} {text}"));
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
