//! The accept loop: each connection gets a slot and a task of its own, whose panic ends that connection only.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::listener::Listen;
use crate::memory::Trimmer;
use crate::metrics::ConnectionMetrics;
use crate::slots::{Slot, Slots};

/// The pauses after failed accepts: without file descriptors, trying again at once would only burn the processor.
const ACCEPT_BACKOFF: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
/// The maximum number of accepted connections that wait for a slot; the kernel's queue keeps the rest.
const MAX_PARKED_CONNECTIONS: usize = 64;

/// The reason why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The TLS handshake failed.
    #[error("TLS handshake failed")]
    Handshake(#[source] std::io::Error),
    /// The exchange over HTTP failed.
    #[error("HTTP failed")]
    Http(#[from] hyper::Error),
    /// The client broke off, or took too long.
    #[error("the client broke off or was too slow")]
    Client,
}

/// A connection that has a slot.
#[derive(Debug)]
pub struct Connection<S> {
    /// The stream between the peer and the server.
    pub stream: S,
    /// The connection's slot.
    pub slot: Slot,
    /// The signal that the server stops.
    pub stop_signal: StopSignal,
}

/// The signal that the server stops.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Waits until the server stops.
    pub async fn wait(&self) {
        // A server that is gone has stopped, too.
        let _ = self.0.clone().wait_for(|stopped| *stopped).await;
    }
}

/// A handler of the connections of one listener.
pub trait Handler<S>: Send + Sync + 'static {
    /// Returns the slots that a connection counts for.
    fn slots(&self, stream: &S, peer: IpAddr) -> &Slots;

    /// Serves a connection to its end.
    fn serve(&self, connection: Connection<S>) -> impl Future<Output = Result<(), ConnectionError>> + Send;
}

/// The settings of an accept loop.
#[derive(Debug)]
pub struct Server {
    /// The listener's name in the log.
    pub name: &'static str,
    /// The counters of refused and failed connections.
    pub metrics: ConnectionMetrics,
    /// The time that connections have to end on shutdown.
    pub drain: Duration,
    /// The trimmer that returns memory after connections have ended.
    pub trimmer: Option<Trimmer>,
}

