//! Which room answers a request, once its token is accepted.

use hyper::Method;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hub::{POLL_PATH, REPORT_PATH};
use serde::de::DeserializeOwned;
use tracing::{Instrument as _, error_span};

use super::http::{Body, Request};
use crate::callers::Origin;
use crate::hub::Hub;
use crate::polling::ConnectionPolls;
use crate::reply::{Refusal, Reply};

impl Hub {
    /// Has the room of the request's path answer it.
    pub(super) async fn answer(
        &self,
        request: Request,
        from: Origin,
        polls: &mut ConnectionPolls,
    ) -> Result<Reply, Refusal> {
        if self.drain.has_begun() {
            return Ok(Reply::draining());
        }
        let Request { method, path, token, body, .. } = request;
        let is_poll = path == POLL_PATH;
        if !is_poll && path != REPORT_PATH {
            return Err(Refusal::NoSuchPath);
        }
        if method != Method::POST {
            return Err(Refusal::MethodNotAllowed);
        }
        let body = body?;
        let session = self.authentication.session(&token, &body.claims, from).await?;
        drop(token);
        let (namespace, pod) = (&session.caller.namespace, &session.caller.name);
        if is_poll {
            let (request, span) = (parse(body)?, error_span!("poll", namespace, pod));
            let (reply, result) = Box::pin(self.polling.poll(&session, request, polls)).instrument(span).await;
            self.metrics.polled(result);
            Ok(reply)
        } else {
            let (report, span) = (parse(body)?, error_span!("report", namespace, pod));
            self.conditions.report(&session, report).instrument(span).await.map(|()| Reply::nothing())
        }
    }
}

/// Takes the body, because a held poll must keep neither the buffer that the request was read into nor the room that it had.
fn parse<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let Body { bytes, .. } = body;
    serde_json::from_slice(&bytes).map_err(|error| {
        let error = one_line(&error.to_string(), 200);
        Refusal::BadRequest(format!("the hub can't read the body: {error}; send JSON that this path takes"))
    })
}
