//! Requests to one repository of a registry, with the credential that it may have.

mod blob_redirect;
mod remembered;
mod token;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use nudge_core::outbound::Address;
use nudge_core::remote::Reference;
use nudge_outbound::{Authorities, Bounds, Reach, request};
use serde::Deserialize;

use crate::credential::Credential;
use crate::error::OciError;
use crate::session::remembered::{Key, Remembered};

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// The most bytes of an answer that no more is expected of.
pub(crate) const MAX_SMALL_ANSWER_BYTES: usize = 64 * 1024;

/// Registries, and how to reach them.
#[derive(Clone, Debug)]
pub struct Registry {
    reach: Reach,
    roots: Authorities,
    remembered: Remembered,
}

impl Registry {
    /// With the addresses that may be reached, and the authorities that certificates are checked by: of registries, of their token realms
    /// and of their storage.
    pub fn new(reach: Reach, roots: Authorities) -> Self {
        Self { reach, roots, remembered: Remembered::default() }
    }
}

/// Whether the credential may be sent to this token realm.
pub(crate) type MayAsk<'a> = &'a (dyn Fn(&Address) -> bool + Send + Sync);

/// What is done with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Pull,
    Push,
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "push",
        }
    }

    fn scope(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "pull,push",
        }
    }
}

/// One request below `/v2/` of the repository.
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) accept: Option<&'static str>,
    pub(crate) content: Option<(&'static str, Bytes)>,
    /// The most bytes of the answer.
    pub(crate) bytes: usize,
}

/// The requests of one pull or push.
pub(crate) struct Session<'a> {
    registry: &'a Registry,
    pub(crate) reference: &'a Reference,
    credential: &'a Credential,
    may_ask: MayAsk<'a>,
    act: Act,
    key: Key,
    authorization: Option<HeaderValue>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        reference: &'a Reference,
        credential: &'a Credential,
        may_ask: MayAsk<'a>,
        act: Act,
    ) -> Self {
        let key = Key::new(reference, act, credential);
        let authorization = registry.remembered.get(&key);
        Self { registry, reference, credential, may_ask, act, key, authorization }
    }

    /// The registry, for messages.
    pub(crate) fn host(&self) -> String {
        self.reference.address().authority()
    }

    /// The path of something of the repository.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v2/{}/{rest}", self.reference.repository())
    }

    /// Asks, with a credential if the registry wants one. Answers of any status but 401 are given.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Response<Bytes>, OciError> {
        // A token may have expired since the last request.
        for is_fresh in [false, true] {
            let answer = self.send(self.reference.address(), ask, self.authorization.clone()).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
            if !is_fresh {
                let values = answer.headers().get_all(WWW_AUTHENTICATE);
                let authorization = self.authorize(values.iter().filter_map(|it| it.to_str().ok())).await?;
                self.registry.remembered.set(self.key.clone(), authorization.clone());
                self.authorization = Some(authorization);
            }
        }
        let is_basic = self.authorization.as_ref().is_some_and(|it| it.as_bytes().starts_with(b"Basic "));
        Err(match self.credential {
            Credential::Basic { .. } if is_basic => OciError::CredentialRefused { host: self.host() },
            Credential::Basic { .. } => self.denied(),
            Credential::Anonymous => self.no_access(),
        })
    }

    async fn send(
        &self,
        address: &Address,
        ask: &Ask,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Bytes>, OciError> {
        let mut built = Request::builder().method(ask.method.clone()).uri(&ask.path);
        if let Some(accept) = ask.accept {
            built = built.header(ACCEPT, accept);
        }
        if let Some((kind, _)) = ask.content {
            built = built.header(CONTENT_TYPE, kind);
        }
        if let Some(authorization) = authorization {
            built = built.header(AUTHORIZATION, authorization);
        }
        let body = ask.content.as_ref().map(|(_, content)| content.clone()).unwrap_or_default();
        let malformed = |_| OciError::Malformed {
            repository: self.reference.to_string(),
            what: "address",
            why: "it can't be used",
        };
        let built = built.body(Full::new(body)).map_err(malformed)?;
        let bounds = Bounds { timeout: REQUEST_TIMEOUT, max_bytes: ask.bytes };
        request(address, &self.registry.reach, &self.registry.roots, built, bounds)
            .await
            .map_err(|source| OciError::Http { host: address.authority(), source })
    }

    /// The error behind a failed push; the repository need not exist before.
    pub(crate) fn fault_of_push(&self, answer: &Response<Bytes>, what: &'static str) -> OciError {
        match answer.status() {
            StatusCode::NOT_FOUND => OciError::NoRepository(self.reference.to_string()),
            _ => self.fault(answer, what, ""),
        }
    }

    fn no_access(&self) -> OciError {
        OciError::NoAccess { repository: self.reference.to_string(), act: self.act.name() }
    }

    fn denied(&self) -> OciError {
        OciError::Denied { repository: self.reference.to_string(), act: self.act.name() }
    }

    /// What an answer means that is not the one that was hoped for.
    pub(crate) fn fault(&self, answer: &Response<Bytes>, what: &'static str, wanted: &str) -> OciError {
        let (host, repository) = (self.host(), self.reference.to_string());
        match answer.status() {
            StatusCode::FORBIDDEN => match self.credential {
                Credential::Anonymous => self.no_access(),
                Credential::Basic { .. } => self.denied(),
            },
            StatusCode::NOT_FOUND if has_code(answer.body(), "NAME_UNKNOWN") => OciError::NoRepository(repository),
            StatusCode::NOT_FOUND => OciError::NoVersion { repository, wanted: wanted.to_owned() },
            StatusCode::TOO_MANY_REQUESTS => OciError::Busy { host },
            status if status.is_redirection() => OciError::Redirect { host, what, why: "only blobs may be elsewhere" },
            status => OciError::Status { host, what, status: status.as_u16() },
        }
    }
}

/// Returns whether the answer is an error with this code, as the distribution specification has them.
fn has_code(body: &[u8], code: &str) -> bool {
    #[derive(Deserialize)]
    struct Body {
        errors: Vec<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: String,
    }
    serde_json::from_slice(body).is_ok_and(|body: Body| body.errors.iter().any(|it| it.code == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_looked_for_and_nothing_else() {
        let body = br#"{"errors": [{"code": "NAME_UNKNOWN", "message": "x", "detail": {}}]}"#;
        assert!(has_code(body, "NAME_UNKNOWN") && !has_code(body, "x") && !has_code(b"NAME_UNKNOWN", "NAME_UNKNOWN"));
    }
}
