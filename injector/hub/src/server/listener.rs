//! Listens for agents, and serves them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use nudge_server::accept::{Connection, ConnectionError, Handler, Server};
use nudge_server::listener::{self, SocketOptions};
use nudge_server::memory::Trimmer;
use nudge_server::shares::Shares;
use nudge_server::slots::{Bounds, Slots};
use nudge_server::tls::{Tls, Turns};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::connection;
use crate::hub::Hub;

/// The options of sockets. Without the keepalive, the connection of a lost agent would only end because of its age.
const SOCKET_OPTIONS: SocketOptions = SocketOptions {
    backlog: 4096,
    send_buffer: Some(128 * 1024),
    receive_buffer: None,
    keepalive: Some(Duration::from_mins(1)),
};
/// The timeout on shutdown of a reply that is being written.
const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after a connection's end until freed memory is returned, so that a storm costs few trims.
const TRIM_DELAY: Duration = Duration::from_secs(5);

/// Listens on `address`. Needs a tokio runtime.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::from_std(listener::bind(address, &SOCKET_OPTIONS)?)
}

/// Serves agents until `shutdown`, then sends them away one after the other and returns.
pub async fn serve(listener: TcpListener, tls: Arc<ServerConfig>, hub: Arc<Hub>, shutdown: impl Future<Output = ()>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&hub).maintain());
    let conditions = Arc::clone(&hub.conditions);
    tasks.spawn(async move { conditions.write_all().await });
    let settings = &hub.settings;
    let metrics = hub.metrics.connections().clone();
    let server = Server {
        name: "hub",
        metrics: metrics.clone(),
        drain: settings.drain_period + LAST_WRITES_TIMEOUT,
        trimmer: Some(Trimmer::new(TRIM_DELAY)),
    };
    let tls = Tls {
        config: tls,
        handshake_timeout: settings.handshake_timeout,
        stall: settings.write_timeout,
        turns: Some(Turns { shares: Shares::new(settings.max_handshakes, 1), wait: settings.turn_timeout }),
        plain_http: "this port speaks HTTPS to agents",
    };
    let agents =
        Agents { slots: Slots::new(Bounds::shared(settings.max_connections), metrics), tls, hub: Arc::clone(&hub) };
    let mut task_result = None;
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            // A task ends only by a panic. First agents are sent away; then the panic passes to the task that runs the
            // hub.
            result = tasks.join_next() => task_result = result,
        }
        hub.drain.begin();
    };
    server.run(listener, Arc::new(agents), shutdown).await;
    if let Some(Err(error)) = task_result
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
}

struct Agents {
    slots: Slots,
    tls: Tls,
    hub: Arc<Hub>,
}

impl Handler<TcpStream> for Agents {
    fn slots(&self, _: &TcpStream, _: IpAddr) -> &Slots {
        &self.slots
    }

    async fn serve(&self, connection: Connection<TcpStream>) -> Result<(), ConnectionError> {
        connection::serve(connection, &self.tls, &self.hub).await
    }
}
