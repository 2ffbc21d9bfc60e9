//! The way of one process to the API server. It ends TLS on both sides, so it knows what it carries: watches can be late or cut in the
//! middle of an object, and the answers to writes can be lost after the writes were done.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use nudge_tests::cluster::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What the half of an object has to leave in.
const HALF: Duration = Duration::from_millis(50);
/// Pieces of one watch that are on their way: more than a fleet's watch has in a minute.
const ON_THE_WAY: usize = 10_000;

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;
/// What was read, and when.
type Piece = (Instant, Result<Bytes>);

/// What has been done to it.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// How late watches are.
    late: Duration,
    /// Cuts of watches, in the middle of an object.
    cuts: u64,
    /// Answers to writes are lost.
    loses: bool,
}

/// A way to the API server.
pub(crate) struct ApiWay {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: AbortHandle,
}

/// What all connections share.
struct Shared {
    server: SocketAddr,
    connector: TlsConnector,
    state: watch::Receiver<State>,
}

impl ApiWay {
    /// A way to the API server at `server`, with a certificate of its authority.
    pub(crate) async fn to(server: SocketAddr, authority: &Authority) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::default());
        let acceptor = acceptor(authority)?;
        let shared = Arc::new(Shared { server, connector: connector(authority)?, state: seen });
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
                // Whatever goes wrong ends the connection, which is all that either side is to notice.
                connections.spawn(async move { serve(stream, acceptor, shared).await.ok() });
            }
        });
        Ok(Self { address, state, task: task.abort_handle() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Lets all that watches bring arrive so much later, from now on.
    pub(crate) fn late(&self, late: Duration) {
        self.state.send_modify(|state| state.late = late);
    }

    /// Cuts all watches, each in the middle of an object.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Whether writes are done and their answers lost.
    pub(crate) fn lose_answers(&self, loses: bool) {
        self.state.send_modify(|state| state.loses = loses);
    }
}

impl Drop for ApiWay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one connection, by one of its own.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let server = TcpStream::connect(shared.server).await?;
    server.set_nodelay(true)?;
    let server = shared.connector.connect(ServerName::from(shared.server.ip()), server).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(server)).await?;
    let connection = tokio::spawn(connection);
    let sender = Arc::new(Mutex::new(sender));
    let service = service_fn(move |request| {
        let (sender, shared) = (Arc::clone(&sender), Arc::clone(&shared));
        async move { answer(request, &sender, &shared).await }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    connection.abort();
    Ok(served?)
}

/// Passes one request on, and its answer back. An error ends the connection.
async fn answer(
    request: Request<Incoming>,
    sender: &Mutex<SendRequest<Incoming>>,
    shared: &Shared,
) -> Result<Response<Body>> {
    let writes = ![Method::GET, Method::HEAD].contains(request.method());
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|one| one.starts_with("watch=")));
    let mut sender = sender.lock().await;
    sender.ready().await?;
    let reply = sender.send_request(request).await?;
    // Reviews are no writes: who loses one has lost nothing.
    if writes && shared.state.borrow().loses {
        return Err(anyhow!("the answer is lost"));
    }
    if watches {
        return Ok(reply.map(|body| late(body, shared.state.clone())));
    }
    Ok(reply.map(|body| body.map_err(anyhow::Error::from).boxed_unsync()))
}

/// What becomes of a body.
enum Course {
    Open(mpsc::Receiver<Piece>, watch::Receiver<State>),
    Cut,
    Over,
}

/// A body whose pieces arrive later, to the middle of one.
fn late(mut body: Incoming, mut state: watch::Receiver<State>) -> Body {
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    tokio::spawn(async move {
        while let Some(frame) = body.frame().await {
            let data = frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(anyhow::Error::from);
            if sender.send((Instant::now(), data)).await.is_err() {
                return;
            }
        }
    });
    let cuts = state.borrow_and_update().cuts;
    let pieces = futures::stream::unfold(Course::Open(receiver, state), move |course| async move {
        let (mut receiver, mut state) = match course {
            Course::Open(receiver, state) => (receiver, state),
            // An error is no end: it ends the connection, once the half is on its way.
            Course::Cut => {
                tokio::time::sleep(HALF).await;
                return Some((Err(anyhow!("the watch is cut")), Course::Over));
            }
            Course::Over => return None,
        };
        let mut cut = state.clone();
        tokio::select! {
            piece = arrived(&mut receiver, &mut state) => Some((piece?.map(Frame::data), Course::Open(receiver, state))),
            _ = cut.wait_for(|state| state.cuts > cuts) => {
                Some((Ok(Frame::data(Bytes::from_static(b"{\"type\":\"MODIFIED\",\"obj"))), Course::Cut))
            }
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// The next piece, as soon as its time has come.
async fn arrived(receiver: &mut mpsc::Receiver<Piece>, state: &mut watch::Receiver<State>) -> Option<Result<Bytes>> {
    let (at, data) = receiver.recv().await?;
    loop {
        let due = at + state.borrow_and_update().late;
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => return Some(data),
            changed = state.changed() => if changed.is_err() { return Some(data) },
        }
    }
}

pub(super) fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let certified = authority.server(&["127.0.0.1"])?;
    let certificate = CertificateDer::from_pem_slice(certified.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).context("no certificate")?;
    Ok(Arc::new(config).into())
}

pub(super) fn connector(authority: &Authority) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}
