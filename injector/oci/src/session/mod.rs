//! Requests to one repository of a registry, with the credential for this registry.

mod authorization_cache;
mod blob_redirect;
mod token;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use nudge_core::outbound::Address;
use nudge_core::remote::OciReference;
use nudge_outbound::{Authorities, Bounds, Reach};
use serde::Deserialize;

use crate::credential::Credential;
use crate::error::OciError;
use crate::session::authorization_cache::{AuthorizationCache, AuthorizationKey};

pub(crate) use crate::session::token::add_parameter;

/// The maximum duration of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// The maximum bytes of an answer that has only headers or an error.
pub(crate) const MAX_SMALL_ANSWER_BYTES: usize = 64 * 1024;

/// A client of registries.
#[derive(Clone, Debug)]
pub struct Registry {
    reach: Reach,
    roots: Authorities,
    authorizations: AuthorizationCache,
}

impl Registry {
    /// Makes a client that may reach these addresses. It uses these authorities to check the certificates of
    /// registries, of their token realms and of their storage.
    pub fn new(reach: Reach, roots: Authorities) -> Self {
        Self { reach, roots, authorizations: AuthorizationCache::default() }
    }
}

/// A function that decides whether the credential may be sent to a token realm.
type RealmFilter<'a> = &'a (dyn Fn(&Address) -> bool + Send + Sync);

/// The action on a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Pull,
    Push,
}

impl Action {
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

/// One request to a repository.
pub(crate) struct RepositoryRequest {
    pub(crate) method: Method,
    /// The path and query.
    pub(crate) path: String,
    pub(crate) accept: Option<&'static str>,
    /// The content and its media type.
    pub(crate) content: Option<(&'static str, Bytes)>,
    /// The maximum bytes of the answer.
    pub(crate) max_bytes: usize,
}

impl RepositoryRequest {
    /// Makes a request without content, with a small answer.
    pub(crate) fn new(method: Method, path: String) -> Self {
        Self { method, path, accept: None, content: None, max_bytes: MAX_SMALL_ANSWER_BYTES }
    }
}

/// The requests of one pull or push.
pub(crate) struct Session<'a> {
    registry: &'a Registry,
    pub(crate) reference: &'a OciReference,
    credential: &'a Credential,
    trusts_realm: RealmFilter<'a>,
    action: Action,
    key: AuthorizationKey,
    authorization: Option<HeaderValue>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        reference: &'a OciReference,
        credential: &'a Credential,
        trusts_realm: RealmFilter<'a>,
        action: Action,
    ) -> Self {
        let key = AuthorizationKey::new(reference, action, credential);
        let authorization = registry.authorizations.get(&key);
        Self { registry, reference, credential, trusts_realm, action, key, authorization }
    }

    /// Returns host and port of the registry, for messages.
    pub(crate) fn host(&self) -> String {
        self.reference.address().authority()
    }

    /// Returns the path of a resource of the repository.
    pub(crate) fn path(&self, resource: &str) -> String {
        format!("/v2/{}/{resource}", self.reference.repository())
    }

    /// Sends a request, with a credential if the registry wants one, and returns the answer if its status is not 401.
    pub(crate) async fn request(&mut self, request: &RepositoryRequest) -> Result<Response<Bytes>, OciError> {
        let mut answer = self.send(self.reference.address(), request, self.authorization.clone()).await?;
        // There is no token yet, or it has expired since the last request.
        if answer.status() == StatusCode::UNAUTHORIZED {
            let values = answer.headers().get_all(WWW_AUTHENTICATE);
            let authorization = self.authorize(values.iter().filter_map(|value| value.to_str().ok())).await?;
            self.registry.authorizations.set(self.key.clone(), authorization.clone());
            self.authorization = Some(authorization.clone());
            answer = self.send(self.reference.address(), request, Some(authorization)).await?;
        }
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let is_basic = self.authorization.as_ref().is_some_and(|value| value.as_bytes().starts_with(b"Basic "));
        Err(if is_basic { OciError::CredentialRefused(self.host()) } else { self.access_error() })
    }

    async fn send(
        &self,
        address: &Address,
        request: &RepositoryRequest,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Bytes>, OciError> {
        let mut http_request = Request::builder().method(request.method.clone()).uri(&request.path);
        if let Some(accept) = request.accept {
            http_request = http_request.header(ACCEPT, accept);
        }
        if let Some((media_type, _)) = request.content {
            http_request = http_request.header(CONTENT_TYPE, media_type);
        }
        if let Some(authorization) = authorization {
            http_request = http_request.header(AUTHORIZATION, authorization);
        }
        let body = request.content.as_ref().map(|(_, content)| content.clone()).unwrap_or_default();
        let http_request =
            http_request.body(Full::new(body)).map_err(|_| self.malformed("address", "it can't be used"))?;
        let bounds = Bounds { timeout: REQUEST_TIMEOUT, max_bytes: request.max_bytes };
        nudge_outbound::request(address, &self.registry.reach, &self.registry.roots, http_request, bounds)
            .await
            .map_err(|source| OciError::Http { host: address.authority(), source })
    }

    /// Returns the error of a failed push. The repository need not exist before a push.
    pub(crate) fn push_error(&self, answer: &Response<Bytes>, what: &'static str) -> OciError {
        match answer.status() {
            StatusCode::NOT_FOUND => OciError::NoRepository(self.reference.to_string()),
            _ => self.status_error(answer, what, ""),
        }
    }

    fn access_error(&self) -> OciError {
        let (repository, act) = (self.reference.to_string(), self.action.name());
        match self.credential {
            Credential::Anonymous => OciError::NoAccess { repository, act },
            Credential::Basic { .. } => OciError::Denied { repository, act },
        }
    }

    pub(crate) fn malformed(&self, what: &'static str, cause: &'static str) -> OciError {
        OciError::Malformed { repository: self.reference.to_string(), what, cause }
    }

    /// Returns the error of an answer with an unexpected status.
    pub(crate) fn status_error(&self, answer: &Response<Bytes>, what: &'static str, wanted: &str) -> OciError {
        let (host, repository) = (self.host(), self.reference.to_string());
        match answer.status() {
            StatusCode::FORBIDDEN => self.access_error(),
            StatusCode::NOT_FOUND if has_code(answer.body(), "NAME_UNKNOWN") => OciError::NoRepository(repository),
            StatusCode::NOT_FOUND => OciError::NoVersion { repository, wanted: wanted.to_owned() },
            StatusCode::TOO_MANY_REQUESTS => OciError::Busy(host),
            status if status.is_redirection() => {
                OciError::Redirect { host, what, cause: "only blobs may be elsewhere" }
            }
            status => OciError::Status { host, what, status: status.as_u16() },
        }
    }
}

/// Returns whether the answer is an error with this code of the distribution specification.
fn has_code(body: &[u8], code: &str) -> bool {
    #[derive(Deserialize)]
    struct Body {
        errors: Vec<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: String,
    }
    serde_json::from_slice(body).is_ok_and(|body: Body| body.errors.iter().any(|error| error.code == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_an_error_counts() {
        let body = br#"{"errors": [{"code": "NAME_UNKNOWN", "message": "x", "detail": {}}]}"#;
        assert!(has_code(body, "NAME_UNKNOWN") && !has_code(body, "x") && !has_code(b"NAME_UNKNOWN", "NAME_UNKNOWN"));
    }
}
