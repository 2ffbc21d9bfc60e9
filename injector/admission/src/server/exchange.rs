//! One exchange: from a request to its answer, within the bounds.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use nudge_protocol::bounded_text::one_line;
use nudge_server::http::read_body;
use nudge_server::shares::{Portion, Shares};
use nudge_server::slots::Peer;
use tokio::time::{timeout, timeout_at};
use tracing::Instrument as _;

use super::refusal_log::{RefusalLog, Subject};
use super::{AdmissionSettings, SMALL_BODY_BYTES, SMALL_OBJECT_BYTES};
use crate::caller::Caller;
use crate::lookups::LookupError;
use crate::metrics::{AdmissionMetrics, Outcome};
use crate::outline::Outline;
use crate::review;
use crate::tenants::{Tenant, TenantPermit, TenantQueues, TenantShares};
use crate::verdict::{Denial, Verdict};
use crate::webhooks::{Webhook, WebhookError};

/// The part of the API server's limit that is left for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(200);
/// For who writes an object whose review takes too much memory.
const TOO_MANY_VALUES: &str =
    "the object has too many fields to be checked by Nudge; remove annotations, labels or keys";
/// For a tenant with many requests that take long.
const TOO_MANY_REQUESTS: &str =
    "Nudge checks too many requests of this namespace or user at the same time; try again later";
/// For who deletes what could not be checked.
const UNDECIDED_DELETION: &str = "the object can't be deleted, because Nudge could not check the request; try again";
/// The longest reason in the log, in bytes. A message may repeat texts of its object.
const REASON_BYTES: usize = 1024;
/// The unit of room, in bytes.
const ROOM_UNIT: usize = 1024;

/// Answers requests; shared by all connections.
pub(super) struct Exchange {
    webhooks: BTreeMap<&'static str, Arc<dyn Webhook>>,
    settings: AdmissionSettings,
    /// Requests at the same time.
    requests: TenantQueues,
    texts: Shares,
    objects: TenantShares,
    small_objects: TenantShares,
    metrics: AdmissionMetrics,
    refusals: RefusalLog,
}

/// An answer that is not a verdict.
type Refusal = (StatusCode, String);

