//! The calls `POST /hooks`, `GET /hooks` and `DELETE /hooks/{id}`.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use nudge_protocol::ContainerName;
use nudge_protocol::webhooks::{WebhookList, WebhookRequest};

use super::{App, Refusal, Reply, without_caching};

pub(super) fn list(app: &App) -> Result<Reply, Refusal> {
    let published = app.newest()?;
    let hooks = WebhookList { hooks: app.hooks.list(published.dictionary.etag()) };
    Ok(without_caching(Reply::json(StatusCode::OK, &hooks)))
}

pub(super) fn add(app: &App, body: &[u8], container: Option<&str>) -> Result<Reply, Refusal> {
    let published = app.newest()?;
    let request: WebhookRequest = serde_json::from_slice(body).map_err(|error| {
        Refusal::BadRequest(format!(
            "the body must be JSON such as {{\"url\": \"http://127.0.0.1:8080/changed\"}}: {error}"
        ))
    })?;
    let of_header = container.map(ContainerName::new).transpose();
    let container = request.container.or(of_header.map_err(|error| Refusal::BadRequest(error.to_string()))?);
    let result = app.hooks.add(&request.url, container, published.dictionary.etag(), None);
    let (is_new, view) = result.map_err(Refusal::Hook)?;
    let mut reply = Reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &view);
    if let Ok(location) = HeaderValue::from_str(&format!("/hooks/{}", view.id)) {
        reply.headers.insert(header::LOCATION, location);
    }
    Ok(without_caching(reply))
}

pub(super) fn remove(app: &App, id: &str) -> Result<Reply, Refusal> {
    if app.hooks.remove(id) {
        Ok(Reply { status: StatusCode::NO_CONTENT, ..Reply::default() })
    } else {
        Err(Refusal::NoSuchHook)
    }
}
