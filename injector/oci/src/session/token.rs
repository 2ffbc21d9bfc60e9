//! The authorization that a registry requires: the credential, or a token that the realm gives for it.

use std::fmt::{Display, Write as _};

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use nudge_outbound::sensitive;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::challenge::{Challenge, parse_challenges};
use crate::credential::{Credential, Hidden};
use crate::error::OciError;
use crate::session::{RepositoryRequest, Session};
use crate::url::parse_absolute;

/// The answer of a realm.
#[derive(Deserialize)]
struct RegistryToken {
    token: Option<Hidden>,
    access_token: Option<Hidden>,
}

impl Session<'_> {
    /// Returns the header that answers the challenges.
    pub(super) async fn authorize<'b>(&self, values: impl Iterator<Item = &'b str>) -> Result<HeaderValue, OciError> {
        let challenges = parse_challenges(values);
        let basic = self.credential.encoded();
        // If the registry accepts the credential itself, it is sent nowhere else.
        let takes_basic = challenges.contains(&Challenge::Basic);
        if let Some(basic) = basic.as_ref().filter(|_| takes_basic) {
            return authorization("Basic", basic).ok_or_else(|| OciError::CredentialRefused(self.host()));
        }
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            Challenge::Basic => None,
        });
        let Some((realm, service)) = bearer else {
            return Err(if takes_basic { self.access_error() } else { OciError::Challenge(self.host()) });
        };
        self.fetch_token(realm, service, basic.as_ref()).await
    }

    /// Fetches a token from the realm, for this action on this repository only.
    async fn fetch_token(
        &self,
        realm: &str,
        service: Option<&str>,
        basic: Option<&Zeroizing<String>>,
    ) -> Result<HeaderValue, OciError> {
        let (address, mut path) = parse_absolute(realm).ok_or_else(|| OciError::Realm(self.host()))?;
        let host = address.authority();
        let registry = self.reference.address();
        // Without this check, a registry could make Nudge request any URL within the cluster.
        if !address.tls && (registry.tls || address.host != registry.host) {
            return Err(OciError::RealmWithoutTls { registry: self.host(), host });
        }
        // Another port is another server.
        let is_registry = (&address.host, address.port) == (&registry.host, registry.port);
        if basic.is_some() && !is_registry && !(self.trusts_realm)(&address) {
            return Err(OciError::RealmElsewhere { registry: self.host(), host });
        }
        if let Some(service) = service {
            add_parameter(&mut path, "service", utf8_percent_encode(service, NON_ALPHANUMERIC));
        }
        let scope = format!("repository:{}:{}", self.reference.repository(), self.action.scope());
        add_parameter(&mut path, "scope", utf8_percent_encode(&scope, NON_ALPHANUMERIC));
        let basic = basic.and_then(|text| authorization("Basic", text));
        let answer = self.send(&address, &RepositoryRequest::new(Method::GET, path), basic).await?;
        match answer.status() {
            StatusCode::OK => {
                let token: Option<RegistryToken> = serde_json::from_slice(answer.body()).ok();
                let token = token.and_then(|answer| answer.token.or(answer.access_token));
                let token = token.filter(|token| !token.0.is_empty());
                token.and_then(|token| authorization("Bearer", &token.0)).ok_or(OciError::NoToken(host))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(match self.credential {
                Credential::Anonymous => self.access_error(),
                Credential::Basic { .. } => OciError::CredentialRefused(host),
            }),
            StatusCode::TOO_MANY_REQUESTS => Err(OciError::Busy(host)),
            status => Err(OciError::Status { host, what: "the request for a token", status: status.as_u16() }),
        }
    }
}

/// Adds a parameter to the query of a path. The value must be encoded.
pub(crate) fn add_parameter(path: &mut String, name: &str, value: impl Display) {
    let separator = if path.contains('?') { '&' } else { '?' };
    // Writing to a text never fails.
    let _ = write!(path, "{separator}{name}={value}");
}

/// Returns a header that logs do not show, or `None` if a header can't have the text.
fn authorization(scheme: &str, text: &str) -> Option<HeaderValue> {
    sensitive(Zeroizing::new(format!("{scheme} {text}")).as_bytes())
}
