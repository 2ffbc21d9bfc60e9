//! An API server for tests, with one call that can fail in every way that calls can, and controllers over it.

use std::sync::Arc;
use std::time::Duration;

use hyper::http;
use kube::Client;
use kube::client::Body;
use nudge_api::PartKind;
use nudge_cluster::index::Index;
use nudge_core::derived_keys::Keys;
use nudge_core::keys::PartMeta;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::controller::Controller;
use super::metrics::RolloutMetrics;

/// A value of a Secret, which the API server quotes.
pub(super) const VALUE: &str = "hunter2";

/// The failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    Code(u16),
    Reset,
    Silence,
    HalfAnswer,
}

/// Each of them.
pub(super) const FAULTS: [InjectedFault; 13] = [
    InjectedFault::Code(400),
    InjectedFault::Code(401),
    InjectedFault::Code(403),
    InjectedFault::Code(404),
    InjectedFault::Code(409),
    InjectedFault::Code(413),
    InjectedFault::Code(422),
    InjectedFault::Code(429),
    InjectedFault::Code(500),
    InjectedFault::Code(503),
    InjectedFault::Reset,
    InjectedFault::Silence,
    InjectedFault::HalfAnswer,
];

impl InjectedFault {
    /// Returns whether another attempt would get the same answer.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Code(400 | 403 | 413 | 422))
    }
}

/// A call: its method, and the end of its path.
pub(super) type Call = (&'static str, &'static str);

/// The requests to the API server, and the request that fails.
#[derive(Default)]
pub(super) struct FakeApiServer {
    pub(super) broken: Mutex<Option<(InjectedFault, Call)>>,
    /// Methods and paths.
    pub(super) calls: Mutex<Vec<String>>,
}

impl FakeApiServer {
    /// Returns a client whose calls are answered so, if they don't fail: by method, path and body, with code and
    /// object.
    pub(super) fn client(
        self: &Arc<Self>,
        answer: impl Fn(&str, &str, Value) -> (u16, Value) + Clone + Send + Sync + 'static,
    ) -> Client {
        let server = Arc::clone(self);
        let service = service_fn(move |request: http::Request<Body>| {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            server.calls.lock().push(format!("{method} {path}"));
            let broken = *server.broken.lock();
            let fault =
                broken.filter(|(_, (verb, end))| *verb == method && path.ends_with(end)).map(|(fault, _)| fault);
            let answer = answer.clone();
            async move {
                let respond = |code: u16, body: String| {
                    http::Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap()
                };
                match fault {
                    Some(InjectedFault::Code(code)) => return Ok(respond(code, status(code).to_string())),
                    Some(InjectedFault::Reset) => {
                        return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
                    }
                    Some(InjectedFault::Silence) => std::future::pending().await,
                    Some(InjectedFault::HalfAnswer) => {
                        return Ok(respond(200, format!("{{\"data\": {{\"password\": \"{VALUE}")));
                    }
                    None => {}
                }
                let body = request.into_body().collect_bytes().await.unwrap();
                let (code, object) = answer(&method, &path, serde_json::from_slice(&body).unwrap_or_default());
                Ok(respond(code, object.to_string()))
            }
        });
        Client::new(service, "ns")
    }
}

/// Returns a controller over this index, whose content key is `key`.
pub(super) fn controller_over(client: Client, index: Arc<Index>) -> Controller {
    Controller::new(client, index, Keys::of_root(b"key"), "a", Duration::from_mins(1), RolloutMetrics::default())
}

/// Returns a controller that can read nothing.
pub(super) fn blind(index: Arc<Index>) -> Controller {
    let service = service_fn(|_: http::Request<Body>| async {
        http::Response::builder().status(500).body(Body::from(Vec::new()))
    });
    controller_over(Client::new(service, "ns"), index)
}

/// Returns a ConfigMap that is the whole of a version, as the watch shows it.
pub(super) fn part(version: &str, name: &str, uid: &str) -> PartMeta {
    PartMeta {
        kind: PartKind::ConfigMap,
        name: name.to_owned(),
        uid: uid.to_owned(),
        resource_version: "1".to_owned(),
        version: version.to_owned(),
        part: None,
        parts: None,
        prune: false,
        keep: None,
        created: 0,
        terminating: false,
    }
}

/// Returns a failure as the API server answers it.
pub(super) fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("no: the data is {VALUE}"),
        "reason": if code == 404 { "NotFound" } else { "Other" }})
}
