//! A hub that a test controls: real TLS and HTTP, and by default the answers of the real hub.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nudge_protocol::hub::{
    HubSettings, POLL_MEDIA_TYPE, POLL_PATH, PodContainer, PollConfig, PollHead, PollRequest, ReportRequest,
};
use nudge_protocol::{BlockDigest, ConfigName, ConfigUid, VersionName};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

pub use crate::fakes::assigned::Assigned;
use crate::fakes::hub_tls::HubAuthority;
use crate::fakes::interruptible::Interruptible;
use crate::{eventually, fakes::hub_tls};

/// The token that the hub takes at first.
pub const TOKEN: &str = "token-1";

/// How the hub answers one poll, in place of what it would say.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A reply with this status, and seconds for `Retry-After`.
    Status(u16, Option<u32>),
    /// A reply with these bytes.
    Bytes(Vec<u8>),
    /// A reply with these bytes, after which the connection breaks though more was announced.
    Cut(Vec<u8>),
    /// No reply: the connection breaks after this time.
    Break(Duration),
}

/// A poll that has come.
#[derive(Clone, Debug)]
pub struct Poll {
    /// When the poll came.
    pub at: Instant,
    /// Which connection, counted from 1.
    pub connection: usize,
    /// The token of the agent.
    pub token: String,
    /// What the agent had.
    pub request: PollRequest,
}

/// A report that has come.
#[derive(Clone, Debug)]
pub struct Report {
    /// When the report came.
    pub at: Instant,
    /// The body as it came.
    pub text: String,
    /// The body as it was parsed.
    pub request: ReportRequest,
}

/// What the hub knows, and how it is to answer.
#[derive(Debug)]
pub struct Say {
    /// The pod's configs in order.
    pub configs: Vec<(String, Assigned)>,
    /// Its containers.
    pub containers: Vec<PodContainer>,
    /// What agents are asked to do.
    pub settings: HubSettings,
    /// How long the containers have for their acknowledgement.
    pub ack_timeout_seconds: Option<u32>,
    /// Tokens that are taken.
    pub tokens: Vec<String>,
    /// Answers to the next polls.
    pub next: VecDeque<Answer>,
    /// The answer to every poll while it is set.
    pub always: Option<Answer>,
    /// Polls that are held for this time are cut.
    pub cut_held: Option<Duration>,
    /// The status for reports other than 204.
    pub refuse_reports: Option<u16>,
    /// Fields that this release does not know, to be added to every head.
    pub unknown_fields: bool,
    polls: Vec<Poll>,
    reports: Vec<Report>,
    connections: usize,
    open: usize,
    most_open: usize,
}

struct Shared {
    say: Mutex<Say>,
    tls: Mutex<TlsAcceptor>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn say(&self) -> MutexGuard<'_, Say> {
        self.say.lock()
    }
}

/// A running hub on a free port of loopback.
pub struct FakeHub {
    address: SocketAddr,
    authority: HubAuthority,
    shared: Arc<Shared>,
    task: Option<AbortHandle>,
}

impl FakeHub {
    /// Returns a hub that assigns `shop` 1.0.0 with `lives` 3, and knows no containers.
    pub fn start() -> Result<Self> {
        let authority = HubAuthority::new()?;
        let mut shop = Assigned { uid: "uid-shop".to_owned(), ..Assigned::default() };
        shop.set("1.0.0", &[("lives", b"3")])?;
        let say = Say {
            configs: vec![("shop".to_owned(), shop)],
            containers: Vec::new(),
            settings: HubSettings { wait_seconds: 300, report_seconds: 1 },
            ack_timeout_seconds: None,
            tokens: vec![TOKEN.to_owned()],
            next: VecDeque::new(),
            always: None,
            cut_held: None,
            refuse_reports: None,
            unknown_fields: false,
            polls: Vec::new(),
            reports: Vec::new(),
            connections: 0,
            open: 0,
            most_open: 0,
        };
        let shared = Arc::new(Shared {
            say: Mutex::new(say),
            tls: Mutex::new(authority.acceptor()?),
            changed: watch::Sender::new(()),
        });
        let mut hub = Self { address: ([127, 0, 0, 1], 0).into(), authority, shared, task: None };
        hub.up()?;
        Ok(hub)
    }

    /// Returns where it is.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns its certificate authority, PEM.
    pub fn ca(&self) -> &str {
        self.authority.pem()
    }

    /// Another authority takes over; connections that are open stay.
    pub fn rotate(&mut self) -> Result<()> {
        self.authority = HubAuthority::new()?;
        *self.shared.tls.lock() = self.authority.acceptor()?;
        Ok(())
    }

    /// Goes away: nobody listens, and all connections break.
    pub async fn down(&mut self) -> Result<()> {
        let Some(task) = self.task.take() else { return Ok(()) };
        task.abort();
        let gone = async || task.is_finished().then_some(());
        eventually(Duration::from_secs(5), "the hub has gone", gone).await
    }

