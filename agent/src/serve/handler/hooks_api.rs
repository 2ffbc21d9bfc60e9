//! The calls `POST /hooks`, `GET /hooks` and `DELETE /hooks/{id}`.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use nudge_protocol::ContainerName;
use nudge_protocol::webhooks::{WebhookList, WebhookRequest};

use super::{App, HandlerReply, RequestRefusal, without_caching};

pub(super) fn list(app: &App) -> Result<HandlerReply, RequestRefusal> {
    let published = app.newest()?;
    let hooks = WebhookList { hooks: app.hooks.list(published.dictionary.etag()) };
    Ok(without_caching(HandlerReply::json(StatusCode::OK, &hooks)))
}

pub(super) fn add(app: &App, body: &[u8], container: Option<&str>) -> Result<HandlerReply, RequestRefusal> {
    let published = app.newest()?;
    let request: WebhookRequest = serde_json::from_slice(body).map_err(|error| {
        RequestRefusal::BadRequest(format!(
            "the body must be JSON such as {{\"url\": \"http://127.0.0.1:8080/changed\"}}: {error}"
        ))
    })?;
    let of_header = container.map(ContainerName::new).transpose();
    let container = request.container.or(of_header.map_err(|error| RequestRefusal::BadRequest(error.to_string()))?);
    let result = app.hooks.add(&request.url, container, published.dictionary.etag(), None, None);
    let (is_new, view) = result.map_err(RequestRefusal::Hook)?;
    let mut reply = HandlerReply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &view);
    if let Ok(location) = HeaderValue::from_str(&format!("/hooks/{}", view.id)) {
        reply.headers.insert(header::LOCATION, location);
    }
    Ok(without_caching(reply))
}

pub(super) fn remove(app: &App, id: &str) -> Result<HandlerReply, RequestRefusal> {
    if app.hooks.remove(id) {
        Ok(HandlerReply { status: StatusCode::NO_CONTENT, ..HandlerReply::default() })
    } else {
        Err(RequestRefusal::NoSuchHook)
    }
}
