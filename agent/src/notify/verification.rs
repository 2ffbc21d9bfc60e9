//! Asks what a container shows after its notification, until it shows that it took the version. `sign_reading` decides
//! what it shows, and `metric_scan` reads pages of metrics.

use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::backoff::Backoff;
use nudge_protocol::expectation::{Expectation, Proof, Sign};
use nudge_protocol::status::{NotificationStatus, Outcome};
use nudge_protocol::{ContainerName, NotifySignal};
use ring::digest;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::finding::Finding;
use super::http_exchange::get;
use super::metric_scan::MetricScan;
use super::scope::{ContainerChange, NotifyScope, Roots};
use super::sign_reading::{Baseline, EarlyAnswer, Findings, SignReading, SignResult, compare, is_value};
use super::targets::select;
use super::{TargetPolicy, WebhookTarget, WebhookUrlError};
use crate::content::Dictionary;
use crate::proc::{LiveTable, ProcessTable as _, to_os_signal};
use crate::publish::Current;

/// The waits between two readings within the time of the expectation.
const EAGER_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(2) };
/// The waits after that: a container that takes the version late still counts.
const PATIENT_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(30) };
/// How long a notification waits for a container that can't be read before it.
const BASELINE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a sign the container is notified again. A metric of whole seconds grows in this time.
const RENOTIFY_DELAY: Duration = Duration::from_secs(1);
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
    /// The mark of the last dictionary in `taken`, if it is known.
    taken_mark: Option<Mark>,
    /// The last notification, of this dictionary or of one after it.
    last_notification: LastNotification,
}

/// What of a dictionary the sign can show: the digest of the value of its key. A sign without a key can't distinguish
/// dictionaries, so they all have the same mark.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark(Option<Vec<u8>>);

/// The last notification of a container. Until the container has shown what came of it, it may still be reading that
/// dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LastNotification {
    /// The container has shown what came of it, or was not notified.
    Settled,
    /// The container may still be reading a dictionary.
    Open {
        /// The mark of the dictionary.
        mark: Mark,
        /// The time at which the container counts as done, if it need not show that it took the dictionary.
        until: Option<Instant>,
    },
    /// An agent before this one may have notified the container.
    Unknown,
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

/// The end of following a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowEnd {
    /// There is a newer dictionary.
    Newer,
    /// There never will be a newer dictionary.
    Closed,
    /// What the container has shown may belong to the notification before, so it must be notified again.
    NotifyAgain,
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
        Ok(Self {
            container,
            sign,
            within: expectation.within,
            taken: Vec::new(),
            taken_mark: None,
            last_notification: LastNotification::Settled,
        })
    }

    /// Notes the dictionary that the container has: that with `known_etag`, or else the one that it starts with. If
    /// this agent serves another one first than that with `known_etag`, the agent before it may have notified of it.
    async fn note_start(&mut self, ready: &Current, known_etag: Option<&str>) {
        let has_started = ready.borrow().is_some();
        let mut ready = ready.clone();
        let Some(first) = ready.wait_for(Option::is_some).await.ok().and_then(|first| first.clone()) else { return };
        match known_etag {
            Some(known_etag) if known_etag != first.dictionary.etag() => {
                self.taken.push(known_etag.to_owned());
                self.last_notification = LastNotification::Unknown;
            }
            // The container starts with the first dictionary, and is notified of a later one.
            None if !has_started && first.generation > 1 => {}
            _ => self.note_taken(&first.dictionary),
        }
    }

    /// Notes that the container has taken the dictionary.
    pub(super) fn note_taken(&mut self, dictionary: &Dictionary) {
        self.note_unchanged(dictionary);
        self.taken_mark = Some(self.mark(dictionary));
    }

    /// Notes that the container reads nothing that changed with the dictionary. It shows what it showed before.
    pub(super) fn note_unchanged(&mut self, dictionary: &Dictionary) {
        let etag = dictionary.etag();
        self.taken.retain(|taken| taken != etag);
        self.taken.push(etag.to_owned());
        let excess = self.taken.len().saturating_sub(MAX_TAKEN);
        self.taken.drain(..excess);
    }

    /// Returns what of the dictionary the sign can show.
    fn mark(&self, dictionary: &Dictionary) -> Mark {
        let CheckedSign::Page { proof: Proof::Is { key, .. }, .. } = &self.sign else { return Mark(None) };
        let value = dictionary.value(key.as_str());
        Mark(value.map(|value| digest::digest(&digest::SHA256, value.trim_ascii()).as_ref().to_vec()))
    }

    /// Begins the verification of a dictionary of which the container will be notified; `None` if the container has
    /// taken it before.
    pub(super) fn begin(
        &mut self,
        dictionary: &Arc<Dictionary>,
        processes: Option<SignalledProcesses>,
    ) -> Option<Verification<'_>> {
        let mark = self.mark(dictionary);
        let now = Instant::now();
        if self.taken.iter().any(|taken| taken == dictionary.etag()) {
            self.note_taken(dictionary);
            self.last_notification = LastNotification::Open { mark, until: Some(now + self.within) };
            return None;
        }
        let is_ambiguous = match &self.last_notification {
            LastNotification::Settled => false,
            LastNotification::Open { mark: earlier, until } => {
                *earlier == mark && until.is_none_or(|until| now < until)
            }
            LastNotification::Unknown => true,
        };
        let early_answer = match &self.taken_mark {
            Some(taken) if *taken == mark => EarlyAnswer::SameValue,
            Some(_) if !is_ambiguous => EarlyAnswer::Fault,
            // The container may show the same value of a dictionary that this agent does not know.
            _ => EarlyAnswer::MayHaveVersion,
        };
        let dictionary = Arc::clone(dictionary);
        Some(Verification { verifier: self, dictionary, mark, processes, is_ambiguous, early_answer, before: None })
    }
}

