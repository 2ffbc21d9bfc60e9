//! Routes a request to the module that answers it, once its token is accepted.

use hyper::Method;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hub::{POLL_PATH, REPORT_PATH};
use serde::de::DeserializeOwned;
use tracing::{Instrument as _, error_span};

use super::http::{AgentRequest, Body};
use crate::callers::ConnectionOrigin;
use crate::hub::Hub;
use crate::polling::ConnectionPolls;
use crate::reply::{HubReply, PollRefusal};

impl Hub {
    /// Answers a request by its path.
    pub(super) async fn answer(
        &self,
        request: AgentRequest,
        from: ConnectionOrigin,
        polls: &mut ConnectionPolls,
    ) -> Result<HubReply, PollRefusal> {
        if self.drain.has_begun() {
            return Ok(HubReply::draining());
        }
        let AgentRequest { method, path, token, body, .. } = request;
        let is_poll = path == POLL_PATH;
        if !is_poll && path != REPORT_PATH {
            return Err(PollRefusal::NoSuchPath);
        }
        if method != Method::POST {
            return Err(PollRefusal::MethodNotAllowed);
        }
        let body = body?;
        let session = self.authentication.session(&token, &body.claims, from).await?;
        drop(token);
        let (namespace, pod) = (&session.caller.namespace, &session.caller.name);
        if is_poll {
            let (request, span) = (parse(body)?, error_span!("poll", namespace, pod));
            let (reply, result) = Box::pin(self.polling.poll(&session, request, polls)).instrument(span).await;
            self.metrics.count_poll(result);
            Ok(reply)
        } else {
            let (report, span) = (parse(body)?, error_span!("report", namespace, pod));
            self.conditions.take_report(&session, report).instrument(span).await.map(|()| HubReply::empty())
        }
    }
}

/// Parses the body, and drops it, because a held poll must not keep the buffer of the request or its share of the bytes
/// for bodies.
fn parse<T: DeserializeOwned>(body: Body) -> Result<T, PollRefusal> {
    let Body { bytes, .. } = body;
    serde_json::from_slice(&bytes).map_err(|error| {
        let error = one_line(&error.to_string(), 200);
        PollRefusal::BadRequest(format!("the hub can't read the body: {error}; send JSON that this path takes"))
    })
}
