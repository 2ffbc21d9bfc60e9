//! Asks what a container shows after its notification, until it shows that it took the version. `sign_reading` decides
//! what it shows, and `metric_scan` reads pages of metrics.

use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use nudge_protocol::expectation::{Expectation, Proof, Sign};
use nudge_protocol::status::{NotificationStatus, Outcome};
use nudge_protocol::{ContainerName, NotifySignal};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::http_exchange::get;
use super::metric_scan::MetricScan;
use super::scope::{NotifyScope, Roots};
use super::sign_reading::{Findings, Reading, SignReading, compare, is_value};
use super::targets::select;
use super::{TargetPolicy, WebhookTarget, WebhookUrlError};
use crate::content::Dictionary;
use crate::proc::{LiveTable, ProcessTable as _, to_os_signal};
use crate::publish::{Current, Published};

/// The waits between two readings within the time of the expectation.
const EAGER_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(2) };
/// The waits after that: a container that takes the version late still counts.
const PATIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(30) };
/// How long a notification waits for a container that can't be read before it.
const BASELINE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a page of metrics, in bytes. It is not kept.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// The maximum size of an answer that is compared with a value, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The maximum number of dictionaries that are remembered.
const MAX_TAKEN: usize = 64;

/// What a container must show after each notification.
#[derive(Clone, Debug)]
pub struct Verifier {
    container: ContainerName,
    sign: CheckedSign,
    within: Duration,
    /// The `ETag`s of the dictionaries that the container started with or took, the oldest first. It need not show them
    /// again: a return waits for no sign.
    taken: Vec<String>,
}

/// What distinguishes new from old, with a target that is allowed.
#[derive(Clone, Debug)]
enum CheckedSign {
    Page { target: WebhookTarget, proof: Proof },
    Workers,
}

/// The processes of a container that is notified by a signal.
#[derive(Clone, Debug)]
pub(super) struct SignalledProcesses {
    pub(super) scope: NotifyScope,
    pub(super) signal: NotifySignal,
}

/// The occasion of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The container has another dictionary.
    Change,
    /// The container may have this dictionary: it has restarted, or an agent before this one has notified it.
    Repeat,
}

/// Notes the dictionary that a container starts with. Must not be awaited before the wait for a newer dictionary, which
/// it would delay.
pub(super) async fn note_start(verifier: Option<&mut Verifier>, ready: &Current, known_etag: Option<&str>) {
    if let Some(verifier) = verifier {
        verifier.note_start(ready, known_etag).await;
    }
}

impl Verifier {
    /// Checks the target of the expectation.
    pub fn new(
        container: ContainerName,
        expectation: &Expectation,
        policy: &TargetPolicy,
    ) -> Result<Self, WebhookUrlError> {
        let sign = match &expectation.sign {
            Sign::Workers => CheckedSign::Workers,
            Sign::Page { url, proof } => CheckedSign::Page { target: policy.check(url.clone())?, proof: proof.clone() },
        };
        Ok(Self { container, sign, within: expectation.within, taken: Vec::new() })
    }

    /// Notes the dictionary that the container has: that with `known_etag`, or else the one that it starts with.
    async fn note_start(&mut self, ready: &Current, known_etag: Option<&str>) {
        let has_started = ready.borrow().is_some();
        let etag = if let Some(etag) = known_etag {
            Some(etag.to_owned())
        } else {
            let mut ready = ready.clone();
            let first = ready.wait_for(Option::is_some).await.ok().and_then(|first| first.clone());
            // The container starts with the first dictionary, and is notified of a later one.
            let first = first.filter(|first: &Arc<Published>| has_started || first.generation == 1);
            first.map(|first| first.dictionary.etag().to_owned())
        };
        if let Some(etag) = etag {
            self.note_taken(etag);
        }
    }

    /// Notes that the container has taken the dictionary with this `ETag`, or reads nothing that changed with it.
    pub(super) fn note_taken(&mut self, etag: String) {
        self.taken.retain(|taken| *taken != etag);
        self.taken.push(etag);
        let excess = self.taken.len().saturating_sub(MAX_TAKEN);
        self.taken.drain(..excess);
    }

