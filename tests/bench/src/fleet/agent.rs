//! One agent as the hub sees it. All that depends on the protocol is here.
//!
//! Polls and reports share a connection. A report follows a change of the pod's versions, and each new connection. A
//! poll that is held meanwhile is interrupted; mostly the report comes first, because the next poll waits for it a
//! moment.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use nudge_protocol::backoff::{Backoff, with_full_jitter};
use nudge_protocol::hub::{
    ConfigClaim, HubSettings, POLL_PATH, PollRequest, REPORT_PATH, ReportRequest, ReportedConfig, ReportedContainer,
    WAIT_GRACE_SECONDS,
};
use nudge_protocol::status::Outcome;
use nudge_protocol::{Ack, ConfigName, ConfigUid, ContainerName, Notify, NotifySignal, VersionName};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::journal::{Journal, What};
use crate::exchange::{Exchange, head_of};

/// How long the application takes to acknowledge a version.
pub(super) const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(50);
/// How long connecting and a report may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the next poll waits for the report of what an answer has changed.
const REPORT_WAIT: Duration = Duration::from_millis(100);
/// How long a report waits that says only that the outcome is on its way.
const PENDING_REPORT_DELAY: Duration = Duration::from_secs(2);
/// Waits after failures.
const FAILURE_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// Whether the application of a pod, by its number, refuses a version.
pub(super) type Refuses = dyn Fn(&Journal, usize, u32) -> bool + Send + Sync;

/// What all agents share.
pub(super) struct Surroundings {
    pub(super) hubs: Mutex<Vec<SocketAddr>>,
    pub(super) journal: Arc<Journal>,
    pub(super) refuses: Box<Refuses>,
}

/// A simulated agent.
pub(super) struct Agent {
    pub(super) number: usize,
    pub(super) config: ConfigName,
    pub(super) container: ContainerName,
    pub(super) token: String,
    /// The address of its node.
    pub(super) from: IpAddr,
    pub(super) connector: TlsConnector,
    pub(super) shared: Arc<Surroundings>,
}

/// How the application took the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Taken {
    #[default]
    Pending,
    Acknowledged,
    Refused,
}

/// What the pod runs, and the contact with the hub.
#[derive(Clone, Debug, Default, PartialEq)]
struct Running {
    connected: bool,
    uid: Option<ConfigUid>,
    revision: u64,
    version: Option<VersionName>,
    taken: Taken,
    settings: HubSettings,
}

/// What it has for the next poll.
#[derive(Default)]
struct Polled {
    claim: Option<ConfigClaim>,
    containers_hash: String,
}

/// The connection, with the number of those there have been.
#[derive(Default)]
struct Hub {
    exchange: Option<Exchange>,
    connections: u64,
}

/// Which report is due when.
struct Reporter {
    running: watch::Receiver<Running>,
    /// The connection and the report that were last.
    last: Option<(u64, ReportRequest)>,
    not_before: Instant,
    failures: u32,
    /// Since when the outcome is on its way.
    pending: Option<Instant>,
    second: i64,
}

impl Agent {
    /// Runs until dropped.
    pub(super) async fn run(self) {
        let running = watch::Sender::default();
        tokio::join!(self.converse(&running), self.acknowledge(&running));
    }

    fn count(&self, of: impl Fn(&super::journal::Counts) -> &AtomicU32) {
        of(self.shared.journal.counts(self.number)).fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, what: What, version: Option<&VersionName>) {
        if let Some(number) = version.and_then(|version| version.as_str().parse().ok()) {
            self.shared.journal.enter(self.number, what, number);
        }
    }

