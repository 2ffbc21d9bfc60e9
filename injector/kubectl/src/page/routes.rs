//! The endpoints. None passes a request on to the API server: each asks it one thing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use super::assets::asset;
use super::one_time_link::TokenRefusal;
use super::reply::{Answer, Body, Refusal, file, json, lines};
use super::scope::Scope;
use super::stream::Overview;
use super::view::ConfigView;
use super::{Page, config_routes, foreign_request, stream};

/// The longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// How long a body may take.
const BODY_LIMIT: Duration = Duration::from_secs(5);

/// How long the API server may take to answer what the page asks.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Answers a request.
pub(super) async fn answer(page: &Page, request: Request<Incoming>) -> Response<Body> {
    if let Err(foreign) = foreign_request::check(&request, page.port) {
        return Refusal::new(StatusCode::FORBIDDEN, foreign.message()).into();
    }
    match *request.method() {
        Method::GET => {
            let asset = asset(request.uri().path());
            return asset.map_or_else(|| nothing_here().into(), |asset| file(asset.kind, asset.content));
        }
        Method::POST => {}
        _ => return Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take the method").into(),
    }
    let path = request.uri().path().to_owned();
    if path == "/api/session" {
        return exchange(page, request).await.unwrap_or_else(Into::into);
    }
    // Nothing else is said to those without the session's token, not even what there is.
    if !page.access.borrow().admits(foreign_request::bearer(request.headers())) {
        return Refusal::new(
            StatusCode::UNAUTHORIZED,
            "run kubectl nudge ui again, and open the address that it prints",
        )
        .into();
    }
    let answered = match path.as_str() {
        "/api/overview" => overview(page, request).await,
        "/api/config" => config(page, request).await,
        "/api/creations" => in_time(config_routes::creations(page, read(request).await)).await,
        "/api/diff" => in_time(config_routes::diff(page, read(request).await)).await,
        "/api/acts" => in_time(config_routes::acts(page, read(request).await)).await,
        "/api/preview" => config_routes::preview(page, read(request).await),
        "/api/act" => config_routes::act(page, read(request).await).await,
        _ => Err(nothing_here()),
    };
    answered.unwrap_or_else(Into::into)
}

/// The answer, if the API server gives it in time.
async fn in_time(answer: impl Future<Output = Answer>) -> Answer {
    let timed_out = || Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the API server does not answer; try again later");
    timeout(ANSWER_LIMIT, answer).await.unwrap_or_else(|_| Err(timed_out()))
}

fn nothing_here() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such path")
}

/// The body as this type, and nothing more.
async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refusal> {
    let body = timeout(BODY_LIMIT, Limited::new(request.into_body(), MAX_BODY_BYTES).collect()).await;
    let Ok(Ok(body)) = body else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the body is too long or broken off"));
    };
    // Messages of the parser would repeat what was sent.
    serde_json::from_slice(&body.to_bytes())
        .map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "the body is not what this path takes"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    token: String,
}

async fn exchange(page: &Page, request: Request<Incoming>) -> Answer {
    let Exchange { token } = read(request).await?;
    let mut access = page.access.borrow_mut();
    match access.exchange(&token, Instant::now()) {
        Ok(session) => {
            let one = page.configs == Scope::One;
            let answer = json(
                StatusCode::OK,
                &json!({
                    "session": session,
                    "context": page.options.context,
                    "namespace": page.session.namespace,
                    "onlyNamespace": one,
                    "chosen": page.options.extent == super::Extent::One,
                }),
            );
            page.opened.notify_one();
            Ok(answer)
        }
        Err(refused) => {
            if refused == TokenRefusal::Used {
                page.session.out.warn(
                    "somebody opened the address again, but it works once. If that was not you, somebody else knows the address",
                );
            }
            Err(Refusal::new(StatusCode::FORBIDDEN, refused.message()))
        }
    }
}

/// No field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

async fn overview(page: &Page, request: Request<Incoming>) -> Answer {
    let Nothing {} = read(request).await?;
    window(page, Overview::default())
}

/// The config that a window shows, which need not exist yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    namespace: String,
    config: String,
}

async fn config(page: &Page, request: Request<Incoming>) -> Answer {
    let Which { namespace, config } = read(request).await?;
    window(page, ConfigView::new((namespace, config)))
}

/// The stream of a window, if there are not too many.
fn window(page: &Page, view: impl stream::View) -> Answer {
    let Ok(permit) = Arc::clone(&page.windows).try_acquire_owned() else {
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "the page is open too often; close a window of it"));
    };
    Ok(lines(stream::lines(view, page.feed.clone(), permit)))
}
