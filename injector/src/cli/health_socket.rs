//! Health over a UNIX socket, for probes that run in the container itself: `nudge-injector health` asks the serving
//! process. Clients on the network can't take the slots of probes.
//!
//! The questions are requests of `/healthz` or `/readyz` by HTTP.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nudge_server::slots::{Bounds, Sharing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::health::{self, Health};

/// The maximum number of connections. Probes ask one after another.
const MAX_CONNECTIONS: usize = 8;
/// The maximum duration of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum wait for an answer. It is less than the timeout of a probe, so that the probe can say why there was no
/// answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum bytes of an answer, with its head.
const MAX_ANSWER_BYTES: u64 = 2048;

/// A question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HealthQuestion {
    /// Whether the process works; if not, it should be restarted.
    Live,
    /// Whether agents and webhooks can use this replica.
    Ready,
}

impl HealthQuestion {
    /// Returns the name of the question, and its path.
    fn name_and_path(self) -> (&'static str, &'static str) {
        match self {
            Self::Live => ("live", "/healthz"),
            Self::Ready => ("ready", "/readyz"),
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
    #[error("not {}: {message}", question.name_and_path().0)]
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
    answer.map_err(|message| HealthError::Unhealthy { question: *question, message })
}

async fn request_answer(path: &Path, question: HealthQuestion) -> io::Result<Result<(), String>> {
    let mut stream = UnixStream::connect(path).await?;
    let (_, asked) = question.name_and_path();
    stream.write_all(format!("GET {asked} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut text).await?;
    // A process that ends meanwhile sends no text.
    let (head, message) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let is_ok = head.split(' ').nth(1) == Some("200");
    Ok(if is_ok { Ok(()) } else { Err(message.trim_end().to_owned()) })
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
    let bounds = Bounds {
        sharing: Sharing::None,
        grace: CONNECTION_TIMEOUT,
        slot_wait: ANSWER_TIMEOUT,
        ..Bounds::shared(MAX_CONNECTIONS)
    };
    health::serve("health socket", listener, bounds, CONNECTION_TIMEOUT, health).await;
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
