//! The exchange of a request for its answer, within the bounds of the server.

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
use nudge_server::shares::{SharePermit, Shares};
use nudge_server::slots::Peer;
use tokio::time::{timeout, timeout_at};
use tracing::Instrument as _;

use super::refusal_log::{RefusalLog, RefusedObject};
use super::{AdmissionSettings, SMALL_BODY_BYTES, SMALL_OBJECT_BYTES};
use crate::caller::Caller;
use crate::lookups::LookupError;
use crate::metrics::{AdmissionMetrics, ReviewOutcome};
use crate::review;
use crate::review_outline::Outline;
use crate::tenants::{Tenant, TenantPermit, TenantQueues, TenantShares};
use crate::verdict::{AdmissionVerdict, Denial, UndecidedDeletions};
use crate::webhooks::{Webhook, WebhookError};

/// The part of the API server's timeout that is left for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(200);
/// The message for a user whose object takes too much memory to be reviewed.
const TOO_MANY_VALUES: &str =
    "the object has too many fields to be checked by Nudge; remove annotations, labels or keys";
/// The message for a tenant with many requests that take long.
const TOO_MANY_REQUESTS: &str =
    "Nudge checks too many requests of this namespace or user at the same time; try again later";
/// The message for a user whose deletion could not be checked.
const UNDECIDED_DELETION: &str = "the object can't be deleted, because Nudge could not check the request; try again";
/// The maximum length of a reason in the log. A message may repeat texts of its object.
const MAX_REASON_BYTES: usize = 1024;
/// The size of a unit of memory that reviews share.
const UNIT_BYTES: usize = 1024;

/// The answers to requests, within the bounds that all connections share.
pub(super) struct Exchange {
    webhooks: BTreeMap<&'static str, Arc<dyn Webhook>>,
    settings: AdmissionSettings,
    /// The turns of concurrent requests.
    requests: TenantQueues,
    /// The memory of long bodies.
    bodies: Shares,
    /// The memory of large objects.
    objects: TenantShares,
    small_objects: TenantShares,
    metrics: AdmissionMetrics,
    refusals: RefusalLog,
}

/// The answer to a review that has a verdict.
struct ReviewAnswer {
    outcome: ReviewOutcome,
    json: Vec<u8>,
}

/// An answer without a verdict.
struct ReviewRefusal {
    status: StatusCode,
    message: String,
}

impl ReviewRefusal {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn too_many() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS)
    }
}

struct Body {
    bytes: Vec<u8>,
    /// The memory that the body takes, if it is long.
    memory: Option<SharePermit>,
}

impl Exchange {
    pub(super) fn new(webhooks: Vec<Arc<dyn Webhook>>, settings: AdmissionSettings, metrics: AdmissionMetrics) -> Self {
        let units = |bytes: usize| bytes.div_ceil(UNIT_BYTES);
        let bodies = Shares::new(units(settings.all_bodies_bytes), units(settings.max_body_bytes));
        let objects = TenantShares::new(units(settings.all_objects_bytes), 1);
        let small_objects = TenantShares::new(units(settings.all_small_objects_bytes), units(SMALL_OBJECT_BYTES));
        // Three API servers share the connections.
        let requests = TenantQueues::new(u32::try_from(settings.max_connections / 3).unwrap_or(u32::MAX));
        let webhooks = webhooks.into_iter().map(|webhook| (webhook.path(), webhook)).collect();
        let refusals = RefusalLog::new(Instant::now());
        Self { webhooks, settings, requests, bodies, objects, small_objects, metrics, refusals }
    }