/// The verification of one dictionary.
pub(super) struct Verification<'a> {
    verifier: &'a mut Verifier,
    dictionary: Arc<Dictionary>,
    /// The mark of the dictionary.
    mark: Mark,
    processes: Option<SignalledProcesses>,
    /// Whether what the container shows may belong to the notification before.
    is_ambiguous: bool,
    early_answer: EarlyAnswer,
    /// What the container shows before its notification.
    before: Option<SignResult>,
}

impl Verification<'_> {
    /// Notes that the container may have been notified of the dictionary.
    pub(super) fn note_sent(&mut self) {
        self.verifier.last_notification = LastNotification::Open { mark: self.mark.clone(), until: None };
    }

    /// Notes a change of the container, which may have the dictionary already. After a start it reads no earlier one.
    pub(super) fn note_change(&mut self, change: ContainerChange) {
        (self.early_answer, self.before) = (EarlyAnswer::MayHaveVersion, None);
        self.is_ambiguous &= change == ContainerChange::Listed;
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
            if reading.is_err() && self.early_answer == EarlyAnswer::Fault {
                // It may start meanwhile, with the version.
                self.early_answer = EarlyAnswer::MayHaveVersion;
            }
            let wait = EAGER_BACKOFF.wait(attempt);
            if reading.is_ok() || Instant::now() + wait >= deadline {
                self.before = Some(reading);
            } else {
                sleep(wait).await;
            }
        }
    }

    /// Follows a container that was notified, as `delivered` says, until there is a newer dictionary, or the container
    /// must be notified again. Passes each outcome to `show`.
    pub(super) async fn follow(
        &mut self,
        delivered: NotificationStatus,
        ready: &mut Current,
        show: &mut (dyn FnMut(NotificationStatus) + Send),
    ) -> FollowEnd {
        let within = self.verifier.within;
        let deadline = Instant::now() + within;
        let mut findings = Findings::default();
        let message = "it was notified, and has not shown yet that it took the version".to_owned();
        show(NotificationStatus { outcome: Outcome::Pending, message, at: None, ..delivered.clone() });
        let (mut attempt, mut is_overdue) = (0, false);
        let reading = self.before.take().unwrap_or_else(|| Err("it was not read".to_owned()));
        let baseline = Baseline { reading, early_answer: self.early_answer };
        let mut last = None;
        loop {
            attempt += 1;
            let wait = if is_overdue { PATIENT_BACKOFF } else { EAGER_BACKOFF };
            let wait = wait.jittered_wait(attempt, rand::random());
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if is_overdue { wait } else { wait.min(left) };
            let after = tokio::select! {
                changed = ready.changed() => return FollowEnd::of(changed.is_ok()),
                after = async {
                    sleep(wait).await;
                    self.read().await
                } => after,
            };
            if !is_overdue && Instant::now() >= deadline {
                (attempt, is_overdue) = (0, true);
            }
            let finding = compare(&baseline, last.as_ref(), &after);
            last = Some(after);
            let is_sign = matches!(finding, Finding::Taken | Finding::Refused(_));
            let Some((outcome, message)) = findings.add(finding, is_overdue, within.as_secs()) else { continue };
            if is_sign && std::mem::take(&mut self.is_ambiguous) {
                self.early_answer = EarlyAnswer::MayHaveVersion;
                tracing::info!(container = %self.verifier.container, "container is notified again: what it shows may belong to the notification before");
                return tokio::select! {
                    changed = ready.changed() => FollowEnd::of(changed.is_ok()),
                    () = sleep(RENOTIFY_DELAY) => FollowEnd::NotifyAgain,
                };
            }
            if matches!(outcome, Outcome::Delivered | Outcome::Failed) {
                self.verifier.last_notification = LastNotification::Settled;
            }
            let container = &self.verifier.container;
            if is_sign && outcome == Outcome::Delivered {
                tracing::info!(%container, "container has taken the version");
            } else if outcome == Outcome::Delivered {
                tracing::info!(%container, cause = message, "container can show nothing about the version");
            } else {
                let reason = outcome.as_str();
                tracing::warn!(%container, reason, error = message, "container has not taken the version");
            }
            show(NotificationStatus { outcome, message, at: Some(OffsetDateTime::now_utc()), ..delivered.clone() });
            if outcome == Outcome::Delivered {
                self.verifier.note_taken(&self.dictionary);
                return FollowEnd::of(ready.changed().await.is_ok());
            }
        }
    }

    async fn read(&mut self) -> SignResult {
        match &self.verifier.sign {
            CheckedSign::Workers => read_workers(&mut self.processes),
            CheckedSign::Page { target, proof: Proof::Newer { metric, ok } } => {
                let mut scan = MetricScan::new(metric, ok.as_ref());
                get(target, MAX_PAGE_BYTES, &mut |part| scan.push(part)).await.map_err(|error| error.to_string())?;
                Ok(SignReading::Metrics(scan.finish()))
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
                Ok(SignReading::Answer { key: key.clone(), is_value })
            }
        }
    }
}

