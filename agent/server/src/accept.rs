//! The accept loop: each connection gets a slot and a task of its own, whose panic ends that connection only.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nudge_protocol::backoff::Backoff;
use nudge_protocol::error_chain::chain;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::listener::Listen;
use crate::memory::Trimmer;
use crate::metrics::ConnectionMetrics;
use crate::slots::{Slot, Slots};

/// Pauses after failed accepts: without file descriptors, trying again at once would only burn the processor.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
/// How many accepted connections may wait for a slot; the kernel's queue keeps the rest.
const PARKED: usize = 64;

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The TLS handshake.
    #[error("TLS handshake failed")]
    Handshake(#[source] std::io::Error),
    /// HTTP.
    #[error("HTTP failed")]
    Http(#[from] hyper::Error),
    /// The client broke off, or took too long.
    #[error("the client broke off or was too slow")]
    Client,
}

/// A connection that has a slot.
#[derive(Debug)]
pub struct Connection<S> {
    /// The stream.
    pub stream: S,
    /// Its slot.
    pub slot: Slot,
    /// Whether the server stops.
    pub stopping: Stopping,
}

/// Resolves when the server stops.
#[derive(Clone, Debug, Default)]
pub struct Stopping(Arc<(AtomicBool, Notify)>);

impl Stopping {
    /// Waits until the server stops.
    pub async fn wait(&self) {
        let (stopped, notify) = &*self.0;
        // Made first, so that it can't miss the stop after the look.
        let notified = notify.notified();
        if !stopped.load(Ordering::SeqCst) {
            notified.await;
        }
    }

    fn stop(&self) {
        let (stopped, notify) = &*self.0;
        stopped.store(true, Ordering::SeqCst);
        notify.notify_waiters();
    }
}

/// Serves the connections of one listener.
pub trait Handler<S>: Send + Sync + 'static {
    /// The slots that a connection counts for.
    fn slots(&self, stream: &S, peer: IpAddr) -> &Slots;

    /// Serves a connection to its end.
    fn serve(&self, connection: Connection<S>) -> impl Future<Output = Result<(), ConnectionError>> + Send;
}

/// What an accept loop needs besides a listener and a handler.
#[derive(Debug)]
pub struct Server {
    /// The listener's name in the log.
    pub name: &'static str,
    /// Counts refused and failed connections.
    pub metrics: ConnectionMetrics,
    /// How long connections have to end on shutdown.
    pub drain: Duration,
    /// Returns memory after connections have ended.
    pub trimmer: Option<Trimmer>,
}

impl Server {
    /// Serves until `shutdown`. Then it closes the listener, waits for connections to end, and cuts those that are left.
    pub async fn run<L: Listen, H: Handler<L::Stream>>(
        self,
        listener: L,
        handler: Arc<H>,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self { name, metrics, drain, trimmer } = self;
        let stopping = Stopping::default();
        let parking = Arc::new(Semaphore::new(PARKED));
        let mut connections = JoinSet::new();
        let mut failures = 0;
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Ended ones are taken out, so that the set does not grow.
                Some(ended) = connections.join_next() => {
                    log_panic(name, &metrics, &ended);
                    trimmer.iter().for_each(Trimmer::plan);
                    continue;
                }
                () = &mut shutdown => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = name, %error, "accept failed; retrying");
                    failures += 1;
                    sleep(PAUSES.wait(failures)).await;
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
            let (handler, stopping, metrics) = (Arc::clone(&handler), stopping.clone(), metrics.clone());
            connections.spawn(async move {
                if slot.is_none() {
                    slot = Box::pin(slots.wait(peer)).await;
                    drop(parked);
                }
                let Some(slot) = slot else {
                    metrics.refused.inc();
                    return;
                };
                let connection = Connection { stream, slot: slot.clone(), stopping };
                let served = tokio::select! {
                    biased;
                    () = slot.cut() => return,
                    served = handler.serve(connection) => served,
                };
                if let Err(error) = served {
                    metrics.failed.inc();
                    tracing::debug!(listener = name, error = chain(&error), "connection failed");
                }
            });
        }
        // A client that connects again must reach another replica.
        drop(listener);
        stopping.stop();
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                log_panic(name, &metrics, &ended);
            }
        };
        if timeout(drain, all_ended).await.is_err() {
            tracing::warn!(listener = name, left = connections.len(), "drain timed out; connections were cut");
        }
    }
}

fn log_panic(listener: &str, metrics: &ConnectionMetrics, ended: &Result<(), JoinError>) {
    if ended.is_err() {
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
    use crate::slots::Bounds;

    const SOON: Duration = Duration::from_secs(10);

    /// Sends back each byte, panics at `p`, never ends at `h`, and ends after the next byte once the server stops.
    struct Echo(Slots);

    impl Handler<TcpStream> for Echo {
        fn slots(&self, _: &TcpStream, _: IpAddr) -> &Slots {
            &self.0
        }

        async fn serve(&self, connection: Connection<TcpStream>) -> Result<(), ConnectionError> {
            let Connection { mut stream, stopping, .. } = connection;
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                assert_ne!(byte[0], b'p', "as the test expects");
                match byte[0] {
                    b'h' => std::future::pending().await,
                    b's' => stopping.wait().await,
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
        served: JoinHandle<()>,
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
            let served = tokio::spawn(server.run(listener, echo, shutdown));
            Self { address, metrics, stop, served }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }
    }

    /// What comes back for a byte; `None` where the connection ends.
    async fn echo(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        let _ = stream.write_all(&[byte]).await;
        timeout(SOON, stream.read_u8()).await.unwrap().ok()
    }

    #[tokio::test]
    async fn a_panic_ends_its_connection_only() {
        let server = TestServer::start(Bounds::shared(4), SOON).await;
        let (mut one, mut other) = (server.connect().await, server.connect().await);
        assert_eq!(echo(&mut other, b'x').await, Some(b'x'));
        assert_eq!(echo(&mut one, b'p').await, None);
        assert_eq!(echo(&mut other, b'y').await, Some(b'y'));
        assert_eq!((server.metrics.open.get(), server.metrics.failed.get()), (1, 1));
    }

    #[tokio::test]
    async fn a_connection_beyond_the_bound_waits_for_a_slot_or_cuts_another() {
        let waits = Bounds { most: 1, shares: false, grace: SOON, wait: SOON, ..Bounds::shared(1) };
        let server = TestServer::start(waits, SOON).await;
        let mut one = server.connect().await;
        assert_eq!(echo(&mut one, b'x').await, Some(b'x'));
        let mut two = server.connect().await;
        two.write_all(b"y").await.unwrap();
        assert_eq!(server.metrics.open.get(), 1);
        drop(one);
        assert_eq!(timeout(SOON, two.read_u8()).await.unwrap().unwrap(), b'y');
        assert_eq!(server.metrics.refused.get(), 0);

        let server = TestServer::start(Bounds::shared(1), SOON).await;
        let mut one = server.connect().await;
        assert_eq!(echo(&mut one, b'x').await, Some(b'x'));
        let mut two = server.connect().await;
        assert_eq!(echo(&mut two, b'y').await, Some(b'y'));
        assert_eq!(echo(&mut one, b'z').await, None);
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
        let TestServer { address, stop, served, .. } = server;
        drop(stop);
        assert_eq!(timeout(SOON, ends.read_u8()).await.unwrap().unwrap(), b's');
        timeout(SOON, served).await.unwrap().unwrap();
        assert!(timeout(SOON, hangs.read_u8()).await.unwrap().is_err());
        assert!(TcpStream::connect(address).await.is_err());
    }
}