    /// Begins the verification of a dictionary; `None` if the container has taken it before.
    pub(super) fn begin(
        &mut self,
        dictionary: &Arc<Dictionary>,
        processes: Option<SignalledProcesses>,
        occasion: Occasion,
    ) -> Option<Verification<'_>> {
        if self.taken.iter().any(|taken| taken == dictionary.etag()) {
            return None;
        }
        Some(Verification { verifier: self, dictionary: Arc::clone(dictionary), processes, occasion, before: None })
    }
}

/// The verification of one dictionary.
pub(super) struct Verification<'a> {
    verifier: &'a mut Verifier,
    dictionary: Arc<Dictionary>,
    processes: Option<SignalledProcesses>,
    occasion: Occasion,
    /// What the container shows before its notification.
    before: Option<SignReading>,
}

impl Verification<'_> {
    /// Notes that the container has restarted, so that it may have the dictionary already.
    pub(super) fn restart(&mut self) {
        (self.occasion, self.before) = (Occasion::Repeat, None);
    }

    /// Reads what the container shows before its notification, unless that is known. Waits a little for a container
    /// that can't be read.
    ///
    /// Cancel safe.
    pub(super) async fn read_before(&mut self) {
        // The container was not notified yet, so another attempt to read it may still succeed.
        self.before.take_if(|before| before.is_err());
        let deadline = Instant::now() + BASELINE_TIMEOUT;
        let mut attempt = 0;
        while self.before.is_none() {
            attempt += 1;
            let reading = self.read().await;
            let wait = EAGER_BACKOFF.wait(attempt);
            if reading.is_ok() || Instant::now() + wait >= deadline {
                self.before = Some(reading);
            } else {
                sleep(wait).await;
            }
        }
        if let (Occasion::Repeat, Some(Ok(Reading::Answer { is_value, .. }))) = (self.occasion, &mut self.before) {
            *is_value = false;
        }
    }

    /// Follows a container that was notified, as `delivered` says, until there is a newer dictionary. Passes each
    /// outcome to `show`. Returns `false` if there never will be a newer dictionary.
    pub(super) async fn follow(
        mut self,
        delivered: NotificationStatus,
        ready: &mut Current,
        show: &mut (dyn FnMut(NotificationStatus) + Send),
    ) -> bool {
        let within = self.verifier.within;
        let deadline = Instant::now() + within;
        let mut findings = Findings::default();
        let message = "it was notified, and has not shown yet that it took the version".to_owned();
        show(NotificationStatus { outcome: Outcome::Pending, message, at: None, ..delivered.clone() });
        let (mut attempt, mut is_overdue) = (0, false);
        loop {
            attempt += 1;
            let wait = if is_overdue { PATIENT_BACKOFF } else { EAGER_BACKOFF };
            let wait = wait.jittered_wait(attempt, rand::random());
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if is_overdue { wait } else { wait.min(left) };
            let after = tokio::select! {
                changed = ready.changed() => return changed.is_ok(),
                after = async {
                    sleep(wait).await;
                    self.read().await
                } => after,
            };
            if !is_overdue && Instant::now() >= deadline {
                (attempt, is_overdue) = (0, true);
            }
            let before = self.before.get_or_insert_with(|| Err("it was not read".to_owned()));
            let finding = compare(before, &after);
            let Some((outcome, message)) = findings.add(finding, is_overdue, within.as_secs()) else { continue };
            let container = &self.verifier.container;
            if outcome == Outcome::Delivered {
                tracing::info!(%container, "container has taken the version");
            } else {
                let reason = outcome.as_str();
                tracing::warn!(%container, reason, error = message, "container has not taken the version");
            }
            show(NotificationStatus { outcome, message, at: Some(OffsetDateTime::now_utc()), ..delivered.clone() });
            if outcome == Outcome::Delivered {
                self.verifier.note_taken(self.dictionary.etag().to_owned());
                return ready.changed().await.is_ok();
            }
        }
    }

    async fn read(&mut self) -> SignReading {
        match &self.verifier.sign {
            CheckedSign::Workers => read_workers(&mut self.processes),
            CheckedSign::Page { target, proof: Proof::Newer { metric, ok } } => {
                let mut scan = MetricScan::new(metric, ok.as_ref());
                get(target, MAX_PAGE_BYTES, &mut |part| scan.push(part)).await.map_err(|error| error.to_string())?;
                Ok(Reading::Metrics(scan.finish()))
            }
            CheckedSign::Page { target, proof: Proof::Is { pointer, key } } => {
                let Some(value) = self.dictionary.value(key.as_str()) else {
                    return Err(format!("key {key} is not in the configuration; add it, or name another key"));
                };
                let mut answer = Zeroizing::new(Vec::new());
                get(target, MAX_ANSWER_BYTES, &mut |part| answer.extend_from_slice(part))
                    .await
                    .map_err(|error| error.to_string())?;
                let is_value = is_value(&answer, pointer.as_ref(), &value);
                Ok(Reading::Answer { key: key.clone(), is_value })
            }
        }
    }
}