impl Exchange {
    pub(super) fn new(webhooks: Vec<Arc<dyn Webhook>>, settings: AdmissionSettings, metrics: AdmissionMetrics) -> Self {
        let units = |bytes: usize| bytes.div_ceil(ROOM_UNIT);
        let texts = Shares::new(units(settings.all_bodies_bytes), units(settings.body_bytes));
        let objects = TenantShares::new(units(settings.all_objects_bytes), 1);
        let small_objects = TenantShares::new(units(settings.all_small_objects_bytes), units(SMALL_OBJECT_BYTES));
        // Three API servers share the connections.
        let requests = TenantQueues::new(u32::try_from(settings.connections / 3).unwrap_or(u32::MAX));
        let webhooks = webhooks.into_iter().map(|webhook| (webhook.path(), webhook)).collect();
        let refusals = RefusalLog::new(Instant::now());
        Self { webhooks, settings, requests, texts, objects, small_objects, metrics, refusals }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let Some(webhook) = self.webhooks.get(request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND, "there is no webhook at this path");
        };
        if request.method() != Method::POST {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "reviews must be sent by POST");
        }
        let deadline = Instant::now() + review_limit(request.uri(), &self.settings);
        let (outcome, response) = match self.review(webhook.as_ref(), request, caller, deadline).await {
            Ok((outcome, answer)) => (outcome, json(answer)),
            Err((status, message)) => {
                let fails = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                let outcome = if fails { Outcome::Error } else { Outcome::Malformed };
                (outcome, refusal(status, &message))
            }
        };
        self.metrics.reviewed(webhook.path(), outcome, began.elapsed());
        response
    }

    async fn review(
        &self,
        webhook: &dyn Webhook,
        request: Request<Incoming>,
        caller: Caller,
        deadline: Instant,
    ) -> Result<(Outcome, Vec<u8>), Refusal> {
        let (path, peer) = (webhook.path(), caller.peer());
        let (body, room) = within(deadline, path, self.body(request, peer)).await?;
        let (guards, share) = (webhook.refuses_undecided_deletions(), self.objects.share() as usize);
        let long = body.len() > SMALL_BODY_BYTES;
        let look = move || {
            let weight = review::weight(&body);
            InspectedBody {
                outline: Outline::read(&body),
                heavy: weight.div_ceil(ROOM_UNIT) > share,
                body,
                room,
                long,
                weight,
            }
        };
        let mut seen = within(deadline, path, async { Ok(run_apart(long, look).await) }).await?;
        let outline = seen.outline.take();
        if let Some(outline) = outline.as_ref().filter(|_| seen.heavy)
            && let Some(answer) = outline.too_large(guards, TOO_MANY_VALUES)
        {
            tracing::debug!(path, bytes = seen.weight, peer = %caller.address, "request refused; its review takes too much memory");
            return Ok((Outcome::Denied, answer));
        }
        // What has no outline is refused when it is parsed.
        let tenant = outline.as_ref().map_or_else(|| Tenant::new(peer, "", ""), |outline| outline.tenant(peer));
        let judged = match self.requests.try_take(&tenant, 1) {
            Some(_turn) => within(deadline, path, self.judge(webhook, seen, caller, &tenant)).await,
            None => Err(too_many()),
        };
        // Why it is not decided is in the log.
        match (judged, outline) {
            (Err((StatusCode::TOO_MANY_REQUESTS, message)), Some(outline)) => {
                tracing::debug!(path, peer = %caller.address, "request refused; its namespace or user has too many at the same time");
                let answer = outline.too_many(guards, &message);
                answer.map(|answer| (Outcome::Denied, answer)).ok_or((StatusCode::TOO_MANY_REQUESTS, message))
            }
            (Err(_), Some(outline)) if guards && outline.deletes() => {
                Ok((Outcome::Denied, outline.undecided(UNDECIDED_DELETION)))
            }
            (judged, _) => judged,
        }
    }

    /// From a body, with the room it takes, to a verdict.
    async fn judge(
        &self,
        webhook: &dyn Webhook,
        seen: InspectedBody,
        caller: Caller,
        tenant: &Tenant,
    ) -> Result<(Outcome, Vec<u8>), Refusal> {
        let path = webhook.path();
        let InspectedBody { body, room, long, weight, .. } = seen;
        let objects = if weight > SMALL_OBJECT_BYTES { &self.objects } else { &self.small_objects };
        let objects_room = objects_room(objects, weight, tenant, room.is_some()).await?;
        let parse = move || {
            let parsed = review::parse(&body, caller);
            // The API server would refuse such a name after its webhooks: the author reads why.
            let unusable = matches!(parsed, Err(review::ReviewError::Request(_)));
            let outline = if unusable { Outline::read(&body) } else { None };
            drop((body, room));
            // Here too, since parsing goes on when the review has timed out.
            (parsed, outline, objects_room)
        };
        let (parsed, outline, _objects_room) = run_apart(long, parse).await;
        let request = match parsed {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(path, %error, "review not parsed");
                let answer = outline.and_then(|outline| outline.invalid(&error.to_string()));
                return answer
                    .map(|answer| (Outcome::Denied, answer))
                    .ok_or((StatusCode::BAD_REQUEST, error.to_string()));
            }
        };
        let span = review::span(&request);
        self.decide(webhook, &request).instrument(span).await
    }

    async fn decide(&self, webhook: &dyn Webhook, request: &review::Request) -> Result<(Outcome, Vec<u8>), Refusal> {
        let path = webhook.path();
        let verdict = match webhook.review(request).await {
            Err(WebhookError::Lookup(error @ LookupError::TooMany { .. })) => {
                Verdict::Deny(Denial::too_many(format!("Nudge {error}; try again later")))
            }
            reviewed => reviewed.map_err(|error| failed(path, request, &error))?,
        };
        let outcome = if verdict.is_denied() { Outcome::Denied } else { Outcome::Allowed };
        let subject = Subject { kind: &request.kind.kind, namespace: request.namespace.as_deref() };
        if let Verdict::Deny(denial) = &verdict
            && let Some(left_out) = self.refusals.may_write(request.caller.address, subject, Instant::now())
        {
            // The message names objects, never values.
            tracing::info!(
                path,
                user = request.proven_user(),
                // Any client that reaches the port can claim to be any user.
                claimed_user = request.claimed_user(),
                peer = %request.caller.address,
                reason = one_line(&denial.message, REASON_BYTES),
                left_out,
                "request refused"
            );
        }
        let answer = review::answer(request, verdict).map_err(|error| {
            tracing::error!(path, error = &error as &dyn Error, "answer not written");
            (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        })?;
        Ok((outcome, answer))
    }

    /// The body, and the room it takes.
    async fn body(&self, request: Request<Incoming>, peer: Peer) -> Result<(Vec<u8>, Option<Portion>), Refusal> {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let Some(length) = length.and_then(|value| value.parse::<usize>().ok()) else {
            return Err((StatusCode::LENGTH_REQUIRED, "a review needs a Content-Length".to_owned()));
        };
        if length > self.settings.body_bytes {
            let most = self.settings.body_bytes;
            tracing::debug!(length, most, "review refused: it is too long; the failure policy decides");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("a review may have at most {most} bytes")));
        }
        let room = if length > SMALL_BODY_BYTES { Some(self.texts.take(peer, units(length)).await) } else { None };
        let bytes = timeout(self.settings.body, read_body(request.into_body(), length))
            .await
            .map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned()))?
            .map_err(|_| (StatusCode::BAD_REQUEST, "the body ended too early".to_owned()))?;
        Ok((bytes, room))
    }
}

/// Waits for room for objects. One whose body has `room` does not wait for others of its own tenant, who could so keep all room of bodies
/// from the others.
async fn objects_room(of: &TenantShares, bytes: usize, tenant: &Tenant, room: bool) -> Result<TenantPermit, Refusal> {
    let units = units(bytes);
    if units > of.share() {
        tracing::debug!(bytes, "review refused: it takes too much memory; the failure policy decides");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the review has too many values".to_owned()));
    }
    if room { of.take_if_due(tenant, units).await.ok_or_else(too_many) } else { Ok(of.take(tenant, units).await) }
}

