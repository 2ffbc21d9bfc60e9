//! Takes the connections of agents: within bounds, each in a task of its own whose panic ends that connection only.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use nudge_server::slots::Slots;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Hub, connection, memory};

/// Connections that the kernel keeps until they are taken.
const BACKLOG: u32 = 4096;
/// How much of a reply the kernel takes from us before the client does, in bytes; it doubles that for itself (socket(7)).
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// After which silence the kernel asks whether the other side is still there, and how often without an answer.
const KEEPALIVE: Duration = Duration::from_mins(1);
const PROBES: u32 = 4;
/// How long a reply that is being written has on shutdown.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Listens on `address`.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted hub takes its port again at once (socket(7)).
    socket.set_reuseaddr(true)?;
    // Connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves agents until `shutdown`, then sends them away one after the other and returns.
pub async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, hub: Arc<Hub>, shutdown: impl Future<Output = ()>) {
    let slots = Slots::new(hub.settings.connections, hub.metrics.connections());
    let (mut tasks, mut connections) = (JoinSet::new(), JoinSet::new());
    tasks.spawn(Arc::clone(&hub).chores());
    tasks.spawn(Arc::clone(&hub).write_conditions());
    tokio::pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            // Ended ones are taken out, so that the set does not grow.
            Some(_) = connections.join_next() => continue,
            // They never end by themselves; a panic goes on to the task that runs the hub.
            Some(ended) = tasks.join_next() => match ended {
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                _ => return,
            },
            () = &mut shutdown => break,
        };
        let Some(place) = slots.take(peer.ip(), std::time::Instant::now()) else {
            hub.metrics.connection_refused();
            continue;
        };
        let (tls, hub) = (Arc::clone(&tls), Arc::clone(&hub));
        connections.spawn(async move {
            let _trim = memory::TrimAfter(&hub.trimmer);
            // Its place is given back also when an answer panics: this connection is over, and all others go on.
            match place.keep(connection::serve(stream, tls, &hub, &place)).await {
                Some(Ok(())) => {}
                Some(Err(connection::Faulty)) => hub.metrics.connection_failed(),
                None => hub.metrics.connection_refused(),
            }
        });
    }
    // Nobody may connect to a replica that only sends away.
    drop(listener);
    hub.drain();
    let ended =
        timeout(hub.settings.drain + LAST_WRITES, async { while connections.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tracing::info!(left = connections.len(), "agents are cut off");
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let began = Instant::now();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let probe = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4).with_retries(PROBES);
                // Without it a connection whose other side is lost ends with its age.
                let _ = SockRef::from(&stream).set_tcp_keepalive(&probe);
                return (stream, peer);
            }
            Err(error) => {
                // Such as no file descriptor being left: trying at once again would only burn the processor.
                tracing::warn!(%error, "can't take connections for a moment");
                sleep(Duration::from_millis(10).max(began.elapsed() / 2).min(Duration::from_secs(1))).await;
            }
        }
    }
}
