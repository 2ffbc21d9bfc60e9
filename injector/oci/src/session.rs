//! Requests to one repository of a registry, with the credential that it may have.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use nudge_core::outbound::Address;
use nudge_outbound::{Authorities, Bounds, Reach, request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::challenge::{self, Challenge};
use crate::credential::{Credential, Hidden};
use crate::error::OciError;
use crate::reference::Reference;

/// How long one request may take.
const TIME: Duration = Duration::from_secs(60);
/// The most bytes of an answer that no more is expected of.
pub(crate) const SMALL: usize = 64 * 1024;

/// Registries, and how to reach them.
#[derive(Clone, Debug)]
pub struct Registry {
    reach: Reach,
    roots: Authorities,
}

impl Registry {
    /// With the addresses that may be reached, and the authorities that certificates are checked by: of registries, of their token realms
    /// and of their storage.
    pub fn new(reach: Reach, roots: Authorities) -> Self {
        Self { reach, roots }
    }
}

/// Whether the credential may be sent to this token realm.
pub(crate) type MayAsk<'a> = &'a (dyn Fn(&Address) -> bool + Send + Sync);

/// What is done with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        Self { registry, reference, credential, may_ask, act, authorization: None }
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
                self.authorization = Some(self.authorize(values.iter().filter_map(|it| it.to_str().ok())).await?);
            }
        }
        let is_basic = self.authorization.as_ref().is_some_and(|it| it.as_bytes().starts_with(b"Basic "));
        Err(match self.credential {
            Credential::Basic { .. } if is_basic => OciError::CredentialRefused { host: self.host() },
            Credential::Basic { .. } => self.denied(),
            Credential::Anonymous => self.no_access(),
        })
    }

    /// Asks for a blob, which a registry may have elsewhere. Nothing but the request goes there.
    pub(crate) async fn ask_blob(&mut self, ask: &Ask) -> Result<Response<Bytes>, OciError> {
        let answer = self.ask(ask).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        let refused = |why| OciError::Redirect { host: self.host(), what: "a blob", why };
        let location = answer.headers().get(LOCATION).and_then(|it| it.to_str().ok());
        let (address, path) = located(location.unwrap_or_default(), self.reference.address())
            .ok_or_else(|| refused("its target is no address"))?;
        if !address.tls && &address != self.reference.address() {
            return Err(refused("its target has no TLS"));
        }
        let there = Ask { method: ask.method.clone(), path, accept: None, content: None, bytes: ask.bytes };
        let answer = self.send(&address, &there, None).await?;
        if answer.status().is_redirection() {
            return Err(refused("its target redirects again"));
        }
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            return Err(OciError::Status { host: address.authority(), what: "the request for a blob", status });
        }
        Ok(answer)
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
        let malformed =
            |_| OciError::Malformed { repository: self.reference.to_string(), what: "address", why: "it is none" };
        let built = built.body(Full::new(body)).map_err(malformed)?;
        let bounds = Bounds { time: TIME, bytes: ask.bytes };
        request(address, &self.registry.reach, &self.registry.roots, built, bounds)
            .await
            .map_err(|source| OciError::Http { host: address.authority(), source })
    }

    /// What the registry wants to see.
    async fn authorize<'b>(&self, values: impl Iterator<Item = &'b str>) -> Result<HeaderValue, OciError> {
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
        let token = self.token(realm, service, basic.as_ref()).await?;
        Ok(token)
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
        if !address.tls && own.tls {
            return Err(OciError::RealmWithoutTls { registry: registry(), host: address.authority() });
        }
        if basic.is_some() && address.host != own.host && !(self.may_ask)(&address) {
            return Err(OciError::RealmElsewhere { registry: registry(), host: address.authority() });
        }
        let scope = format!("repository:{}:{}", self.reference.repository(), self.act.scope());
        for (name, value) in [("service", service), ("scope", Some(scope.as_str()))] {
            if let Some(value) = value {
                let sign = if path.contains('?') { '&' } else { '?' };
                path = format!("{path}{sign}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
            }
        }
        let ask = Ask { method: Method::GET, path, accept: None, content: None, bytes: SMALL };
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
        #[derive(Deserialize)]
        struct Token {
            token: Option<Hidden>,
            access_token: Option<Hidden>,
        }
        let token: Option<Token> = serde_json::from_slice(answer.body()).ok();
        let token = token.and_then(|it| it.token.or(it.access_token)).filter(|it| !it.0.is_empty());
        token.and_then(|it| authorization("Bearer", &it.0)).ok_or(OciError::NoToken { host })
    }

    /// The same of a push, to which a repository need not be there.
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

/// A header, which no log shows. `None` if the text can't stand in one.
fn authorization(scheme: &str, text: &str) -> Option<HeaderValue> {
    let value = Zeroizing::new(format!("{scheme} {text}"));
    let mut value = HeaderValue::from_str(&value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether the answer is an error with this code, as the distribution specification has them.
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

/// The server of a URL, and path and query.
fn absolute(url: &str) -> Option<(Address, String)> {
    let (before, query) = url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)));
    let Address { prefix, .. } = Address::parse(before).ok()?;
    let address = Address { prefix: String::new(), ..Address::parse(before).ok()? };
    // The slash at the end is part of the path.
    let slash = if before.ends_with('/') || prefix.is_empty() { "/" } else { "" };
    let path = query.map_or_else(|| format!("{prefix}{slash}"), |query| format!("{prefix}{slash}?{query}"));
    let uri: Uri = path.parse().ok()?;
    (uri.authority().is_none() && uri.path_and_query().is_some()).then_some((address, path))
}

/// The same of a header `Location`, which may be without the server.
pub(crate) fn located(location: &str, base: &Address) -> Option<(Address, String)> {
    if location.starts_with('/') && !location.starts_with("//") {
        let uri: Uri = location.parse().ok()?;
        return Some((base.clone(), uri.path_and_query()?.as_str().to_owned()));
    }
    absolute(location)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_a_server_and_a_path() {
        let base = Address::parse("https://r.example.com:5000").unwrap();
        let read =
            |location: &str| located(location, &base).map(|(address, path)| (address.tls, address.authority(), path));
        let of = |tls, authority: &str, path: &str| Some((tls, authority.to_owned(), path.to_owned()));
        assert_eq!(read("/v2/a?b=/c"), of(true, "r.example.com:5000", "/v2/a?b=/c"));
        assert_eq!(read("https://s/a/?b=c%20"), of(true, "s", "/a/?b=c%20"));
        assert_eq!(read("http://s:80"), of(false, "s", "/"));
        assert_eq!(read("https://s?x"), of(true, "s", "/?x"));
        for bad in [
            "",
            "a",
            "//s/a",
            "ftp://s",
            "https://user@s/a",
            "https://s/a b",
            "https://s/a?b c",
            "/a b",
            "https://s/#a",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_code_is_looked_for_and_nothing_else() {
        let body = br#"{"errors": [{"code": "NAME_UNKNOWN", "message": "x", "detail": {}}]}"#;
        assert!(has_code(body, "NAME_UNKNOWN") && !has_code(body, "x") && !has_code(b"NAME_UNKNOWN", "NAME_UNKNOWN"));
    }

    proptest! {
        #[test]
        fn what_is_located_can_be_asked(location in "(https?://|/)\\PC{0,30}") {
            let base = Address::parse("https://r").unwrap();
            if let Some((_, path)) = located(&location, &base) {
                prop_assert!(path.starts_with('/') && Request::get(&path).body(()).is_ok());
            }
        }
    }
}
