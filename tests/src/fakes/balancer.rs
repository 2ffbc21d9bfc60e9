//! A stand-in for a Service: one address with the present replicas behind it. Each new connection goes to the next
//! replica.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Forwards connections until it is dropped; they end with it.
pub struct Balancer {
    /// The address at which the balancer listens.
    pub address: SocketAddr,
    backends: Arc<Mutex<Vec<SocketAddr>>>,
    accepted: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Balancer {
    /// Returns a balancer with these backends, on a free port.
    pub async fn start(backends: &[SocketAddr]) -> Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), backends).await
    }

    /// Returns a balancer with these backends at an address.
    pub async fn start_at(address: SocketAddr, backends: &[SocketAddr]) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let backends = Arc::new(Mutex::new(backends.to_vec()));
        let (shared, accepted) = (Arc::clone(&backends), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let turn = count.fetch_add(1, Ordering::Relaxed);
                let backends = shared.lock().clone();
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    // As kube-proxy does, but for a backend that refuses the next one is tried at once.
                    for offset in 0..backends.len() {
                        if let Ok(mut server) = TcpStream::connect(backends[(turn + offset) % backends.len()]).await {
                            let _ = client.set_nodelay(true);
                            let _ = server.set_nodelay(true);
                            let _ = copy_bidirectional(&mut client, &mut server).await;
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { address, backends, accepted, task: task.abort_handle() })
    }

    /// Sends new connections to these from now on.
    pub fn set(&self, backends: &[SocketAddr]) {
        *self.backends.lock() = backends.to_vec();
    }

    /// Returns how many connections it has taken.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