/// Reads the children of the processes that get the signal.
fn read_workers(processes: &mut Option<SignalledProcesses>) -> SignReading {
    let Some(SignalledProcesses { scope, signal }) = processes else {
        return Err("its processes are not known: it is not notified by a signal".to_owned());
    };
    let mut table = LiveTable::default();
    let Roots::Processes(roots) = scope.roots(&mut table) else {
        return Err("its processes are not known, since it does not run".to_owned());
    };
    let selection = select(&mut table, &roots, to_os_signal(*signal).as_raw());
    if selection.targets.is_empty() {
        return Err(format!("it has no process with a handler for {signal}"));
    }
    let mut workers = Vec::new();
    for main in selection.targets {
        for child in table.children(main.pid) {
            workers.extend(table.process(child).filter(|(_, status)| !status.zombie).map(|(process, _)| process));
        }
    }
    Ok(Reading::Workers(workers))
}

#[cfg(test)]
mod tests {
    use nudge_protocol::{ConfigName, VersionName};
    use tokio::sync::watch;

    use super::*;
    use crate::content::{EtagKey, VersionContent};
    use crate::publish::publish;

    fn dictionary(version: &str) -> Arc<Dictionary> {
        let (config, version) = (ConfigName::new("c").unwrap(), VersionName::new(version).unwrap());
        let content = VersionContent::new(config, version, std::collections::BTreeMap::new());
        Arc::new(Dictionary::merge(&[Arc::new(content)], &EtagKey::new(b"")).unwrap())
    }

    fn checked(expectation: &str) -> Result<Verifier, WebhookUrlError> {
        let expectation = expectation.parse().unwrap();
        Verifier::new(ContainerName::new("app").unwrap(), &expectation, &TargetPolicy::default())
    }

    fn verifier() -> Verifier {
        checked("workers").unwrap()
    }

    #[test]
    fn a_target_outside_of_the_pod_is_refused() {
        assert!(checked("http://10.0.0.9:80/ is mark").is_err());
    }

    #[tokio::test]
    async fn what_a_container_starts_with_or_took_is_not_verified_again() {
        let (publisher, ready) = watch::channel(None);
        let (first, second) = (dictionary("1"), dictionary("2"));
        let begins = |verifier: &mut Verifier, dictionary| verifier.begin(dictionary, None, Occasion::Change).is_some();
        let mut known = verifier();
        known.note_start(&ready, Some(second.etag())).await;
        assert!(!begins(&mut known, &second) && begins(&mut known, &first));

        publish(&publisher, Arc::clone(&first), OffsetDateTime::UNIX_EPOCH);
        let mut fresh = verifier();
        fresh.note_start(&ready, None).await;
        assert!(!begins(&mut fresh, &first) && begins(&mut fresh, &second));
        fresh.note_taken(second.etag().to_owned());
        assert!(!begins(&mut fresh, &second) && !begins(&mut fresh, &first));
        for number in 0..2 * MAX_TAKEN {
            fresh.note_taken(number.to_string());
        }
        assert_eq!(fresh.taken.len(), MAX_TAKEN);
    }

    #[tokio::test]
    async fn a_dictionary_that_came_before_the_task_looked_is_not_the_start() {
        let (publisher, ready) = watch::channel(None);
        let mut late = verifier();
        let second = dictionary("2");
        let started = async {
            publish(&publisher, dictionary("1"), OffsetDateTime::UNIX_EPOCH);
            publish(&publisher, Arc::clone(&second), OffsetDateTime::UNIX_EPOCH);
        };
        tokio::join!(late.note_start(&ready, None), started);
        assert!(late.begin(&second, None, Occasion::Change).is_some());
    }

    #[test]
    fn the_workers_of_a_container_that_gets_no_signal_are_not_known() {
        assert!(read_workers(&mut None).unwrap_err().contains("not notified by a signal"));
    }
}
