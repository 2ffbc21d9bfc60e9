//! A proxy between one process and the API server. It ends TLS on both sides, so it knows what it carries: watches can
//! be late or cut in the middle of an object, and the answers to writes can be lost after the writes were done.

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

/// The time until the connection ends after half of an object was sent.
const HALF_OBJECT_DELAY: Duration = Duration::from_millis(50);
/// The maximum number of pieces of one watch that wait: more than a watch of the fleet has in a minute.
const MAX_WAITING_PIECES: usize = 10_000;

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;
/// A piece of a body, and when it was read.
type Piece = (Instant, Result<Bytes>);

/// The faults of a proxy.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// By how much watches are delayed.
    delay: Duration,
    /// The number of times that watches were cut, in the middle of an object.
    cuts: u64,
    /// Whether answers to writes are lost.
    loses_answers: bool,
}

/// A proxy before the API server.
pub(crate) struct ApiProxy {
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

impl ApiProxy {
    /// Starts a proxy before the API server at `server`, with a certificate of its authority.
    pub(crate) async fn start(server: SocketAddr, authority: &Authority) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (state, followed) = watch::channel(State::default());
        let acceptor = acceptor(authority)?;
        let shared = Arc::new(Shared { server, connector: connector(authority)?, state: followed });
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

    /// Delays all that watches bring from now on.
    pub(crate) fn delay_watches(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Cuts all watches, each in the middle of an object.
    pub(crate) fn cut_watches(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Sets whether the answers to writes are lost after the writes were done.
    pub(crate) fn set_losing_answers(&self, loses_answers: bool) {
        self.state.send_modify(|state| state.loses_answers = loses_answers);
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one connection, by a connection of its own to the server.
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
        async move { forward(request, &sender, &shared).await }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    connection.abort();
    Ok(served?)
}

/// Passes one request on, and its answer back. An error ends the connection.
async fn forward(
    request: Request<Incoming>,
    sender: &Mutex<SendRequest<Incoming>>,
    shared: &Shared,
) -> Result<Response<Body>> {
    let writes = ![Method::GET, Method::HEAD].contains(request.method());
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    let mut sender = sender.lock().await;
    sender.ready().await?;
    let reply = sender.send_request(request).await?;
    if writes && shared.state.borrow().loses_answers {
        return Err(anyhow!("the answer is lost"));
    }
    if watches {
        return Ok(reply.map(|body| delay_body(body, shared.state.clone())));
    }
    Ok(reply.map(|body| body.map_err(anyhow::Error::from).boxed_unsync()))
}

/// The state of a body that is passed on.
enum PassedBody {
    Open(mpsc::Receiver<Piece>, watch::Receiver<State>),
    Cut,
    Over,
}

/// Returns the body with delayed pieces, which ends in the middle of one when watches are cut.
fn delay_body(mut body: Incoming, mut state: watch::Receiver<State>) -> Body {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_PIECES);
    tokio::spawn(async move {
        while let Some(frame) = body.frame().await {
            let data = frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(anyhow::Error::from);
            if sender.send((Instant::now(), data)).await.is_err() {
                return;
            }
        }
    });
    let cuts = state.borrow_and_update().cuts;
    let pieces = futures::stream::unfold(PassedBody::Open(receiver, state), move |passed| async move {
        let (mut receiver, mut state) = match passed {
            PassedBody::Open(receiver, state) => (receiver, state),
            // An error ends the connection, once the half is on its way.
            PassedBody::Cut => {
                tokio::time::sleep(HALF_OBJECT_DELAY).await;
                return Some((Err(anyhow!("the watch is cut")), PassedBody::Over));
            }
            PassedBody::Over => return None,
        };
        let mut cut = state.clone();
        tokio::select! {
            piece = next_piece(&mut receiver, &mut state) => Some((piece?.map(Frame::data), PassedBody::Open(receiver, state))),
            _ = cut.wait_for(|state| state.cuts > cuts) => {
                Some((Ok(Frame::data(Bytes::from_static(b"{\"type\":\"MODIFIED\",\"obj"))), PassedBody::Cut))
            }
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// Returns the next piece, as soon as its delay is over.
async fn next_piece(receiver: &mut mpsc::Receiver<Piece>, state: &mut watch::Receiver<State>) -> Option<Result<Bytes>> {
    let (at, data) = receiver.recv().await?;
    loop {
        let due = at + state.borrow_and_update().delay;
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
