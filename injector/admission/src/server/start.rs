//! The start of the server on threads of its own, and its end.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use nudge_server::listener::{self, SocketOptions};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};

use super::AdmissionSettings;
use super::exchange::Exchange;
use super::listener::serve;
use crate::metrics::AdmissionMetrics;
use crate::webhooks::Webhooks;

/// The reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be listened on.
    #[error("can't listen on {address} for admission")]
    Listen {
        /// The address and port that the webhooks listen at.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The threads can't be started.
    #[error("can't start the threads for admission")]
    Threads(#[source] io::Error),
    /// The webhooks can't be created.
    #[error("can't make the webhooks")]
    Webhooks(#[source] Box<dyn Error + Send + Sync>),
    /// The thread ended before it listened.
    #[error("the thread for admission ended at once")]
    Ended,
}

/// The options of the socket. Beyond the backlog the API server's next connection is late by a second at least.
const SOCKET: SocketOptions = SocketOptions { backlog: 4096, send_buffer: None, receive_buffer: None, keepalive: None };

/// The running server; when dropped, it stops without waiting for requests.
#[derive(Debug)]
pub struct AdmissionServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl AdmissionServer {
    /// Starts to listen and answer. `webhooks` runs on the server's own runtime, and creates the clients of the
    /// webhooks there: a client that is created elsewhere would do its work there, and wait with that runtime.
    pub async fn start<E>(
        settings: AdmissionSettings,
        tls: Arc<ServerConfig>,
        metrics: AdmissionMetrics,
        webhooks: impl FnOnce() -> BoxFuture<'static, Result<Webhooks, E>> + Send + 'static,
    ) -> Result<Self, StartError>
    where
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listen = |source| StartError::Listen { address: settings.address, source };
        let listener = listener::bind(settings.address, &SOCKET).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopping) = watch::channel(false);
        let (started, result) = oneshot::channel();
        let (end_sender, ended) = oneshot::channel();
        let run = async move {
            let starting = async {
                let listener = TcpListener::from_std(listener).map_err(StartError::Threads)?;
                let webhooks = webhooks().await.map_err(|error| StartError::Webhooks(error.into()))?;
                Ok((listener, Exchange::new(webhooks, settings, metrics.clone())))
            };
            match starting.await {
                Ok((listener, exchange)) => {
                    if started.send(Ok(())).is_ok() {
                        serve(listener, tls, exchange, settings, metrics, stopping).await;
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name("admission".to_owned()).spawn(move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(settings.threads.max(1))
                .thread_name("admission-worker")
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(run);
                    runtime.shutdown_background();
                }
                Err(error) => tracing::error!(error = &error as &dyn Error, "can't start the threads for admission"),
            }
            let _ = end_sender.send(());
        });
        thread.map_err(StartError::Threads)?;
        result.await.map_err(|_| StartError::Ended)??;
        Ok(Self { address, stop, ended })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server ends by itself, as after a panic.
    pub async fn wait_for_end(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Stops accepting connections, and waits for the requests that are being answered as long as the settings allow.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // An error means that the thread has ended already.
        let _ = self.ended.await;
    }
}
