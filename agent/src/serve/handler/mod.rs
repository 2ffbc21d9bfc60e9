//! Answers one request.

mod hooks_api;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use nudge_protocol::headers;
use nudge_server::http::{BodyError, read_body};
use nudge_server::slots::RequestGuard;
use tokio::sync::watch;

use super::connections::AgentConnection;
use super::reply_body::{ReplyBody, reply_body};
use super::router::{Call, ConfigFormat, route};
use super::{Limits, RequestOrigin, RequestRefusal};
use crate::check::Candidate;
use crate::content::{Dictionary, EtagKey};
use crate::identity::Token;
use crate::metrics::Metrics;
use crate::notify::Webhooks;
use crate::publish::{Current, Published};
use crate::status::StatusPage;

/// The state that the answers to requests are made from.
pub struct App {
    /// The endpoint's bounds.
    pub limits: Arc<Limits>,
    /// The pod's token.
    pub token: Token,
    /// The key of `ETag`s.
    pub etags: EtagKey,
    /// The dictionary that requests get.
    pub current: Current,
    /// The dictionary once its files are written.
    pub ready: Current,
    /// The candidate that the containers are asked about.
    pub candidate: watch::Receiver<Option<Arc<Candidate>>>,
    /// The agent's status.
    pub status: StatusPage,
    /// The webhooks that clients may subscribe.
    pub hooks: Webhooks,
    /// The agent's metrics.
    pub metrics: Metrics,
}

/// A reply before it becomes one of HTTP.
#[derive(Debug, Default)]
pub(super) struct HandlerReply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The generation of the dictionary that the body is taken from.
    pub(super) generation: Option<u64>,
}

/// The generation of a dictionary that is not served: older than any that is.
const CANDIDATE_GENERATION: u64 = 0;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl HandlerReply {
    pub(super) fn new(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::CONTENT_TYPE, content_type);
        Self { status, headers, body, generation: None }
    }

    pub(super) fn json<T: serde::Serialize>(status: StatusCode, content: &T) -> Self {
        // The wire types are maps with text keys, which always serialise.
        let body = serde_json::to_vec(content).unwrap_or_default();
        Self::new(status, JSON, body.into())
    }

    fn text(status: StatusCode, text: &'static str) -> Self {
        Self::new(status, TEXT, Bytes::from_static(text.as_bytes()))
    }
}

