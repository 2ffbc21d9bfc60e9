//! Follows the hub, in a pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, PollRequest};
use nudge_protocol::status::ContactStatus;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::keeper::Keeper;
use super::report::{Contact, Reporter};
use super::{Delivery, Outlets};
use crate::map::map;
use crate::metrics::HubCall;
use crate::notify::Containers;
use crate::readiness::NotReady;
use crate::source::hub::{
    Answer, Failure, HubClient, Kind, LastGood, LocalVersions, NextPoll, PollEnd, PollRetry, Reply, read_mounted,
};
use crate::source::{Applied, Reading, Reminder, Store};

/// What the pipeline is made of.
pub struct HubParts {
    /// The hub.
    pub client: HubClient,
    /// Between polls that are not held.
    pub poll_interval: Duration,
    /// The versions that this pod has.
    pub local_versions: LocalVersions,
    /// The last good contents and their dictionary.
    pub store: Store,
    /// Where it goes.
    pub outlets: Outlets,
    /// The file with the last good contents.
    pub last_good: LastGood,
    /// Why nothing is served yet, for `wait-ready`.
    pub not_ready: NotReady,
}

/// Follows the hub and keeps the outlets up to date.
pub struct HubPipeline {
    client: HubClient,
    retry: PollRetry,
    local_versions: LocalVersions,
    store: Store,
    delivery: Delivery,
    keeper: Keeper,
    not_ready: NotReady,
    served: bool,
    /// Taken in and not served yet, because the rest of the configs may arrive in a moment.
    withheld: Applied,
    reporter: Reporter,
    containers: watch::Sender<Containers>,
    reminder: Reminder,
}

impl HubPipeline {
    /// A pipeline that has not polled yet.
    pub fn new(parts: HubParts) -> Self {
        let HubParts { client, poll_interval, local_versions, store, outlets, last_good, not_ready } = parts;
        let containers = watch::Sender::default();
        let contact = Contact::new(local_versions.order().to_vec());
        Self {
            client,
            retry: PollRetry::new(poll_interval),
            reporter: Reporter::new(contact, containers.subscribe(), &outlets),
            local_versions,
            store,
            delivery: Delivery::new(outlets),
            keeper: Keeper::new(last_good),
            not_ready,
            served: false,
            withheld: Applied::default(),
            containers,
            reminder: Reminder::default(),
        }
    }

    /// The pod's containers as the hub reports them.
    pub fn containers(&self) -> watch::Receiver<Containers> {
        self.containers.subscribe()
    }

    /// `ETag` of the dictionary that this agent would serve if it restarted now.
    pub fn kept(&self) -> watch::Receiver<Option<String>> {
        self.keeper.kept()
    }

    /// Takes the last good contents, and for the other configs the mounted versions. Serves them if no config is missing.
    pub async fn start(&mut self, mounted: Option<&Path>) {
        self.not_ready.say("the hub has not been polled yet");
        let mut readings = match self.keeper.file().load() {
            Ok(None) => Vec::new(),
            Ok(Some(reply)) => self.local_versions.take(reply).readings,
            Err(error) => {
                tracing::warn!(%error, "last good contents not used");
                Vec::new()
            }
        };
        readings.retain(|reading| match &reading.result {
            Ok(_) => true,
            Err(fault) => {
                tracing::warn!(config = %reading.config, error = fault.message, "last good content not used");
                false
            }
        });
        let restored = !readings.is_empty();
        for config in self.local_versions.order().to_vec() {
            let known = readings.iter().any(|reading| reading.config == config);
            let Some(dir) = mounted.filter(|_| !known) else { continue };
            match read_mounted(dir, &config) {
                Ok((version, block)) => readings.extend(self.local_versions.take_mounted(&config, version, block)),
                Err(error) => tracing::warn!(%config, %error, "mounted version not used"),
            }
        }
        if !readings.is_empty() {
            self.take_in(readings, false, false);
            tracing::info!(
                last_good = restored,
                complete = self.local_versions.is_complete(),
                "contents found in this pod"
            );
            self.pass_on(!restored).await;
            if restored {
                self.keeper.mark(self.etag());
            }
        }
    }