/// How many units of room so many bytes take.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX)
}

fn too_many() -> Refusal {
    (StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS.to_owned())
}

/// A body that was read, and what is seen of it without parsing its objects.
struct InspectedBody {
    body: Vec<u8>,
    room: Option<Portion>,
    /// The body has more than [`SMALL_BODY_BYTES`].
    long: bool,
    weight: usize,
    /// Its objects may take more memory than any review may.
    heavy: bool,
    outline: Option<Outline>,
}

/// Work over a body. Over a long one it takes a thread of its own: other reviews must not wait for it.
async fn run_apart<T: Send + 'static>(long: bool, work: impl FnOnce() -> T + Send + 'static) -> T {
    if !long {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server stops.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Ends what takes too long.
async fn within<T>(
    deadline: Instant,
    path: &str,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    timeout_at(deadline.into(), work).await.unwrap_or_else(|_| {
        tracing::error!(path, "review timed out; the failure policy decides");
        Err((StatusCode::INTERNAL_SERVER_ERROR, "the review took too long".to_owned()))
    })
}

fn failed(path: &str, request: &review::Request, error: &WebhookError) -> Refusal {
    match error {
        WebhookError::Review(error) => {
            tracing::warn!(path, %error, "review not usable");
            (StatusCode::BAD_REQUEST, error.to_string())
        }
        WebhookError::Lookup(_) | WebhookError::Internal(_) => {
            let (namespace, name) = (request.namespace.as_deref(), &request.name);
            let kind = &request.kind.kind;
            let error_chain = error as &dyn Error;
            tracing::error!(
                path,
                namespace,
                kind,
                name,
                error = error_chain,
                "review failed; the failure policy decides"
            );
            (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

/// How long a review may take: the API server's limit (`?timeout=3s`) less the time for the way back, within our own limits.
fn review_limit(uri: &Uri, settings: &AdmissionSettings) -> Duration {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    let given = parameters.find_map(|parameter| parameter.strip_prefix("timeout=")?.strip_suffix('s'));
    let given = given.and_then(|seconds| seconds.parse::<u8>().ok()).map(|seconds| Duration::from_secs(seconds.into()));
    given.map_or(settings.review, |given| {
        given.saturating_sub(ANSWER_MARGIN).max(ANSWER_MARGIN).min(settings.longest_review)
    })
}

fn json(answer: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refusal(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{message}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kube::ResourceExt as _;
    use nudge_tests::log;
    use serde_json::json;

    use super::*;
    use crate::fixtures::caller;

    /// Repeats the object in its denial.
    struct Repeats;

    impl Webhook for Repeats {
        fn path(&self) -> &'static str {
            "/repeats"
        }

        fn review<'a>(
            &'a self,
            request: &'a review::Request,
        ) -> futures::future::BoxFuture<'a, Result<Verdict, WebhookError>> {
            let note = request.old_object.as_ref().unwrap().annotations()["note"].clone();
            Box::pin(async move { Ok(Verdict::Deny(Denial::forbidden(note))) })
        }
    }

    #[test]
    fn no_client_decides_how_long_a_line_of_the_log_is() {
        let long = format!("\n{{\"level\":\"forged\"}}{}", "x".repeat(60_000));
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "7", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "a", "namespace": "n",
                "operation": "DELETE", "userInfo": {"username": long},
                "oldObject": {"metadata": {"name": "a", "annotations": {"note": long}}}
            }
        });
        let settings = AdmissionSettings::new(([127, 0, 0, 1], 0).into());
        let exchange = Exchange::new(vec![], settings, AdmissionMetrics::default());
        let request = review::parse(review.to_string().as_bytes(), caller()).unwrap();
        log::listen();
        let span = review::span(&request);
        exchange.decide(&Repeats, &request).instrument(span).now_or_never().unwrap().unwrap();
        let lines = log::lines("");
        assert!(lines.len() == 1 && lines[0].contains("request refused") && lines[0].len() < 2000, "{lines:?}");
    }

    #[test]
    fn the_api_servers_timeout_is_kept_with_a_margin() {
        let settings = AdmissionSettings::new(([127, 0, 0, 1], 0).into());
        let limit = |uri: &'static str| review_limit(&Uri::from_static(uri), &settings);
        assert_eq!(limit("/validate/versions?timeout=3s"), Duration::from_millis(2800));
        assert_eq!(limit("/?a=b&timeout=1s"), Duration::from_millis(800));
        for odd in ["/", "/?timeout=", "/?timeout=3", "/?timeout=999s", "/?timeout=-1s"] {
            assert_eq!(limit(odd), settings.review, "{odd}");
        }
        assert_eq!(limit("/?timeout=0s"), ANSWER_MARGIN);
        assert_eq!(limit("/?timeout=255s"), Duration::from_secs(5));
    }
}
