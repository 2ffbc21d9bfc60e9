//! Clients of pods at work: each asks one pod again and again, over a new connection for each request, and keeps what
//! has changed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The time from one request of a client to its next one.
const INTERVAL: Duration = Duration::from_millis(20);
/// The time after which a request has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What one client has got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// Each answer that was not the one before, with its time.
    pub(crate) changes: Vec<(OffsetDateTime, String)>,
    /// The causes of failed requests.
    pub(crate) faults: Vec<String>,
}

impl Answers {
    /// Returns the answers in their order, each once for as long as it stayed.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.changes.iter().map(|(_, text)| text.as_str()).collect()
    }
}

/// A client at work, until it is dropped.
pub(crate) struct Client {
    answers: Arc<Mutex<Answers>>,
    task: JoinHandle<()>,
}

impl Client {
    /// Starts a client of a pod.
    pub(crate) fn start(pod: &Pod, port: u16) -> Result<Self> {
        let address = address(pod, port)?;
        let answers = Arc::new(Mutex::new(Answers::default()));
        let kept = Arc::clone(&answers);
        let task = tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let answer = page(address, "/").await;
                let mut answers = kept.lock();
                match answer {
                    Ok(text) if answers.changes.last().is_some_and(|(_, last)| *last == text) => {}
                    Ok(text) => answers.changes.push((OffsetDateTime::now_utc(), text)),
                    Err(error) => answers.faults.push(format!("{error:#}")),
                }
            }
        });
        Ok(Self { answers, task })
    }

    /// Returns what the client has got so far.
    pub(crate) fn answers(&self) -> Answers {
        self.answers.lock().clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the address of a port of a pod.
pub(crate) fn address(pod: &Pod, port: u16) -> Result<SocketAddr> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()).context("the pod has no address")?;
    Ok(SocketAddr::new(ip.parse()?, port))
}

/// Returns the body of a page.
pub(crate) async fn page(address: SocketAddr, path: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        let (head, body) = reply.split_once("\r\n\r\n").context("no whole answer")?;
        ensure!(head.split(' ').nth(1) == Some("200"), "{head}");
        Ok(body.to_owned())
    };
    timeout(ANSWER_TIMEOUT, exchange).await.context("no answer in time")?
}