    /// Listens, where it did before if it did.
    pub fn up(&mut self) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address).context("can't bind")?;
        let listener = socket.listen(64).context("can't listen")?;
        self.address = listener.local_addr()?;
        self.task = Some(tokio::spawn(serve(listener, Arc::clone(&self.shared))).abort_handle());
        Ok(())
    }

    /// Breaks all connections, and listens on.
    pub async fn cut(&mut self) -> Result<()> {
        self.down().await?;
        self.up()
    }

    /// Changes what it says, all in one step.
    pub fn say(&self, change: impl FnOnce(&mut Say)) {
        change(&mut self.shared.say());
        self.shared.changed.send_replace(());
    }

    /// Makes this version of a config the one to run.
    pub fn activate(&self, config: &str, version: &str, values: &[(&str, &[u8])]) -> Result<()> {
        let mut result = Ok(());
        self.say(|say| result = say.config(config).set(version, values));
        result
    }

    /// Returns the polls that have come.
    pub fn polls(&self) -> Vec<Poll> {
        self.shared.say().polls.clone()
    }

    /// Returns the reports that have come.
    pub fn reports(&self) -> Vec<Report> {
        self.shared.say().reports.clone()
    }

    /// Returns how many connections there have been.
    pub fn connections(&self) -> usize {
        self.shared.say().connections
    }

    /// Returns the most connections that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.shared.say().most_open
    }

    /// Waits until the last report is as expected, and returns it.
    pub async fn wait_for_report(
        &self,
        within: Duration,
        what: &str,
        expected: impl Fn(&ReportRequest) -> bool,
    ) -> Result<Report> {
        let result =
            eventually(within, what, async || self.reports().pop().filter(|report| expected(&report.request))).await;
        result.with_context(|| format!("the last report is {:?}", self.reports().pop().map(|report| report.text)))
    }

    /// Waits until this many polls have come.
    pub async fn wait_for_polls(&self, count: usize, within: Duration) -> Result<Vec<Poll>> {
        let description = format!("{count} polls");
        eventually(within, &description, async || Some(self.polls()).filter(|polls| polls.len() >= count)).await
    }

    /// Writes its authority's certificate and the token where an agent reads them.
    pub fn write_ca(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.ca()).context("can't write the hub's certificate")
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Say {
    /// Returns a config, made if there is none of this name.
    pub fn config(&mut self, name: &str) -> &mut Assigned {
        let at = self.configs.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            let uid = format!("uid-{name}");
            self.configs.push((name.to_owned(), Assigned { uid, ..Assigned::default() }));
            self.configs.len() - 1
        });
        &mut self.configs[at].1
    }

    /// Returns what it would reply to an agent that has this; `None` if nothing differs. When the poll `ends`, it
    /// passes newer revisions on.
    pub fn reply(&self, request: &PollRequest, ends: bool) -> Result<Option<Vec<u8>>> {
        let containers_hash = hub_tls::sha256(&serde_json::to_vec(&self.containers)?);
        let mut differs = request.containers_hash != containers_hash;
        let (mut configs, mut blocks) = (Vec::new(), Vec::new());
        for (name, assigned) in &self.configs {
            let name = ConfigName::new(name)?;
            let held = request.configs.iter().find(|held| held.name == name);
            let version = (!assigned.version.is_empty()).then(|| VersionName::new(&assigned.version)).transpose()?;
            let has =
                held.is_some_and(|held| held.sha256 == BlockDigest::new(&*assigned.sha256) && held.version == version);
            let same = held.is_some_and(|held| {
                held.uid == ConfigUid::new(&*assigned.uid)
                    && held.revision <= assigned.revision
                    && held.problem == assigned.problem.as_ref().map(|problem| problem.reason)
            });
            differs |= ends && held.is_some_and(|held| held.revision < assigned.revision);
            differs |= !same || (!has && assigned.problem.is_none());
            let sends = assigned.problem.is_none() && !has && version.is_some();
            if sends {
                blocks.push(&assigned.block);
            }
            configs.push(PollConfig {
                name,
                uid: ConfigUid::new(&*assigned.uid),
                revision: assigned.revision,
                version,
                sha256: BlockDigest::new(&*assigned.sha256),
                length: sends.then(|| u32::try_from(assigned.block.len())).transpose()?,
                problem: assigned.problem.clone(),
                ack_timeout_seconds: self.ack_timeout_seconds,
                mounted_secrets: assigned
                    .mounted_secrets
                    .filter(|_| held.is_some_and(|claim| !claim.mounted_secrets.is_empty())),
            });
        }
        let head = PollHead { configs, containers: self.containers.clone(), containers_hash, settings: self.settings };
        let mut head = serde_json::to_value(head)?;
        if self.unknown_fields {
            head["later"] = serde_json::json!({"a": [1]});
            head["settings"]["later"] = true.into();
            head["configs"][0]["later"] = "x".into();
        }
        let head = serde_json::to_vec(&head)?;
        Ok(differs
            .then(|| framed(&[&[&head[..]], &blocks.iter().map(|block| &block[..]).collect::<Vec<_>>()[..]].concat())))
    }
}