    /// Sends a request over the connection, or a new one to any hub.
    async fn ask(
        &self,
        hub: &mut Hub,
        path: &str,
        body: &impl Serialize,
        patience: Duration,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Option<Vec<u8>>> {
        // The exchange is dropped if a request fails.
        let mut exchange = if let Some(kept) = hub.exchange.take() {
            kept
        } else {
            hub.connections += 1;
            timeout(REQUEST_TIMEOUT, self.connect()).await.context("connecting takes too long")??
        };
        let posted = exchange.post(path, &self.token, body, interrupt);
        let reply = timeout(patience, posted).await.context("no answer in time")??;
        hub.exchange = Some(exchange);
        Ok(reply)
    }

    async fn connect(&self) -> Result<Exchange> {
        let hubs = self.shared.hubs.lock().clone();
        let Some(hub) = hubs.get(rand::random_range(0..hubs.len().max(1))) else { bail!("there is no hub") };
        let exchange = Exchange::connect(&self.connector, Some(self.from), *hub).await?;
        self.count(|counts| &counts.handshakes);
        Ok(exchange)
    }

    async fn converse(&self, running: &watch::Sender<Running>) {
        let (mut hub, mut polled, mut failures) = (Hub::default(), Polled::default(), 0);
        let mut reporter = Reporter::new(running.subscribe());
        let (mut until, mut report_first) = (Instant::now(), false);
        loop {
            loop {
                tokio::select! {
                    biased;
                    () = reporter.wait_until_report_due(self, hub.connections) => self.report(&mut hub, &mut reporter).await,
                    () = sleep_until(until) => break,
                }
                if report_first {
                    break;
                }
            }
            // The first poll over a connection is not held, and shows whether there is contact.
            let wait = hub.exchange.as_ref().map_or(0, |_| running.borrow().settings.wait_seconds);
            let request = PollRequest {
                agent: "bench".to_owned(),
                configs: polled.claim.iter().cloned().collect(),
                containers_hash: polled.containers_hash.clone(),
                wait_seconds: wait,
            };
            let patience = Duration::from_secs(u64::from(wait + WAIT_GRACE_SECONDS));
            let connection = hub.connections;
            let interrupt = async {
                if wait == 0 {
                    pending::<()>().await;
                }
                reporter.wait_until_report_due(self, connection).await;
            };
            let answer = self.ask(&mut hub, POLL_PATH, &request, patience, interrupt).await;
            let changed = answer.and_then(|body| body.map_or(Ok(false), |body| self.take(&body, &mut polled, running)));
            running.send_modify(|now| now.connected = changed.is_ok());
            if let Ok(changed) = changed {
                (failures, report_first) = (0, changed);
                until = Instant::now() + if changed { REPORT_WAIT } else { Duration::ZERO };
            } else {
                self.count(|counts| &counts.failures);
                (hub.exchange, failures, report_first) = (None, failures + 1, false);
                until = Instant::now() + with_full_jitter(FAILURE_BACKOFF.wait(failures), rand::random());
            }
        }
    }

    /// Takes an answer in. Returns whether it has changed what the pod runs.
    fn take(&self, body: &[u8], polled: &mut Polled, running: &watch::Sender<Running>) -> Result<bool> {
        let (head, _) = head_of(body)?;
        self.count(|counts| &counts.answers);
        let config = head.configs.first().context("no config")?;
        let before = polled.claim.take();
        let mut claim = ConfigClaim {
            name: self.config.clone(),
            uid: config.uid.clone(),
            revision: config.revision,
            version: config.version.clone(),
            sha256: config.sha256.clone(),
            problem: config.problem.as_ref().map(|problem| problem.reason),
            mounted_secrets: Vec::new(),
        };
        if claim.problem.is_some() {
            claim.version = before.as_ref().and_then(|before| before.version.clone());
            claim.sha256 = before.and_then(|before| before.sha256);
        }
        polled.containers_hash = head.containers_hash;
        let changed = running.borrow().version != claim.version;
        if changed {
            self.enter(What::Taken, claim.version.as_ref());
        }
        running.send_if_modified(|now| {
            let taken = if now.version == claim.version { now.taken } else { Taken::Pending };
            let (version, uid) = (claim.version.clone(), claim.uid.clone());
            let next =
                Running { uid, revision: claim.revision, version, taken, settings: head.settings, ..now.clone() };
            let differs = *now != next;
            *now = next;
            differs
        });
        polled.claim = Some(claim);
        Ok(changed)
    }

    /// What the application does.
    async fn acknowledge(&self, running: &watch::Sender<Running>) {
        let mut changes = running.subscribe();
        loop {
            let pending = |now: &Running| now.version.is_some() && now.taken == Taken::Pending;
            let Ok(version) = changes.wait_for(pending).await.map(|now| now.version.clone()) else { return };
            sleep(ACKNOWLEDGEMENT_DELAY).await;
            let number = version.as_ref().and_then(|version| version.as_str().parse().ok());
            let refused =
                number.is_some_and(|version| (self.shared.refuses)(&self.shared.journal, self.number, version));
            running.send_if_modified(|now| {
                if now.version != version {
                    return false;
                }
                now.taken = if refused { Taken::Refused } else { Taken::Acknowledged };
                self.enter(if refused { What::Refused } else { What::Acknowledged }, version.as_ref());
                true
            });
        }
    }

    /// Reports what is so now.
    async fn report(&self, hub: &mut Hub, reporter: &mut Reporter) {
        let now = reporter.running.borrow().clone();
        let report = self.report_of(&now);
        reporter.second = unix_time().max(reporter.second + 1);
        reporter.pending = None;
        let sent = ReportRequest { at: reporter.second, ..report.clone() };
        let reported = self.ask(hub, REPORT_PATH, &sent, REQUEST_TIMEOUT, pending()).await;
        let pause = if reported.is_ok() {
            self.count(|counts| &counts.reports);
            reporter.failures = 0;
            reporter.last = Some((hub.connections, report));
            Duration::from_secs(now.settings.report_seconds.into())
        } else {
            self.count(|counts| &counts.failures);
            hub.exchange = None;
            reporter.failures += 1;
            with_full_jitter(FAILURE_BACKOFF.wait(reporter.failures), rand::random())
        };
        reporter.not_before = Instant::now() + pause;
    }

    fn report_of(&self, now: &Running) -> ReportRequest {
        let acknowledged = now.taken == Taken::Acknowledged;
        let (outcome, message) = match now.taken {
            Taken::Pending | Taken::Acknowledged => (Outcome::Delivered, String::new()),
            Taken::Refused => (Outcome::Failed, "the application refuses this version".to_owned()),
        };
        let container = ReportedContainer {
            name: self.container.clone(),
            notify: Notify::Signal(NotifySignal::Usr1),
            ack: Ack::Fetched,
            outcome,
            message,
            acknowledged,
        };
        let config = ReportedConfig {
            name: self.config.clone(),
            uid: now.uid.clone(),
            revision: now.revision,
            version: now.version.clone(),
            problem: None,
            acknowledged,
        };
        let (configs, containers) = (vec![config], vec![container]);
        ReportRequest { agent: "bench".to_owned(), configs, containers, acknowledged, at: 0 }
    }
}

impl Reporter {
    fn new(running: watch::Receiver<Running>) -> Self {
        Self { running, last: None, not_before: Instant::now(), failures: 0, pending: None, second: 0 }
    }

