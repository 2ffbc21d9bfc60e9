//! Health over a UNIX socket, for probes that run in the container itself: `nudge-injector health` asks the serving
//! process. Clients on the network can't take the slots of probes.
//!
//! The question is `live` or `ready`, the answer is `ok` or a message, and then the connection ends.

use std::fs;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nudge_server::accept::{Connection, ConnectionError, Handler, Server};
use nudge_server::metrics::ConnectionMetrics;
use nudge_server::slots::{Bounds, Sharing, Slots};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::health::Health;

/// The maximum number of connections. Probes ask one after another.
const MAX_CONNECTIONS: usize = 8;
/// The maximum duration of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum wait for an answer. It is less than the timeout of a probe, so that the probe can say why there was no
/// answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum bytes of a question or an answer.
const MAX_MESSAGE_BYTES: u64 = 1024;
/// The answer if the check succeeds.
const OK: &str = "ok";

/// A question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HealthQuestion {
    /// Whether the process works; if not, it should be restarted.
    Live,
    /// Whether agents and webhooks can use this replica.
    Ready,
}

impl HealthQuestion {
    const ALL: [Self; 2] = [Self::Live, Self::Ready];

    fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ready => "ready",
        }
    }
}

/// The settings of `nudge-injector health`.
#[derive(Clone, Debug, Args)]
pub struct HealthSettings {
    /// The question to ask.
    #[arg(value_enum, default_value = "live")]
    pub question: HealthQuestion,
    /// The socket of the process that serves.
    #[arg(long, env = "NUDGE_HEALTH_SOCKET", value_name = "PATH")]
    pub health_socket: PathBuf,
}

/// The reason why the answer is not `ok`.
#[derive(Debug, thiserror::Error)]
pub(super) enum HealthError {
    /// The check failed.
    #[error("not {}: {message}", question.as_str())]
    Unhealthy { question: HealthQuestion, message: String },
    /// Nothing listens at the socket.
    #[error("nothing answers at {}: nudge-injector serve does not run with this --health-socket, or is still starting", path.display())]
    Absent { path: PathBuf, source: io::Error },
    /// The process did not answer in time.
    #[error("no answer within {} s at {}", ANSWER_TIMEOUT.as_secs(), path.display())]
    Silent { path: PathBuf },
}

/// Asks the serving process.
pub(super) fn ask(settings: &HealthSettings) -> Result<(), HealthError> {
    let HealthSettings { question, health_socket: path } = settings;
    let absent = |source| HealthError::Absent { path: path.clone(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(absent)?;
    let result = runtime.block_on(async { timeout(ANSWER_TIMEOUT, request_answer(path, *question)).await });
    let answer = result.map_err(|_| HealthError::Silent { path: path.clone() })?.map_err(absent)?;
    if answer == OK { Ok(()) } else { Err(HealthError::Unhealthy { question: *question, message: answer }) }
}

async fn request_answer(path: &Path, question: HealthQuestion) -> io::Result<String> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(question.as_str().as_bytes()).await?;
    stream.shutdown().await?;
    let mut text = String::new();
    stream.take(MAX_MESSAGE_BYTES).read_to_string(&mut text).await?;
    // A process that ends meanwhile sends no text.
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(text) }
}

/// Listens at `path`. A process that has ended may have left its socket there.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Serves forever.
pub(super) async fn serve(listener: UnixListener, health: Arc<Health>) {
    let metrics = ConnectionMetrics::default();
    let bounds = Bounds {
        sharing: Sharing::None,
        grace: CONNECTION_TIMEOUT,
        slot_wait: ANSWER_TIMEOUT,
        ..Bounds::shared(MAX_CONNECTIONS)
    };
    let server = Server { name: "health socket", metrics: metrics.clone(), drain: Duration::ZERO, trimmer: None };
    let probes = Probes { slots: Slots::new(bounds, metrics), health };
    server.run(listener, Arc::new(probes), pending()).await;
}

struct Probes {
    slots: Slots,
    health: Arc<Health>,
}

impl Handler<UnixStream> for Probes {
    fn slots(&self, _: &UnixStream, _: IpAddr) -> &Slots {
        &self.slots
    }

    async fn serve(&self, connection: Connection<UnixStream>) -> Result<(), ConnectionError> {
        let result = timeout(CONNECTION_TIMEOUT, reply(connection.stream, &self.health)).await;
        result.ok().and_then(Result::ok).ok_or(ConnectionError::Client)
    }
}

async fn reply(mut stream: UnixStream, health: &Health) -> io::Result<()> {
    let mut text = String::new();
    (&mut stream).take(MAX_MESSAGE_BYTES).read_to_string(&mut text).await?;
    let answer = match HealthQuestion::ALL.into_iter().find(|question| question.as_str() == text) {
        Some(HealthQuestion::Live) => (health.live)(),
        Some(HealthQuestion::Ready) => (health.ready)(),
        None => Err("no such question; ask live or ready".to_owned()),
    };
    stream.write_all(answer.err().as_deref().unwrap_or(OK).as_bytes()).await
}

#[cfg(test)]
mod tests {
    use parking_lot::RwLock;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::cli::health::Refresh;

    fn health() -> Arc<Health> {
        Arc::new(Health {
            live: Box::new(|| Ok(())),
            ready: Box::new(|| Err("pods are not listed yet".to_owned())),
            refresh: Refresh::new(|| ()),
            registry: RwLock::new(Registry::default()),
        })
    }

    async fn asked(path: &Path, question: HealthQuestion) -> Result<(), HealthError> {
        let settings = HealthSettings { question, health_socket: path.to_owned() };
        tokio::task::spawn_blocking(move || ask(&settings)).await.unwrap()
    }

    #[tokio::test]
    async fn a_probe_gets_ok_or_the_reason_or_finds_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let said = asked(&path, HealthQuestion::Live).await.unwrap_err();
        assert!(matches!(&said, HealthError::Absent { .. }), "{said}");
        let first = tokio::spawn(serve(bind(&path).unwrap(), health()));
        asked(&path, HealthQuestion::Live).await.unwrap();
        let said = asked(&path, HealthQuestion::Ready).await.unwrap_err();
        assert_eq!(said.to_string(), "not ready: pods are not listed yet");
        // A killed process leaves its socket, which the next one replaces.
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled() && path.exists());
        assert!(asked(&path, HealthQuestion::Live).await.is_err());
        let second = tokio::spawn(serve(bind(&path).unwrap(), health()));
        asked(&path, HealthQuestion::Live).await.unwrap();
        second.abort();
    }

    #[tokio::test]
    async fn silent_clients_keep_no_probe_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let serving = tokio::spawn(serve(bind(&path).unwrap(), health()));
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        asked(&path, HealthQuestion::Live).await.unwrap();
        serving.abort();
    }

    #[tokio::test]
    async fn a_process_that_does_not_answer_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let _listener = bind(&path).unwrap();
        let said = asked(&path, HealthQuestion::Live).await.unwrap_err();
        assert!(matches!(said, HealthError::Silent { .. }), "{said}");
    }

    #[tokio::test]
    async fn a_folder_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(bind(folder.path()).is_err() && folder.path().exists());
    }
}