/// Returns parts, each behind its length.
pub fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes();
    parts.iter().flat_map(|part| [&length(part)[..], part].concat()).collect()
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // All connections go with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let acceptor = shared.tls.lock().clone();
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let number = {
                let mut say = shared.say();
                say.connections += 1;
                say.open += 1;
                say.most_open = say.most_open.max(say.open);
                say.connections
            };
            let _open = Open(&shared);
            let broken = watch::Sender::new(false);
            let mut breaks = broken.subscribe();
            let interrupted = Arc::new(Notify::new());
            let stream = Interruptible { stream, interrupted: Arc::clone(&interrupted) };
            let service = service_fn(|request| answer(request, number, &shared, &broken, &interrupted));
            tokio::select! {
                _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
                _ = breaks.changed() => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.say().open -= 1;
    }
}

type Reply = Response<Full<Bytes>>;

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    shared: &Shared,
    broken: &watch::Sender<bool>,
    interrupted: &Notify,
) -> Result<Reply, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let token = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.unwrap_or_default().to_owned();
    let is_known = shared.say().tokens.contains(&token);
    if head.uri.path() == POLL_PATH {
        let request: PollRequest = match serde_json::from_slice(&body) {
            Ok(request) => request,
            Err(error) => return Ok(refusal(400, &error.to_string(), None)),
        };
        let forced = {
            let mut say = shared.say();
            say.polls.push(Poll { at: Instant::now(), connection, token, request: request.clone() });
            say.next.pop_front().or_else(|| say.always.clone())
        };
        if !is_known {
            return Ok(refusal(401, "the token has expired", None));
        }
        let Some(forced) = forced else {
            let patience = shared.say().cut_held.unwrap_or(Duration::MAX);
            return Ok(match timeout(patience, poll(&request, shared, interrupted)).await {
                Ok(reply) => reply,
                Err(_) => force(Answer::Break(Duration::ZERO), broken).await,
            });
        };
        return Ok(force(forced, broken).await);
    }
    let mut say = shared.say();
    let refused = if is_known { say.refuse_reports } else { Some(401) };
    let text = String::from_utf8_lossy(&body).into_owned();
    match (refused, serde_json::from_str(&text)) {
        (Some(status), _) => Ok(refusal(status, "no reports now", None)),
        (None, Err(error)) => Ok(refusal(400, &error.to_string(), None)),
        (None, Ok(request)) => {
            say.reports.push(Report { at: Instant::now(), text, request });
            Ok(with_status(StatusCode::NO_CONTENT))
        }
    }
}

async fn poll(request: &PollRequest, shared: &Shared, interrupted: &Notify) -> Reply {
    let mut changed = shared.changed.subscribe();
    let wait = Duration::from_secs(u64::from(request.wait_seconds));
    let reply = |ends: bool| match shared.say().reply(request, ends) {
        Ok(bytes) => bytes.map(reply_of),
        Err(error) => Some(refusal(500, &error.to_string(), None)),
    };
    let differs = async {
        loop {
            if let Some(reply) = reply(false) {
                break reply;
            }
            let _ = changed.changed().await;
        }
    };
    tokio::select! {
        biased;
        reply = differs => return reply,
        () = interrupted.notified() => {}
        () = sleep(wait) => {}
    }
    reply(true).unwrap_or_else(|| with_status(StatusCode::NO_CONTENT))
}

async fn force(forced: Answer, broken: &watch::Sender<bool>) -> Reply {
    match forced {
        Answer::Status(status, after) => refusal(status, "as the test wants it", after),
        Answer::Bytes(bytes) => reply_of(bytes),
        Answer::Cut(bytes) => {
            let length = bytes.len() + 1000;
            let mut reply = reply_of(bytes);
            reply.headers_mut().insert(CONTENT_LENGTH, length.into());
            reply
        }
        Answer::Break(after) => {
            tokio::time::sleep(after).await;
            broken.send_replace(true);
            std::future::pending().await
        }
    }
}

fn with_status(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    reply
}

fn reply_of(bytes: Vec<u8>) -> Reply {
    let mut reply = Response::new(Full::from(bytes));
    if let Ok(kind) = POLL_MEDIA_TYPE.parse() {
        reply.headers_mut().insert(CONTENT_TYPE, kind);
    }
    reply
}

fn refusal(status: u16, message: &str, after: Option<u32>) -> Reply {
    let body = serde_json::json!({"error": "Refused", "message": message}).to_string();
    let mut reply = Response::new(Full::from(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(after) = after {
        reply.headers_mut().insert(RETRY_AFTER, after.into());
    }
    reply
}
