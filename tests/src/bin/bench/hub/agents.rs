//! Very many agents in one process: each polls, takes what it gets and polls again; lost connections are made again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nudge_protocol::ConfigName;
use nudge_protocol::hub::{Held, POLL_PATH, PollHead, PollRequest};
use nudge_tests::fakes::crowd::{CONFIG, token};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::samples::Samples;

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(15);

/// A full handshake with a server that has a certificate of this authority.
pub(super) fn trusting(authority: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_slice(authority.as_bytes());
    // Without it nobody connects, which is seen soon enough.
    let _ = trusted.map(|certificate| roots.add(certificate));
    let mut tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(tls))
}

/// All agents; they end with it.
pub(crate) struct Crowd {
    agents: usize,
    since: Instant,
    /// A revision that an agent has taken in, and when.
    taken: mpsc::UnboundedReceiver<(u64, Instant)>,
    failed: Arc<AtomicU64>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Crowd {
    pub(crate) fn start(agents: usize, address: SocketAddr, authority: &str) -> Self {
        let connector = trusting(authority);
        let (sender, taken) = mpsc::unbounded_channel();
        let failed = Arc::new(AtomicU64::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..agents {
            let agent = Agent {
                address,
                connector: connector.clone(),
                token: token(number),
                sender: sender.clone(),
                failed: Arc::clone(&failed),
                held: None,
            };
            tasks.spawn(agent.run());
        }
        Self { agents, since: Instant::now(), taken, failed, _tasks: tasks }
    }

    /// What follows is counted from now.
    pub(crate) fn mark(&mut self) {
        self.since = Instant::now();
        self.failed.store(0, Ordering::Relaxed);
    }

    /// Waits until all agents have the revision; when each had it, in seconds since the mark.
    pub(crate) async fn reached(&mut self, revision: u64, within: Duration) -> Result<Samples> {
        let mut times = Vec::with_capacity(self.agents);
        let all = async {
            while times.len() < self.agents {
                let (taken, at) = self.taken.recv().await.context("no agent is left")?;
                if taken == revision {
                    times.push(at.saturating_duration_since(self.since).as_secs_f64());
                }
            }
            anyhow::Ok(())
        };
        let reached = timeout(within, all).await;
        ensure!(reached.is_ok(), "{} of {} agents have revision {revision}", times.len(), self.agents);
        Ok(Samples::new(times))
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

struct Agent {
    address: SocketAddr,
    connector: TlsConnector,
    token: String,
    sender: mpsc::UnboundedSender<(u64, Instant)>,
    failed: Arc<AtomicU64>,
    held: Option<Held>,
}

impl Agent {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            if let Ok(Ok(stream)) = timeout(CONNECT, self.connect()).await {
                failures = 0;
                let _ = self.converse(stream).await;
            } else {
                failures += 1;
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            // As an agent does: at random within a second, then up to twice as long each time.
            let most = 1000_u64 << failures.min(4);
            sleep(Duration::from_millis(random(most))).await;
        }
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        Ok(self.connector.connect(name, stream).await?)
    }

    async fn converse(&mut self, mut stream: TlsStream<TcpStream>) -> Result<()> {
        loop {
            let request = PollRequest {
                agent: "bench".to_owned(),
                configs: self.held.clone().into_iter().collect(),
                wait_seconds: 300,
                ..PollRequest::default()
            };
            let body = serde_json::to_string(&request)?;
            let head = format!(
                "POST {POLL_PATH} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                self.token,
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.flush().await?;
            let Some(body) = reply(&mut stream).await? else { continue };
            let at = Instant::now();
            let length: [u8; 4] = body.get(..4).context("no length")?.try_into()?;
            let length = usize::try_from(u32::from_be_bytes(length))?;
            let head: PollHead = serde_json::from_slice(body.get(4..4 + length).context("no head")?)?;
            let config = head.configs.first().context("no config")?;
            let block = config.length.context("no content")?;
            ensure!(body.len() == 8 + length + usize::try_from(block)?, "not all of the content");
            self.held = Some(Held {
                name: ConfigName::new(CONFIG)?,
                uid: config.uid.clone(),
                revision: config.revision,
                version: config.version.clone(),
                sha256: config.sha256.clone(),
                problem: None,
            });
            let number = config.version.as_ref().context("no version")?.as_str().parse()?;
            self.sender.send((number, at))?;
        }
    }
}

/// The body of a reply with content; `None` for one without.
async fn reply(stream: &mut TlsStream<TcpStream>) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    let (head, length) = loop {
        let count = stream.read(&mut piece).await?;
        ensure!(count > 0, "closed");
        bytes.extend_from_slice(&piece[..count]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&bytes[..end])?.to_ascii_lowercase();
            if head.starts_with("http/1.1 204") {
                return Ok(None);
            }
            if !head.starts_with("http/1.1 200") {
                bail!("{}", head.lines().next().unwrap_or_default());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
            break (end + 4, length.parse::<usize>()?);
        }
    };
    while bytes.len() < head + length {
        let count = stream.read(&mut piece).await?;
        ensure!(count > 0, "closed");
        bytes.extend_from_slice(&piece[..count]);
    }
    Ok(Some(bytes.split_off(head)))
}

/// A number below `most`, spread well enough for pauses.
fn random(most: u64) -> u64 {
    static STATE: AtomicUsize = AtomicUsize::new(1);
    let step = u64::try_from(STATE.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % most
}