    /// Waits until a report is due over this connection.
    async fn wait_until_report_due(&mut self, agent: &Agent, connection: u64) {
        loop {
            let now = self.running.borrow_and_update().clone();
            let report = agent.report_of(&now);
            let is_new = |(of, last): &(u64, ReportRequest)| *of != connection || !is_same(last, &report);
            if !now.connected || !self.last.as_ref().is_none_or(is_new) {
                self.pending = None;
                if self.running.changed().await.is_err() {
                    pending::<()>().await;
                }
                continue;
            }
            let moment = Instant::now();
            self.pending = (now.taken == Taken::Pending).then(|| *self.pending.get_or_insert(moment));
            let due = self.pending.map_or(moment, |since| since + PENDING_REPORT_DELAY).max(self.not_before);
            if due <= moment {
                return;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                _ = self.running.changed() => {}
            }
        }
    }
}

/// Returns whether both say the same of the pod. Revisions grow with what concerns other pods.
fn is_same(one: &ReportRequest, other: &ReportRequest) -> bool {
    let without = |config: &ReportedConfig| ReportedConfig { revision: 0, ..config.clone() };
    let configs = |report: &ReportRequest| report.configs.iter().map(without).collect::<Vec<_>>();
    one.containers == other.containers && configs(one) == configs(other)
}

fn unix_time() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