impl From<RequestRefusal> for HandlerReply {
    fn from(refusal: RequestRefusal) -> Self {
        let mut reply = Self::json(refusal.status(), &refusal.body());
        match refusal {
            RequestRefusal::Unauthorized => {
                let challenge = HeaderValue::from_static("Bearer realm=\"nudge\"");
                reply.headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            RequestRefusal::MethodNotAllowed(allow) => {
                reply.headers.insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            RequestRefusal::NotReady | RequestRefusal::TooManyWaiting(_) => {
                reply.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        reply
    }
}

impl App {
    /// Answers `request`, which came over `connection`.
    pub async fn answer(
        self: Arc<Self>,
        connection: AgentConnection,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        let guard = connection.begin_request();
        let reply = self.reply(&connection, request).await.unwrap_or_else(HandlerReply::from);
        self.metrics.count_answer(reply.status);
        to_response(reply, guard)
    }

    async fn reply(
        &self,
        connection: &AgentConnection,
        request: Request<Incoming>,
    ) -> Result<HandlerReply, RequestRefusal> {
        let uri = request.uri();
        if uri.path_and_query().is_some_and(|target| target.as_str().len() > self.limits.target_bytes) {
            return Err(RequestRefusal::TargetTooLong(self.limits.target_bytes));
        }
        let declared = request.body().size_hint().lower();
        if declared > self.limits.body_bytes as u64 {
            return Err(RequestRefusal::BodyTooLarge(self.limits.body_bytes));
        }
        let call = route(request.method(), uri.path(), uri.query());
        if !call.as_ref().is_ok_and(Call::is_public) {
            self.authorize(connection.origin(), request.headers())?;
        }
        match call? {
            Call::Readyz if self.ready.borrow().is_none() => Err(RequestRefusal::NotReady),
            Call::Healthz | Call::Readyz => Ok(HandlerReply::text(StatusCode::OK, "ok\n")),
            Call::Metrics => {
                let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                let text = self.metrics.render(&self.status, Instant::now());
                Ok(HandlerReply::new(StatusCode::OK, kind, Bytes::from(text)))
            }
            Call::Config { format, candidate: Some(version), .. } => {
                self.candidate(request.headers(), format, &version)
            }
            Call::Config { format, wait, candidate: None } => {
                self.config(connection, request.headers(), format, wait).await
            }
            Call::Value(key) => self.value(request.headers(), &key),
            Call::Status => {
                let published = self.newest()?;
                let hooks = self.hooks.list(published.dictionary.etag());
                Ok(without_caching(HandlerReply::json(
                    StatusCode::OK,
                    &self.status.status(&published, hooks, Instant::now()),
                )))
            }
            Call::ListHooks => hooks_api::list(self),
            Call::AddHook => {
                let container_name = container(request.headers()).map(str::to_owned);
                let body = self.read_body(request.into_body()).await?;
                hooks_api::add(self, &body, container_name.as_deref())
            }
            Call::RemoveHook(id) => hooks_api::remove(self, &id),
        }
    }

    fn authorize(&self, origin: RequestOrigin, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        if origin == RequestOrigin::Foreign {
            return Err(RequestRefusal::Foreign);
        }
        let authorization = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        if self.token.authorizes(authorization) { Ok(()) } else { Err(RequestRefusal::Unauthorized) }
    }

    pub(super) fn newest(&self) -> Result<Arc<Published>, RequestRefusal> {
        self.current.borrow().clone().ok_or(RequestRefusal::NotReady)
    }

    async fn config(
        &self,
        connection: &AgentConnection,
        headers: &HeaderMap,
        format: ConfigFormat,
        wait: Option<Duration>,
    ) -> Result<HandlerReply, RequestRefusal> {
        let mut published = self.newest()?;
        if let (Some(wait), true) = (wait, headers.contains_key(header::IF_NONE_MATCH)) {
            if wait > self.limits.wait {
                let limit = self.limits.wait.as_secs();
                return Err(RequestRefusal::BadRequest(format!("'wait' must be at most {limit}s")));
            }
            let is_known = |published: &Published| knows(headers, &etag(&published.dictionary, format));
            if is_known(&published) {
                // While the request waits it must not keep this dictionary in memory.
                drop(published);
                let limit = self.limits.waiting;
                let _waiting = connection.begin_wait().ok_or(RequestRefusal::TooManyWaiting(limit))?;
                let mut current = self.current.clone();
                let changed = current.wait_for(|newest| newest.as_ref().is_some_and(|newest| !is_known(newest)));
                let _ = tokio::time::timeout(wait, changed).await;
                published = self.newest()?;
            }
        }
        let reply = dictionary_reply(headers, format, &published.dictionary, published.generation)?;
        self.status.record_fetch(container(headers), published.dictionary.etag());
        Ok(reply)
    }

    /// Returns the dictionary that the containers are asked about. Reading it does not acknowledge it.
    fn candidate(
        &self,
        headers: &HeaderMap,
        format: ConfigFormat,
        version: &str,
    ) -> Result<HandlerReply, RequestRefusal> {
        let candidate = self.candidate.borrow().clone().filter(|candidate| candidate.has_version(version));
        let candidate = candidate.ok_or(RequestRefusal::NoSuchCandidate)?;
        dictionary_reply(headers, format, &candidate.dictionary, CANDIDATE_GENERATION)
    }

    fn value(&self, headers: &HeaderMap, key: &str) -> Result<HandlerReply, RequestRefusal> {
        let published = self.newest()?;
        let value = published.dictionary.value(key).ok_or(RequestRefusal::NoSuchKey)?;
        self.status.record_fetch(container(headers), published.dictionary.etag());
        let etag = self.etags.etag(&value);
        let content = || Ok((HeaderValue::from_static("application/octet-stream"), value));
        content_reply(headers, &etag, published.generation, content)
    }

    async fn read_body(&self, body: Incoming) -> Result<Vec<u8>, RequestRefusal> {
        let limit = self.limits.body_bytes;
        match tokio::time::timeout(self.limits.body, read_body(body, limit)).await {
            Err(_) => Err(RequestRefusal::BodyTooSlow(self.limits.body)),
            Ok(Err(BodyError::TooLong)) => Err(RequestRefusal::BodyTooLarge(limit)),
            Ok(Err(BodyError::BrokenOff)) => Err(RequestRefusal::BadRequest("the body can't be read".to_owned())),
            Ok(Ok(body)) => Ok(body),
        }
    }
}

/// Returns the reply with a whole dictionary in a format.
fn dictionary_reply(
    headers: &HeaderMap,
    format: ConfigFormat,
    dictionary: &Dictionary,
    generation: u64,
) -> Result<HandlerReply, RequestRefusal> {
    content_reply(headers, &etag(dictionary, format), generation, || match format {
        ConfigFormat::Json => Ok((JSON, dictionary.json())),
        ConfigFormat::Env => Ok((TEXT, dictionary.env().map_err(RequestRefusal::NotExpressible)?)),
    })
}

/// Returns whether the client has the content with this `ETag`.
fn knows(headers: &HeaderMap, etag: &str) -> bool {
    headers.get_all(header::IF_NONE_MATCH).iter().any(|value| matches_etag(value, etag))
}

fn etag(dictionary: &Dictionary, format: ConfigFormat) -> String {
    let json = dictionary.etag();
    match format {
        ConfigFormat::Json => json.to_owned(),
        // Another representation has another strong ETag (RFC 9110, section 8.8.3).
        ConfigFormat::Env => format!("{}-env\"", json.trim_end_matches('"')),
    }
}

/// Returns the reply with a content of this type, or 304 if the client has it already.
fn content_reply(
    headers: &HeaderMap,
    etag: &str,
    generation: u64,
    content: impl FnOnce() -> Result<(HeaderValue, Bytes), RequestRefusal>,
) -> Result<HandlerReply, RequestRefusal> {
    let mut reply = if knows(headers, etag) {
        HandlerReply { status: StatusCode::NOT_MODIFIED, ..HandlerReply::default() }
    } else {
        let (content_type, body) = content()?;
        HandlerReply::new(StatusCode::OK, content_type, body)
    };
    if let Ok(etag) = HeaderValue::from_str(etag) {
        reply.headers.insert(header::ETAG, etag);
    }
    reply.generation = Some(generation);
    Ok(without_caching(reply))
}

/// Marks a reply as one that no cache may store.
pub(super) fn without_caching(mut reply: HandlerReply) -> HandlerReply {
    reply.headers.insert(header::CACHE_CONTROL, NO_STORE);
    reply
}

/// Returns whether `If-None-Match` names `etag`: a list, `*`, weak or strong (RFC 9110, section 13.1.2).
fn matches_etag(value: &HeaderValue, etag: &str) -> bool {
    let Ok(list) = value.to_str() else { return false };
    list.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

fn container(headers: &HeaderMap) -> Option<&str> {
    headers.get(headers::CONTAINER)?.to_str().ok()
}

fn to_response(reply: HandlerReply, guard: RequestGuard) -> Response<ReplyBody> {
    if let Some(generation) = reply.generation {
        guard.set_generation(generation);
    }
    let mut response = Response::new(reply_body(reply.body, guard));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_none_match_is_a_list() {
        let matches = |text: &'static str| matches_etag(&HeaderValue::from_static(text), "\"a\"");
        for same in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(matches(same), "{same}");
        }
        for other in ["", "a", "\"b\"", "\"a", "\"ab\""] {
            assert!(!matches(other), "{other}");
        }
    }
}