    /// Follows the hub until dropped.
    pub async fn run(mut self) {
        let mut next = PollRetry::first();
        loop {
            self.wait(next).await;
            // Whether there is contact over a new connection is seen at once, and the report follows.
            let wait_seconds = if self.client.is_open() { next.wait_seconds } else { 0 };
            let began = Instant::now();
            let (answer, interrupted) = self.poll(wait_seconds).await;
            next = self.digest(answer, interrupted, wait_seconds, began.elapsed()).await;
        }
    }

    /// Waits for the next poll. Reports what is due, and writes what is still to be written.
    async fn wait(&mut self, next: NextPoll) {
        let until = Instant::now() + next.after;
        loop {
            let connection = self.client.connections();
            tokio::select! {
                biased;
                () = self.reporter.due(connection) => {
                    self.reporter.send(&mut self.client).await;
                    if next.reports {
                        return;
                    }
                }
                () = self.delivery.files_due() => self.delivery.deliver().await,
                () = self.keeper.is_due() => self.keep().await,
                () = sleep_until(until) => return,
            }
        }
    }

    /// Polls the hub, and meanwhile writes what is still to be written. Ends a poll that is held when a report is due; returns whether
    /// it has.
    async fn poll(&mut self, wait_seconds: u32) -> (Result<Answer, Failure>, bool) {
        let request = self.local_versions.request(wait_seconds);
        let Self { client, delivery, reporter, keeper, local_versions, .. } = self;
        let (connection, interrupt) = (client.connections(), client.interrupt());
        let poll = client.poll(&request);
        tokio::pin!(poll);
        let mut interrupted = false;
        loop {
            tokio::select! {
                answer = &mut poll => return (answer, interrupted),
                () = delivery.files_due() => delivery.deliver().await,
                () = keeper.is_due() => keeper.store(local_versions.last_good(), etag(delivery)).await,
                () = reporter.due(connection), if wait_seconds > 0 && !interrupted => {
                    interrupt.ask();
                    interrupted = true;
                }
            }
        }
    }

    /// Takes an answer in. Returns the next poll.
    async fn digest(
        &mut self,
        answer: Result<Answer, Failure>,
        interrupted: bool,
        asked: u32,
        took: Duration,
    ) -> NextPoll {
        let connected = match &answer {
            Ok(_) => true,
            // Something answers there, though not with a reply.
            Err(failure) => failure.kind == Kind::Malformed,
        };
        let (answered, fault) = match answer {
            Ok(Answer::Unchanged) if interrupted => (PollEnd::Interrupted, None),
            Ok(Answer::Unchanged) => (PollEnd::Unchanged, None),
            Ok(Answer::Changed(reply)) => {
                let before = (self.local_versions.request(0), self.containers.borrow().clone());
                let fault = self.take(*reply).await;
                let after = (self.local_versions.request(0), self.containers.borrow().clone());
                let end = if before == after {
                    PollEnd::Repeated
                } else if !is_own(&before.0, &after.0) && before.1 == after.1 {
                    if interrupted { PollEnd::Interrupted } else { PollEnd::Unchanged }
                } else {
                    PollEnd::Changed
                };
                (end, fault.map(|fault| Failure::new(Kind::Malformed, fault)))
            }
            Err(failure) => (PollEnd::Unchanged, Some(failure)),
        };
        let failed = if interrupted { PollEnd::FailedToEnd } else { PollEnd::Failed };
        let end = fault.as_ref().map_or(answered, failed);
        let outcome = match end {
            PollEnd::Unchanged | PollEnd::Interrupted => "unchanged",
            PollEnd::Changed | PollEnd::Repeated => "changed",
            PollEnd::Failed(failure) | PollEnd::FailedToEnd(failure) => failure.kind.as_str(),
        };
        self.delivery.outlets().metrics.asked(HubCall::Poll, outcome);
        if fault.is_some() {
            self.client.close();
            // The rest of the configs may never arrive, and some are better than none.
            self.take_in(Vec::new(), false, true);
            self.pass_on(false).await;
        }
        let next = self.retry.next(end, asked, took, Instant::now(), rand::random());
        self.note_contact(connected, fault.as_ref(), next);
        next
    }

