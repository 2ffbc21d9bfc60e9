//! The endpoints. None passes a request on to the API server; each asks it for one thing.

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
use super::reply::{PageAnswer, PageBody, PageRefusal, file, json, lines};
use super::scope::PageScope;
use super::stream::Overview;
use super::view::ConfigView;
use super::{Page, config_routes, foreign_request, stream};

/// The maximum size of a request's body.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// The time that a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that the API server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn answer(page: &Page, request: Request<Incoming>) -> Response<PageBody> {
    if let Err(foreign) = foreign_request::check(&request, page.port) {
        return PageRefusal::new(StatusCode::FORBIDDEN, foreign.message()).into();
    }
    match *request.method() {
        Method::GET => {
            let page_asset = asset(request.uri().path());
            return page_asset
                .map_or_else(|| not_found().into(), |page_asset| file(page_asset.kind, page_asset.content));
        }
        Method::POST => {}
        _ => return PageRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take the method").into(),
    }
    let path = request.uri().path().to_owned();
    if path == "/api/session" {
        return exchange(page, request).await.unwrap_or_else(Into::into);
    }
    // Without the session's token, a request does not even learn which paths exist.
    if !page.access.borrow().admits(foreign_request::bearer(request.headers())) {
        return PageRefusal::new(
            StatusCode::UNAUTHORIZED,
            "run kubectl nudge ui again, and open the address that it prints",
        )
        .into();
    }
    let answer = match path.as_str() {
        "/api/overview" => overview(page, request).await,
        "/api/config" => config(page, request).await,
        "/api/creations" => in_time(config_routes::creations(page, read(request).await)).await,
        "/api/diff" => in_time(config_routes::diff(page, read(request).await)).await,
        "/api/acts" => in_time(config_routes::acts(page, read(request).await)).await,
        "/api/preview" => config_routes::preview(page, read(request).await),
        "/api/act" => config_routes::act(page, read(request).await).await,
        _ => Err(not_found()),
    };
    answer.unwrap_or_else(Into::into)
}

/// Returns the answer if the API server gives it in time.
async fn in_time(answer: impl Future<Output = PageAnswer>) -> PageAnswer {
    let timed_out = || PageRefusal::new(StatusCode::GATEWAY_TIMEOUT, "the API server does not answer; try again later");
    timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| Err(timed_out()))
}

fn not_found() -> PageRefusal {
    PageRefusal::new(StatusCode::NOT_FOUND, "there is no such path")
}

/// Reads the body as this type, and nothing more.
async fn read<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, PageRefusal> {
    let body = timeout(BODY_TIMEOUT, Limited::new(request.into_body(), MAX_BODY_BYTES).collect()).await;
    let Ok(Ok(body)) = body else {
        return Err(PageRefusal::new(StatusCode::BAD_REQUEST, "the body is too long or broken off"));
    };
    // Messages of the parser would repeat the request's text.
    serde_json::from_slice(&body.to_bytes())
        .map_err(|_| PageRefusal::new(StatusCode::BAD_REQUEST, "the body is not what this path takes"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    token: String,
}

async fn exchange(page: &Page, request: Request<Incoming>) -> PageAnswer {
    let Exchange { token } = read(request).await?;
    let mut access = page.access.borrow_mut();
    match access.exchange(&token, Instant::now()) {
        Ok(session) => {
            let answer = json(
                StatusCode::OK,
                &json!({
                    "session": session,
                    "context": page.options.context,
                    "namespace": page.session.namespace,
                    "onlyNamespace": page.configs == PageScope::One,
                    "chosen": page.options.extent == super::Extent::One,
                }),
            );
            page.opened.notify_one();
            Ok(answer)
        }
        Err(refusal) => {
            if refusal == TokenRefusal::Used {
                page.session.out.warn(
                    "somebody opened the address again, but it works once. If that was not you, somebody else knows the address",
                );
            }
            Err(PageRefusal::new(StatusCode::FORBIDDEN, refusal.message()))
        }
    }
}

/// A request without fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyRequest {}

async fn overview(page: &Page, request: Request<Incoming>) -> PageAnswer {
    let EmptyRequest {} = read(request).await?;
    open_window(page, Overview::default())
}

/// A request for a config, which need not exist yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigViewRequest {
    namespace: String,
    config: String,
}

async fn config(page: &Page, request: Request<Incoming>) -> PageAnswer {
    let ConfigViewRequest { namespace, config } = read(request).await?;
    open_window(page, ConfigView::new((namespace, config)))
}

/// Answers with the stream of a window, unless there are too many.
fn open_window(page: &Page, view: impl stream::PageView) -> PageAnswer {
    let Ok(permit) = Arc::clone(&page.windows).try_acquire_owned() else {
        return Err(PageRefusal::new(
            StatusCode::TOO_MANY_REQUESTS,
            "the page is open too often; close a window of it",
        ));
    };
    Ok(lines(stream::lines(view, page.feed.clone(), permit)))
}
