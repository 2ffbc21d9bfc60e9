//! Very many agents in one process: each polls, takes its versions and polls again; lost connections are opened again.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nudge_protocol::ConfigName;
use nudge_protocol::hub::{ConfigClaim, POLL_PATH, PollRequest};
use nudge_tests::fakes::crowd::{CONFIG, token};
use rustls::client::Resumption;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::exchange::{Exchange, head_of, trusting};
use crate::samples::Samples;

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Full handshakes with servers that have a certificate of this authority.
pub(super) fn connector(authority: &str) -> TlsConnector {
    let mut tls = trusting(authority);
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
        let connector = connector(authority);
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
                claim: None,
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
    pub(crate) async fn wait_for_revision(&mut self, revision: u64, within: Duration) -> Result<Samples> {
        let mut times = Vec::with_capacity(self.agents);
        let all_done = async {
            while times.len() < self.agents {
                let (taken, at) = self.taken.recv().await.context("no agent is left")?;
                if taken == revision {
                    times.push(at.saturating_duration_since(self.since).as_secs_f64());
                }
            }
            anyhow::Ok(())
        };
        let reached = timeout(within, all_done).await;
        ensure!(reached.is_ok(), "{} of {} agents have revision {revision}", times.len(), self.agents);
        Ok(Samples::new(times))
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

struct Agent {
    address: SocketAddr,
    connector: TlsConnector,
    token: String,
    sender: mpsc::UnboundedSender<(u64, Instant)>,
    failed: Arc<AtomicU64>,
    claim: Option<ConfigClaim>,
}

impl Agent {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let connected = Exchange::connect(&self.connector, None, self.address);
            if let Ok(Ok(hub)) = timeout(CONNECT_TIMEOUT, connected).await {
                failures = 0;
                let _ = self.converse(hub).await;
            } else {
                failures += 1;
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            // As an agent does: at random within a second, then up to twice as long each time.
            let most = 1000_u64 << failures.min(4);
            sleep(Duration::from_millis(random(most))).await;
        }
    }

    async fn converse(&mut self, mut hub: Exchange) -> Result<()> {
        loop {
            let request = PollRequest {
                agent: "bench".to_owned(),
                configs: self.claim.clone().into_iter().collect(),
                wait_seconds: 300,
                ..PollRequest::default()
            };
            let Some(body) = hub.post(POLL_PATH, &self.token, &request, pending()).await? else { continue };
            let at = Instant::now();
            let (head, length) = head_of(&body)?;
            let config = head.configs.first().context("no config")?;
            let block = config.length.context("no content")?;
            ensure!(body.len() == length + 4 + usize::try_from(block)?, "not all of the content");
            self.claim = Some(ConfigClaim {
                name: ConfigName::new(CONFIG)?,
                uid: config.uid.clone(),
                revision: config.revision,
                version: config.version.clone(),
                sha256: config.sha256.clone(),
                problem: None,
                mounted_secrets: Vec::new(),
            });
            let number = config.version.as_ref().context("no version")?.as_str().parse()?;
            self.sender.send((number, at))?;
        }
    }
}

/// Returns a number below `most`, spread well enough for pauses.
fn random(most: u64) -> u64 {
    static STATE: AtomicUsize = AtomicUsize::new(1);
    let step = u64::try_from(STATE.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % most
}