impl FollowEnd {
    fn of(is_newer: bool) -> Self {
        if is_newer { Self::Newer } else { Self::Closed }
    }
}

/// Reads the children of the processes that get the signal.
fn read_workers(processes: &mut Option<SignalledProcesses>) -> SignResult {
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
    Ok(SignReading::Workers(workers))
}

#[cfg(test)]
mod tests {
    use nudge_protocol::{ConfigName, Key, VersionName};
    use tokio::sync::watch;

    use super::*;
    use crate::content::{EtagKey, Value, VersionContent};
    use crate::publish::publish;

    fn dictionary(version: &str) -> Arc<Dictionary> {
        dictionary_with(version, "1")
    }

    fn dictionary_with(version: &str, mark: &str) -> Arc<Dictionary> {
        let (config, version) = (ConfigName::new("c").unwrap(), VersionName::new(version).unwrap());
        let values = std::collections::BTreeMap::from([(Key::new("mark").unwrap(), Value::from(mark.as_bytes()))]);
        Arc::new(
            Dictionary::merge(&[Arc::new(VersionContent::new(config, version, values))], &EtagKey::new(b"")).unwrap(),
        )
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
        let begins = |verifier: &mut Verifier, dictionary| verifier.begin(dictionary, None).is_some();
        publish(&publisher, Arc::clone(&first), OffsetDateTime::UNIX_EPOCH);
        let mut known = verifier();
        known.note_start(&ready, Some(second.etag())).await;
        assert!(!begins(&mut known, &second) && begins(&mut known, &first));

        let mut fresh = verifier();
        fresh.note_start(&ready, None).await;
        assert!(!begins(&mut fresh, &first) && begins(&mut fresh, &second));
        fresh.note_taken(&second);
        assert!(!begins(&mut fresh, &second) && !begins(&mut fresh, &first));
        for number in 0..2 * MAX_TAKEN {
            fresh.note_taken(&dictionary(&number.to_string()));
        }
        assert_eq!(fresh.taken.len(), MAX_TAKEN);
    }