    /// Answers one request.
    pub(super) async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<Full<Bytes>> {
        let start = Instant::now();
        let Some(webhook) = self.webhooks.get(request.uri().path()) else {
            return refuse(StatusCode::NOT_FOUND, "there is no webhook at this path");
        };
        if request.method() != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "reviews must be sent by POST");
        }
        let deadline = start + review_timeout(request.uri(), &self.settings);
        let (outcome, response) = match self.review(webhook.as_ref(), request, caller, deadline).await {
            Ok(ReviewAnswer { outcome, json }) => (outcome, respond(StatusCode::OK, "application/json", json)),
            Err(ReviewRefusal { status, message }) => {
                let has_failed = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                (if has_failed { ReviewOutcome::Error } else { ReviewOutcome::Malformed }, refuse(status, &message))
            }
        };
        self.metrics.observe_review(webhook.path(), outcome, start.elapsed());
        response
    }

    async fn review(
        &self,
        webhook: &dyn Webhook,
        request: Request<Incoming>,
        caller: Caller,
        deadline: Instant,
    ) -> Result<ReviewAnswer, ReviewRefusal> {
        let (path, peer) = (webhook.path(), caller.peer());
        let body = within(deadline, path, self.read_body(request, peer)).await?;
        let deletions = webhook.undecided_deletions();
        let inspect = move |body: Body| (review::weight(&body.bytes), Outline::read(&body.bytes), body);
        let inspected = within(deadline, path, async { Ok(run_apart(body, inspect).await) });
        let (weight, outline, body) = inspected.await?;
        let deny = |json: Vec<u8>| ReviewAnswer { outcome: ReviewOutcome::Denied, json };
        if units(weight) > self.objects.share()
            && let Some(json) = outline.as_ref().and_then(|outline| outline.deny_too_large(deletions, TOO_MANY_VALUES))
        {
            tracing::debug!(path, bytes = weight, peer = %caller.address, "request refused; its review takes too much memory");
            return Ok(deny(json));
        }
        // A body without an outline is refused when it is parsed.
        let tenant = outline.as_ref().map_or_else(|| Tenant::new(peer, "", ""), |outline| outline.tenant(peer));
        let judged = match self.requests.try_take(&tenant, 1) {
            Some(_turn) => within(deadline, path, self.judge(webhook, body, weight, caller, &tenant)).await,
            None => Err(ReviewRefusal::too_many()),
        };
        // The log has the reason why a request is undecided.
        match (judged, outline) {
            (Err(refusal), Some(outline)) if refusal.status == StatusCode::TOO_MANY_REQUESTS => {
                tracing::debug!(path, peer = %caller.address, "request refused; its namespace or user has too many at the same time");
                outline.deny_too_many(deletions, &refusal.message).map(deny).ok_or(refusal)
            }
            (Err(_), Some(outline)) if deletions == UndecidedDeletions::Deny && outline.is_deletion() => {
                Ok(deny(outline.deny_undecided(UNDECIDED_DELETION)))
            }
            (judged, _) => judged,
        }
    }

    /// Parses a body and decides about the request.
    async fn judge(
        &self,
        webhook: &dyn Webhook,
        body: Body,
        weight: usize,
        caller: Caller,
        tenant: &Tenant,
    ) -> Result<ReviewAnswer, ReviewRefusal> {
        let path = webhook.path();
        let objects = if weight > SMALL_OBJECT_BYTES { &self.objects } else { &self.small_objects };
        let permit = take_memory(objects, weight, tenant, body.memory.is_some()).await?;
        let parse = move |body: Body| {
            let parsed = review::parse(&body.bytes, caller);
            // The API server would refuse such a name after its webhooks. Denied here, the user reads the reason.
            let is_unusable = matches!(parsed, Err(review::ReviewError::Request(_)));
            let outline = if is_unusable { Outline::read(&body.bytes) } else { None };
            drop(body);
            // The closure owns the permit, because parsing continues when the review has timed out.
            (parsed, outline, permit)
        };
        let (parsed, outline, _permit) = run_apart(body, parse).await;
        let request = match parsed {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(path, %error, "review not parsed");
                return match outline.and_then(|outline| outline.deny_invalid(&error.to_string())) {
                    Some(json) => Ok(ReviewAnswer { outcome: ReviewOutcome::Denied, json }),
                    None => Err(ReviewRefusal::new(StatusCode::BAD_REQUEST, error.to_string())),
                };
            }
        };
        let span = review::span(&request);
        self.decide(webhook, &request).instrument(span).await
    }

    async fn decide(
        &self,
        webhook: &dyn Webhook,
        request: &review::ReviewRequest,
    ) -> Result<ReviewAnswer, ReviewRefusal> {
        let path = webhook.path();
        let verdict = match webhook.review(request).await {
            Err(WebhookError::Lookup(error @ LookupError::TooMany { .. })) => {
                AdmissionVerdict::Deny(Denial::too_many(format!("Nudge {error}; try again later")))
            }
            reviewed => reviewed.map_err(|error| refuse_failed(path, request, &error))?,
        };
        let outcome = if verdict.is_denied() { ReviewOutcome::Denied } else { ReviewOutcome::Allowed };
        let subject = RefusedObject { kind: &request.kind.kind, namespace: request.namespace.as_deref() };
        if let AdmissionVerdict::Deny(denial) = &verdict
            && let Some(left_out) = self.refusals.take_line(request.caller.address, subject, Instant::now())
        {
            // The message names objects, never values.
            tracing::info!(
                path,
                user = request.proven_user(),
                // Any client that reaches the port can claim to be any user.
                claimed_user = request.claimed_user(),
                peer = %request.caller.address,
                reason = one_line(&denial.message, MAX_REASON_BYTES),
                left_out,
                "request refused"
            );
        }
        let json = review::answer(request, verdict).map_err(|error| {
            tracing::error!(path, error = &error as &dyn Error, "answer not written");
            ReviewRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        })?;
        Ok(ReviewAnswer { outcome, json })
    }

    /// Reads the body of a request, and waits for memory first if the body is long.
    async fn read_body(&self, request: Request<Incoming>, peer: Peer) -> Result<Body, ReviewRefusal> {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let Some(length) = length.and_then(|value| value.parse::<usize>().ok()) else {
            return Err(ReviewRefusal::new(StatusCode::LENGTH_REQUIRED, "a review needs a Content-Length"));
        };
        if length > self.settings.max_body_bytes {
            let most = self.settings.max_body_bytes;
            tracing::debug!(length, most, "review refused: it is too long; the failure policy decides");
            let message = format!("a review may have at most {most} bytes");
            return Err(ReviewRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let memory = if length > SMALL_BODY_BYTES { Some(self.bodies.take(peer, units(length)).await) } else { None };
        let bytes = timeout(self.settings.body_timeout, read_body(request.into_body(), length))
            .await
            .map_err(|_| ReviewRefusal::new(StatusCode::REQUEST_TIMEOUT, "the body took too long"))?
            .map_err(|_| ReviewRefusal::new(StatusCode::BAD_REQUEST, "the body ended too early"))?;
        Ok(Body { bytes, memory })
    }
}

/// Takes memory for the objects of a review. A review with a long body does not wait for others of its own tenant.
/// Otherwise the tenant could keep the memory of bodies from other tenants.
async fn take_memory(
    objects: &TenantShares,
    bytes: usize,
    tenant: &Tenant,
    has_long_body: bool,
) -> Result<TenantPermit, ReviewRefusal> {
    let unit_count = units(bytes);
    if unit_count > objects.share() {
        tracing::debug!(bytes, "review refused: it takes too much memory; the failure policy decides");
        return Err(ReviewRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the review has too many values"));
    }
    if has_long_body {
        return objects.take_if_due(tenant, unit_count).await.ok_or_else(ReviewRefusal::too_many);
    }
    Ok(objects.take(tenant, unit_count).await)
}

/// Returns the number of units of memory.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// Does work on a body. A long body gets a thread of its own, so that other reviews don't wait for it.
async fn run_apart<T: Send + 'static>(body: Body, work: impl FnOnce(Body) -> T + Send + 'static) -> T {
    if body.memory.is_none() {
        return work(body);
    }
    match tokio::task::spawn_blocking(|| work(body)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server stops.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Ends work that takes longer than the deadline.
async fn within<T>(
    deadline: Instant,
    path: &str,
    work: impl Future<Output = Result<T, ReviewRefusal>>,
) -> Result<T, ReviewRefusal> {
    timeout_at(deadline.into(), work).await.unwrap_or_else(|_| {
        tracing::error!(path, "review timed out; the failure policy decides");
        Err(ReviewRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the review took too long"))
    })
}

fn refuse_failed(path: &str, request: &review::ReviewRequest, error: &WebhookError) -> ReviewRefusal {
    match error {
        WebhookError::Review(error) => {
            tracing::warn!(path, %error, "review not usable");
            ReviewRefusal::new(StatusCode::BAD_REQUEST, error.to_string())
        }
        WebhookError::Lookup(_) | WebhookError::Internal(_) => {
            tracing::error!(
                path,
                namespace = request.namespace.as_deref(),
                kind = request.kind.kind,
                name = request.name,
                error = error as &dyn Error,
                "review failed; the failure policy decides"
            );
            ReviewRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

/// Returns how long a review may take: the API server's timeout (`?timeout=3s`) less the time for the way back, within
/// our own limits.
fn review_timeout(uri: &Uri, settings: &AdmissionSettings) -> Duration {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    let seconds = parameters.find_map(|parameter| parameter.strip_prefix("timeout=")?.strip_suffix('s'));
    let timeout =
        seconds.and_then(|seconds| seconds.parse::<u8>().ok()).map(|seconds| Duration::from_secs(seconds.into()));
    timeout.map_or(settings.review_timeout, |timeout| {
        timeout.saturating_sub(ANSWER_MARGIN).max(ANSWER_MARGIN).min(settings.max_review_timeout)
    })
}

fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", format!("{message}\n"))
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
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

    #[async_trait::async_trait]
    impl Webhook for Repeats {
        fn path(&self) -> &'static str {
            "/repeats"
        }

        async fn review(&self, request: &review::ReviewRequest) -> Result<AdmissionVerdict, WebhookError> {
            let note = request.old_object.as_ref().unwrap().annotations()["note"].clone();
            Ok(AdmissionVerdict::Deny(Denial::forbidden(note)))
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
        exchange.decide(&Repeats, &request).instrument(span).now_or_never().unwrap().ok().unwrap();
        let lines = log::lines("");
        assert!(lines.len() == 1 && lines[0].contains("request refused") && lines[0].len() < 2000, "{lines:?}");
    }

    #[test]
    fn the_api_servers_timeout_is_kept_with_a_margin() {
        let settings = AdmissionSettings::new(([127, 0, 0, 1], 0).into());
        let limit = |uri: &'static str| review_timeout(&Uri::from_static(uri), &settings);
        assert_eq!(limit("/validate/versions?timeout=3s"), Duration::from_millis(2800));
        assert_eq!(limit("/?a=b&timeout=1s"), Duration::from_millis(800));
        for odd in ["/", "/?timeout=", "/?timeout=3", "/?timeout=999s", "/?timeout=-1s"] {
            assert_eq!(limit(odd), settings.review_timeout, "{odd}");
        }
        assert_eq!(limit("/?timeout=0s"), ANSWER_MARGIN);
        assert_eq!(limit("/?timeout=255s"), Duration::from_secs(5));
    }
}
