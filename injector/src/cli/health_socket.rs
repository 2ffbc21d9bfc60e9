//! Health over a UNIX socket, for probes that run in the container itself: `nudge-injector health` asks the process that serves. Nobody on the
//! network can take its places.
//!
//! The question is a word, the answer `ok` or the sentence that says why not; then the connection ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::health::Health;

/// Most questions at a time; probes ask one after another.
const QUESTIONS: usize = 8;
/// How long whoever asks may take.
const SLOWEST: Duration = Duration::from_secs(1);
/// How long an answer is waited for: less than a probe may take, so that it is known why there was none.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest question and answer, in bytes.
const LONGEST: u64 = 1024;
const YES: &str = "ok";

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// Whether the process should go on; no means that a restart would mend it.
    Live,
    /// Whether agents and webhooks should come here.
    Ready,
}

impl Question {
    const ALL: [Self; 2] = [Self::Live, Self::Ready];

    fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ready => "ready",
        }
    }
}

/// What `nudge-injector health` is told.
#[derive(Clone, Debug, Args)]
pub struct HealthSettings {
    /// What is asked.
    #[arg(value_enum, default_value = "live")]
    pub question: Question,
    /// The socket of the process that serves.
    #[arg(long, env = "NUDGE_HEALTH_SOCKET", value_name = "PATH")]
    pub health_socket: PathBuf,
}

/// Why the answer is not yes.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWell {
    /// The process says so.
    #[error("not {}: {message}", question.word())]
    Said { question: Question, message: String },
    /// Nothing listens.
    #[error("nothing answers at {}: nudge-injector serve does not run with this --health-socket, or is still starting", path.display())]
    Absent { path: PathBuf, source: io::Error },
    /// The process does not get to it.
    #[error("no answer within {} s at {}", PATIENCE.as_secs(), path.display())]
    Silent { path: PathBuf },
}

/// Asks the process that serves.
pub(super) fn ask(settings: &HealthSettings) -> Result<(), NotWell> {
    let HealthSettings { question, health_socket: path } = settings;
    let absent = |source| NotWell::Absent { path: path.clone(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(absent)?;
    let answered = runtime.block_on(async { timeout(PATIENCE, answer(path, *question)).await });
    let answer = answered.map_err(|_| NotWell::Silent { path: path.clone() })?.map_err(absent)?;
    if answer == YES { Ok(()) } else { Err(NotWell::Said { question: *question, message: answer }) }
}

async fn answer(path: &Path, question: Question) -> io::Result<String> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(question.word().as_bytes()).await?;
    stream.shutdown().await?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text).await?;
    // A process that ends in the middle says nothing.
    if text.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(text) }
}

/// Listens at `path`, in place of a process that has ended there.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Answers for ever.
pub(super) async fn serve(listener: UnixListener, health: Arc<Health>) {
    let questions = Arc::new(Semaphore::new(QUESTIONS));
    loop {
        let Ok(place) = Arc::clone(&questions).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let health = Arc::clone(&health);
                tokio::spawn(async move {
                    let _ = timeout(SLOWEST, reply(stream, &health)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a question for health can't be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn reply(mut stream: UnixStream, health: &Health) -> io::Result<()> {
    let mut word = String::new();
    (&mut stream).take(LONGEST).read_to_string(&mut word).await?;
    let answer = match Question::ALL.into_iter().find(|question| question.word() == word) {
        Some(Question::Live) => (health.live)(),
        Some(Question::Ready) => (health.ready)(),
        None => Err("there are live and ready".to_owned()),
    };
    stream.write_all(answer.err().as_deref().unwrap_or(YES).as_bytes()).await
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;

    use prometheus_client::registry::Registry;

    use super::*;

    fn health() -> Arc<Health> {
        Arc::new(Health {
            live: Box::new(|| Ok(())),
            ready: Box::new(|| Err("pods are not listed yet".to_owned())),
            refresh: Box::new(|| ()),
            registry: RwLock::new(Registry::default()),
        })
    }

    async fn asked(path: &Path, question: Question) -> Result<(), NotWell> {
        let settings = HealthSettings { question, health_socket: path.to_owned() };
        tokio::task::spawn_blocking(move || ask(&settings)).await.unwrap()
    }

    #[tokio::test]
    async fn yes_and_no_and_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let said = asked(&path, Question::Live).await.unwrap_err();
        assert!(matches!(&said, NotWell::Absent { .. }), "{said}");
        let first = tokio::spawn(serve(bind(&path).unwrap(), health()));
        asked(&path, Question::Live).await.unwrap();
        let said = asked(&path, Question::Ready).await.unwrap_err();
        assert_eq!(said.to_string(), "not ready: pods are not listed yet");
        // One that was killed leaves its file, which the next takes over.
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled() && path.exists());
        assert!(asked(&path, Question::Live).await.is_err());
        let second = tokio::spawn(serve(bind(&path).unwrap(), health()));
        asked(&path, Question::Live).await.unwrap();
        second.abort();
    }

    #[tokio::test]
    async fn whoever_says_nothing_keeps_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let serving = tokio::spawn(serve(bind(&path).unwrap(), health()));
        let mut silent = Vec::new();
        for _ in 0..QUESTIONS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        asked(&path, Question::Live).await.unwrap();
        serving.abort();
    }

    #[tokio::test]
    async fn a_process_that_does_not_get_to_it_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("health.sock");
        let _listener = bind(&path).unwrap();
        let said = asked(&path, Question::Live).await.unwrap_err();
        assert!(matches!(said, NotWell::Silent { .. }), "{said}");
    }

    #[tokio::test]
    async fn a_folder_in_the_way_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(bind(folder.path()).is_err() && folder.path().exists());
    }
}