impl Server {
    /// Serves until `shutdown`. Then it closes the listener, waits for connections to end, and cuts those that are
    /// left.
    pub async fn run<L: Listen, H: Handler<L::Stream>>(
        self,
        listener: L,
        handler: Arc<H>,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self { name, metrics, drain, trimmer } = self;
        let (stop, stopped) = watch::channel(false);
        let stop_signal = StopSignal(stopped);
        let parking = Arc::new(Semaphore::new(MAX_PARKED_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut failures = 0;
        tokio::pin!(shutdown);
        loop {
            let connection = tokio::select! {
                connection = listener.accept() => connection,
                // Tasks that have ended are taken out, so that the set does not grow.
                Some(result) = connections.join_next() => {
                    log_panic(name, &metrics, &result);
                    trimmer.iter().for_each(Trimmer::plan);
                    continue;
                }
                () = &mut shutdown => break,
            };
            let (stream, peer) = match connection {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::warn!(listener = name, %error, "accept failed; retrying");
                    failures += 1;
                    sleep(ACCEPT_BACKOFF.wait(failures)).await;
                    continue;
                }
            };
            failures = 0;
            let slots = handler.slots(&stream, peer).clone();
            let mut slot = slots.take(peer, Instant::now());
            let mut parked = None;
            if slot.is_none() {
                if !slots.can_wait() {
                    metrics.refused.inc();
                    continue;
                }
                parked = Arc::clone(&parking).acquire_owned().await.ok();
            }
            let (handler, stop_signal, metrics) = (Arc::clone(&handler), stop_signal.clone(), metrics.clone());
            connections.spawn(async move {
                if slot.is_none() {
                    slot = Box::pin(slots.wait(peer)).await;
                    drop(parked);
                }
                let Some(slot) = slot else {
                    metrics.refused.inc();
                    return;
                };
                let connection = Connection { stream, slot: slot.clone(), stop_signal };
                let result = tokio::select! {
                    biased;
                    () = slot.wait_until_cut() => return,
                    result = handler.serve(connection) => result,
                };
                if let Err(error) = result {
                    metrics.failed.inc();
                    tracing::debug!(listener = name, error = chain(&error), "connection failed");
                }
            });
        }
        // A client that connects again must reach another replica.
        drop(listener);
        stop.send_replace(true);
        let all_ended = async {
            while let Some(result) = connections.join_next().await {
                log_panic(name, &metrics, &result);
            }
        };
        if timeout(drain, all_ended).await.is_err() {
            tracing::warn!(listener = name, left = connections.len(), "drain timed out; connections were cut");
        }
    }
}

fn log_panic(listener: &str, metrics: &ConnectionMetrics, result: &Result<(), JoinError>) {
    if result.is_err() {
        metrics.failed.inc();
        tracing::error!(listener, "connection handler panicked; the connection was closed");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::slots::{Bounds, Sharing};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A handler that sends back each byte, panics at `p`, never ends at `h`, and ends after the next byte once the
    /// server stops.
    struct Echo(Slots);

    impl Handler<TcpStream> for Echo {
        fn slots(&self, _: &TcpStream, _: IpAddr) -> &Slots {
            &self.0
        }

        async fn serve(&self, connection: Connection<TcpStream>) -> Result<(), ConnectionError> {
            let Connection { mut stream, stop_signal, .. } = connection;
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                assert_ne!(byte[0], b'p', "as the test expects");
                match byte[0] {
                    b'h' => std::future::pending().await,
                    b's' => stop_signal.wait().await,
                    _ => {}
                }
                stream.write_all(&byte).await.map_err(|_| ConnectionError::Client)?;
                if byte[0] == b's' {
                    return Ok(());
                }
            }
            Err(ConnectionError::Client)
        }
    }

    struct TestServer {
        address: SocketAddr,
        metrics: ConnectionMetrics,
        stop: oneshot::Sender<()>,
        task: JoinHandle<()>,
    }

    impl TestServer {
        async fn start(bounds: Bounds, drain: Duration) -> Self {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let metrics = ConnectionMetrics::default();
            let server = Server { name: "echo", metrics: metrics.clone(), drain, trimmer: None };
            let (stop, stopped) = oneshot::channel::<()>();
            let shutdown = async {
                let _ = stopped.await;
            };
            let echo = Arc::new(Echo(Slots::new(bounds, metrics.clone())));
            let task = tokio::spawn(server.run(listener, echo, shutdown));
            Self { address, metrics, stop, task }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }
    }

    /// Returns the byte that comes back; `None` if the connection ends.
    async fn echo(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        let _ = stream.write_all(&[byte]).await;
        timeout(TIMEOUT, stream.read_u8()).await.unwrap().ok()
    }

    #[tokio::test]
    async fn a_panic_ends_its_connection_only() {
        let server = TestServer::start(Bounds::shared(4), TIMEOUT).await;
        let (mut first, mut other) = (server.connect().await, server.connect().await);
        assert_eq!(echo(&mut other, b'x').await, Some(b'x'));
        assert_eq!(echo(&mut first, b'p').await, None);
        assert_eq!(echo(&mut other, b'y').await, Some(b'y'));
        assert_eq!((server.metrics.open.get(), server.metrics.failed.get()), (1, 1));
    }

    #[tokio::test]
    async fn a_connection_beyond_the_bound_waits_for_a_slot_or_cuts_another() {
        let waits = Bounds { sharing: Sharing::None, grace: TIMEOUT, slot_wait: TIMEOUT, ..Bounds::shared(1) };
        let server = TestServer::start(waits, TIMEOUT).await;
        let mut first = server.connect().await;
        assert_eq!(echo(&mut first, b'x').await, Some(b'x'));
        let mut second = server.connect().await;
        second.write_all(b"y").await.unwrap();
        assert_eq!(server.metrics.open.get(), 1);
        drop(first);
        assert_eq!(timeout(TIMEOUT, second.read_u8()).await.unwrap().unwrap(), b'y');
        assert_eq!(server.metrics.refused.get(), 0);

        let server = TestServer::start(Bounds::shared(1), TIMEOUT).await;
        let mut first = server.connect().await;
        assert_eq!(echo(&mut first, b'x').await, Some(b'x'));
        let mut second = server.connect().await;
        assert_eq!(echo(&mut second, b'y').await, Some(b'y'));
        assert_eq!(echo(&mut first, b'z').await, None);
        assert_eq!((server.metrics.open.get(), server.metrics.refused.get(), server.metrics.accepted.get()), (1, 1, 2));
    }

    #[tokio::test]
    async fn on_shutdown_connections_have_a_while_to_end() {
        let server = TestServer::start(Bounds::shared(4), Duration::from_millis(300)).await;
        let (mut ends, mut hangs) = (server.connect().await, server.connect().await);
        assert_eq!(echo(&mut ends, b'x').await, Some(b'x'));
        assert_eq!(echo(&mut hangs, b'x').await, Some(b'x'));
        ends.write_all(b"s").await.unwrap();
        hangs.write_all(b"h").await.unwrap();
        let TestServer { address, stop, task, .. } = server;
        drop(stop);
        assert_eq!(timeout(TIMEOUT, ends.read_u8()).await.unwrap().unwrap(), b's');
        timeout(TIMEOUT, task).await.unwrap().unwrap();
        assert!(timeout(TIMEOUT, hangs.read_u8()).await.unwrap().is_err());
        assert!(TcpStream::connect(address).await.is_err());
    }
}
