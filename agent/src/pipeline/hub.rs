//! Follows the hub, in a pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, PollRequest};
use nudge_protocol::status::ContactStatus;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::intake::{Intake, IntakeParts};
use super::keeper::Keeper;
use super::report::{Contact, Reporter};
use super::{InPlace, Outlets};
use crate::map::map;
use crate::metrics::HubCall;
use crate::notify::Containers;
use crate::readiness::NotReady;
use crate::source::hub::{
    Answer, Failure, FailureKind, HubClient, LastGood, LocalVersions, NextPoll, PollEnd, PollRetry, RanFile, Reply,
    read_mounted,
};
use crate::source::{Reminder, Store};

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
    /// The file with what this pod has run.
    pub ran: RanFile,
    /// Why nothing is served yet, for `wait-ready`.
    pub not_ready: NotReady,
    /// Restarts of the containers, where they take versions so.
    pub in_place: Option<InPlace>,
}

/// Follows the hub and keeps the outlets up to date.
pub struct HubPipeline {
    client: HubClient,
    retry: PollRetry,
    intake: Intake,
    reporter: Reporter,
    containers: watch::Sender<Containers>,
    reminder: Reminder,
}

impl HubPipeline {
    /// A pipeline that has not polled yet.
    pub fn new(parts: HubParts) -> Self {
        let HubParts { client, poll_interval, local_versions, store, outlets, last_good, ran, not_ready, in_place } =
            parts;
        let containers = watch::Sender::default();
        let contact = Contact::new(local_versions.order().to_vec());
        let reporter = Reporter::new(contact, containers.subscribe(), &outlets);
        let (keeper, pods) = (Keeper::new(last_good), containers.subscribe());
        let parts = IntakeParts { store, outlets, keeper, not_ready, containers: pods, ran, in_place };
        let (retry, intake) = (PollRetry::new(poll_interval), Intake::new(local_versions, parts));
        Self { client, retry, intake, reporter, containers, reminder: Reminder::default() }
    }

    /// The pod's containers as the hub reports them.
    pub fn containers(&self) -> watch::Receiver<Containers> {
        self.containers.subscribe()
    }

    /// `ETag` of the dictionary that this agent would serve if it restarted now.
    pub fn watch_kept_etag(&self) -> watch::Receiver<Option<String>> {
        self.intake.keeper.watch_kept_etag()
    }

    /// Takes the last good contents, and for the other configs the mounted versions. Serves them if no config is missing.
    pub async fn start(&mut self, mounted: Option<&Path>) {
        let Intake { local_versions, keeper, not_ready, .. } = &mut self.intake;
        not_ready.say("the hub has not been polled yet");
        let mut readings = match keeper.file().load() {
            Ok(None) => Vec::new(),
            Ok(Some(reply)) => local_versions.take(reply).readings,
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
        for config in local_versions.order().to_vec() {
            let known = readings.iter().any(|reading| reading.config == config);
            let Some(dir) = mounted.filter(|_| !known) else { continue };
            match read_mounted(dir, &config) {
                Ok((version, block)) => readings.extend(local_versions.take_mounted(&config, version, block)),
                Err(error) => tracing::warn!(%config, %error, "mounted version not used"),
            }
        }
        if !readings.is_empty() {
            self.intake.begin(readings, restored).await;
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

    /// Waits for the next poll. Reports what is due, and does what else comes next.
    async fn wait(&mut self, next: NextPoll) {
        let until = Instant::now() + next.after;
        loop {
            let connection = self.client.connections();
            tokio::select! {
                biased;
                () = self.reporter.wait_until_due(connection) => {
                    self.reporter.send(&mut self.client).await;
                    if next.reports {
                        return;
                    }
                }
                work = self.intake.next() => {
                    self.intake.work(work).await;
                    if self.intake.polls_anew() {
                        return;
                    }
                }
                () = sleep_until(until) => return,
            }
        }
    }

    /// Polls the hub, and meanwhile does what else comes next. Ends a poll that is held when a report is due; returns whether
    /// it has.
    async fn poll(&mut self, wait_seconds: u32) -> (Result<Answer, Failure>, bool) {
        let request = self.intake.request(wait_seconds);
        let Self { client, reporter, intake, .. } = self;
        let (connection, interrupt) = (client.connections(), client.interrupt());
        let poll = client.poll(&request);
        tokio::pin!(poll);
        let mut interrupted = false;
        loop {
            tokio::select! {
                answer = &mut poll => return (answer, interrupted),
                work = intake.next() => {
                    intake.work(work).await;
                    if intake.polls_anew() && !interrupted {
                        interrupt.ask();
                        interrupted = true;
                    }
                }
                () = reporter.wait_until_due(connection), if wait_seconds > 0 && !interrupted => {
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
            Err(failure) => failure.kind == FailureKind::Malformed,
        };
        let (answered, fault) = match answer {
            Ok(Answer::Unchanged) if interrupted => (PollEnd::Interrupted, None),
            Ok(Answer::Unchanged) => (PollEnd::Unchanged, None),
            Ok(Answer::Changed(reply)) => {
                let before = (self.intake.local_versions.request(0), self.containers.borrow().clone());
                let fault = self.take(*reply).await;
                let after = (self.intake.local_versions.request(0), self.containers.borrow().clone());
                let end = if before == after {
                    PollEnd::Repeated
                } else if !is_own(&before.0, &after.0) && before.1 == after.1 {
                    if interrupted { PollEnd::Interrupted } else { PollEnd::Unchanged }
                } else {
                    PollEnd::Changed
                };
                (end, fault.map(|fault| Failure::new(FailureKind::Malformed, fault)))
            }
            Err(failure) => (PollEnd::Unchanged, Some(failure)),
        };
        let end = fault.as_ref().map_or(answered, PollEnd::Failed);
        let outcome = match end {
            PollEnd::Unchanged | PollEnd::Interrupted => "unchanged",
            PollEnd::Changed | PollEnd::Repeated => "changed",
            PollEnd::Failed(failure) => failure.kind.as_str(),
        };
        self.intake.delivery.outlets().metrics.record_call(HubCall::Poll, outcome);
        if fault.is_some() {
            self.client.close();
            self.intake.serve_now().await;
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
        self.containers.send_if_modified(|known| {
            let differs = **known != containers;
            *known = Arc::new(containers);
            differs
        });
        let fault = self.intake.take(reply).await;
        let contact = &mut self.reporter.contact;
        contact.report_every = Duration::from_secs(u64::from(report_seconds));
        contact.take_revisions(self.intake.local_versions.revisions());
        fault
    }

    fn note_contact(&mut self, connected: bool, fault: Option<&Failure>, next: NextPoll) {
        let status = &self.intake.delivery.outlets().status;
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
                if !self.intake.serves() {
                    self.intake.not_ready.say(&failure.message);
                }
            }
            None if !self.reporter.contact.connected => tracing::info!("contact with the hub established"),
            None => {}
        }
        let trouble =
            fault.filter(|failure| failure.kind == FailureKind::Malformed).map(|failure| failure.message.clone());
        self.reporter.contact.note(connected, trouble);
    }
}

/// Returns whether more differs between what the agent holds before and after a reply than revisions, which grow with what concerns other pods.
fn is_own(before: &PollRequest, after: &PollRequest) -> bool {
    let without = |request: &PollRequest| {
        let mut request = request.clone();
        request.configs.iter_mut().for_each(|held| held.revision = 0);
        request
    };
    without(before) != without(after)
}