    /// Takes a reply in. Subscribers are notified of its contents before anything else happens. Returns what is wrong with it.
    async fn take(&mut self, reply: Reply) -> Option<String> {
        let HubSettings { wait_seconds, report_seconds } = reply.head.settings;
        self.retry.set_wait_seconds(wait_seconds);
        let containers = reply.head.containers.iter();
        let containers = map(containers.map(|container| (container.name.clone(), container.clone())));
        let taken = self.local_versions.take(reply);
        self.containers.send_if_modified(|known| {
            let differs = **known != containers;
            *known = Arc::new(containers);
            differs
        });
        let changed = self.take_in(taken.readings, true, false);
        self.pass_on(changed).await;
        let contact = &mut self.reporter.contact;
        contact.report_every = Duration::from_secs(u64::from(report_seconds));
        contact.take_revisions(self.local_versions.revisions());
        taken.fault
    }

    /// Serves readings, unless the rest of the configs may arrive in a moment. Returns whether the last good contents have changed.
    fn take_in(&mut self, readings: Vec<Reading>, confirmed: bool, now: bool) -> bool {
        let applied = self.store.apply(readings, OffsetDateTime::now_utc());
        let changed = self.local_versions.settle(&self.store);
        self.withheld.add(applied);
        if self.served || now || self.local_versions.is_settled() {
            let applied = std::mem::take(&mut self.withheld);
            self.served |= applied.dictionary.is_some();
            self.delivery.serve(&self.store, applied, confirmed);
        }
        changed
    }

    /// Notifies the subscribers, then logs and stores what has changed.
    async fn pass_on(&mut self, changed: bool) {
        self.delivery.deliver().await;
        // Subscribers are notified before anything else happens.
        tokio::task::yield_now().await;
        self.delivery.log();
        if self.served {
            self.not_ready.clear();
        } else {
            let problems = self.store.problems().iter();
            let messages: Vec<String> =
                problems.map(|(config, problem)| format!("config {config}: {}", problem.message)).collect();
            if !messages.is_empty() {
                self.not_ready.say(&messages.join("; "));
            }
        }
        if changed {
            self.keep().await;
        }
    }

    /// Stores what would be served after a restart.
    async fn keep(&mut self) {
        self.keeper.store(self.local_versions.last_good(), self.etag()).await;
    }

    /// `ETag` of the dictionary that is served now.
    fn etag(&self) -> Option<String> {
        etag(&self.delivery)
    }

    fn note_contact(&mut self, connected: bool, fault: Option<&Failure>, next: NextPoll) {
        let status = &self.delivery.outlets().status;
        let failures = self.retry.failures();
        let contact = ContactStatus {
            connected,
            failures,
            reason: fault.map(|failure| failure.kind.as_str().to_owned()).unwrap_or_default(),
            message: fault.map(|failure| failure.message.clone()).unwrap_or_default(),
            interval: self.retry.by_interval(),
        };
        status.contact(contact, fault.is_none().then(std::time::Instant::now));
        let again = self.reminder.is_due(fault.is_some(), std::time::Instant::now());
        match fault {
            Some(failure) => {
                if failures == 1 || again {
                    let age_seconds = status.age_seconds(std::time::Instant::now());
                    let reason = failure.kind.as_str();
                    tracing::warn!(
                        reason,
                        error = failure.message,
                        failures,
                        age_seconds,
                        "poll of the hub failed; retrying"
                    );
                }
                tracing::debug!(reason = failure.kind.as_str(), after = ?next.after, "next poll planned");
                if !self.served {
                    self.not_ready.say(&failure.message);
                }
            }
            None if !self.reporter.contact.connected => tracing::info!("contact with the hub established"),
            None => {}
        }
        let trouble = fault.filter(|failure| failure.kind == Kind::Malformed).map(|failure| failure.message.clone());
        self.reporter.contact.note(connected, trouble);
    }
}

/// Whether more differs between what the agent holds before and after a reply than revisions, which grow with what concerns other pods.
fn is_own(before: &PollRequest, after: &PollRequest) -> bool {
    let without = |request: &PollRequest| {
        let mut request = request.clone();
        request.configs.iter_mut().for_each(|held| held.revision = 0);
        request
    };
    without(before) != without(after)
}

fn etag(delivery: &Delivery) -> Option<String> {
    delivery.outlets().current.borrow().as_ref().map(|now| now.dictionary.etag().to_owned())
}
