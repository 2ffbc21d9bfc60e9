//! A webhook subscriber that gives the answers of the test, and keeps the requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nudge_protocol::headers::WEBHOOK_ID;
use nudge_protocol::webhooks::WebhookEvent;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::eventually;

/// How the server answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With this status.
    Status(StatusCode),
    /// With this status and this text.
    Text(StatusCode, String),
    /// With 302 and this place.
    Redirect(String),
    /// Never.
    Hang,
}

/// A request that has come.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// When it was there whole.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
}

impl Delivery {
    /// Returns a header as text; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the event's id.
    pub fn id(&self) -> &str {
        self.header(WEBHOOK_ID)
    }

    /// Returns the event.
    pub fn event(&self) -> Result<WebhookEvent> {
        serde_json::from_str(&self.body).with_context(|| format!("not an event: {}", self.body))
    }

    /// Returns the version of the first config.
    pub fn version(&self) -> Result<String> {
        let event = self.event()?;
        Ok(event.data.configs.first().context("no config in the event")?.version.to_string())
    }
}

#[derive(Debug)]
struct State {
    answer: Answer,
    deliveries: Vec<Delivery>,
}

/// Listens on a free port of loopback until dropped.
#[derive(Debug)]
pub struct HookServer {
    url: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl HookServer {
    /// Starts to listen.
    pub async fn start(answer: Answer) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("can't listen")?;
        let url = format!("http://{}/changed?by=nudge", listener.local_addr()?);
        let state = Arc::new(Mutex::new(State { answer, deliveries: Vec::new() }));
        let task = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self { url, state, task })
    }

    /// Starts to listen, and answers 204.
    pub async fn willing() -> Result<Self> {
        Self::start(Answer::Status(StatusCode::NO_CONTENT)).await
    }

    /// Returns where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers otherwise from now on.
    pub fn answer(&self, answer: Answer) {
        lock(&self.state).answer = answer;
    }

    /// Returns what has come so far.
    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.state).deliveries.clone()
    }

    /// Waits until `count` requests have come, and gives them all.
    pub async fn wait_for(&self, count: usize, within: Duration) -> Result<Vec<Delivery>> {
        let description = format!("{count} requests at {}", self.url);
        eventually(within, &description, async || Some(self.deliveries()).filter(|all| all.len() >= count)).await
    }

    /// Waits for a request that notifies of `version`.
    pub async fn notified_of(&self, version: &str, within: Duration) -> Result<Delivery> {
        let description = format!("{} is notified of {version}", self.url);
        let notifies = |one: &Delivery| one.version().is_ok_and(|notified| notified == version);
        eventually(within, &description, async || self.deliveries().into_iter().find(notifies)).await
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| reply(request, &state));
            // The agent closes each connection after its reply, and may give up before.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn reply(request: Request<Incoming>, state: &Mutex<State>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let answer = {
        let mut state = lock(state);
        state.deliveries.push(Delivery {
            at: Instant::now(),
            method: head.method,
            target: head.uri.to_string(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        });
        state.answer.clone()
    };
    let mut response = Response::new(Full::default());
    match answer {
        Answer::Text(status, text) => {
            *response.status_mut() = status;
            *response.body_mut() = text.into();
        }
        Answer::Status(status) => *response.status_mut() = status,
        Answer::Redirect(place) => {
            *response.status_mut() = StatusCode::FOUND;
            if let Ok(place) = place.parse() {
                response.headers_mut().insert(LOCATION, place);
            }
        }
        Answer::Hang => std::future::pending().await,
    }
    Ok(response)
}