    /// Begins a verification, and notifies. Returns whether its sign may belong to an earlier notification, and what an
    /// early answer means.
    fn begin(verifier: &mut Verifier, dictionary: &Arc<Dictionary>) -> Option<(bool, EarlyAnswer)> {
        let mut verification = verifier.begin(dictionary, None)?;
        verification.note_sent();
        Some((verification.is_ambiguous, verification.early_answer))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_after_an_open_notification_is_ambiguous() {
        use EarlyAnswer::{Fault, MayHaveVersion, SameValue};

        let (publisher, ready) = watch::channel(None);
        let (first, second, third) = (dictionary("1"), dictionary_with("2", "2"), dictionary_with("3", "3"));
        publish(&publisher, Arc::clone(&first), OffsetDateTime::UNIX_EPOCH);
        let start = async |expectation: &str, known_etag: Option<&str>| {
            let mut verifier = checked(expectation).unwrap();
            verifier.note_start(&ready, known_etag).await;
            verifier
        };
        let mut workers = start("workers", None).await;
        assert!(workers.begin(&second, None).is_some(), "the container was not notified of it");
        assert!(!begin(&mut workers, &second).unwrap().0, "nothing is open");
        assert!(begin(&mut workers, &third).unwrap().0, "the second one is open");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(begin(&mut workers, &second).unwrap().0, "as long as it shows nothing");
        workers.last_notification = LastNotification::Settled;
        assert!(begin(&mut workers, &first).is_none() && begin(&mut workers, &second).unwrap().0, "a return is open");
        assert!(begin(&mut workers, &first).is_none());
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!begin(&mut workers, &second).unwrap().0, "for its time");

        let page = "http://127.0.0.1:80/ is mark";
        let mut value = start(page, None).await;
        assert_eq!(begin(&mut value, &second), Some((false, Fault)));
        assert_eq!(begin(&mut value, &third), Some((false, Fault)), "the values say which one it is");
        assert_eq!(begin(&mut value, &dictionary_with("4", "3\n")), Some((true, MayHaveVersion)), "the same value");
        assert_eq!(begin(&mut value, &dictionary_with("5", "1")), Some((false, SameValue)), "as the last taken one");

        // An agent that is started again, and serves what the container has, knows as much as the one before it.
        assert_eq!(begin(&mut start(page, Some(first.etag())).await, &second), Some((false, Fault)));
        assert_eq!(begin(&mut start(page, Some("other")).await, &first), Some((true, MayHaveVersion)));
        assert!(begin(&mut start("workers", Some("other")).await, &first).unwrap().0);
        let mut unknown = start(page, Some("other")).await;
        assert!(begin(&mut unknown, &first).is_some());
        assert_eq!(begin(&mut unknown, &second), Some((false, MayHaveVersion)), "the other one may have the value");
        unknown.note_taken(&first);
        assert_eq!(begin(&mut unknown, &third), Some((false, Fault)));
        for (change, is_ambiguous) in [(ContainerChange::Listed, true), (ContainerChange::Started, false)] {
            let mut changed = start(page, Some("other")).await;
            let mut verification = changed.begin(&second, None).unwrap();
            verification.note_change(change);
            let state = (verification.is_ambiguous, verification.early_answer);
            assert_eq!(state, (is_ambiguous, MayHaveVersion), "{change:?}");
        }
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
        assert!(late.begin(&second, None).is_some());
    }

    #[test]
    fn the_workers_of_a_container_that_gets_no_signal_are_not_known() {
        assert!(read_workers(&mut None).unwrap_err().contains("not notified by a signal"));
    }
}
