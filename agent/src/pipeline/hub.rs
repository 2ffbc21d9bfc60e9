//! Follows the hub, in a pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, PollRequest};
use nudge_protocol::status::ContactStatus;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::IntakeParts;
use super::intake::Intake;
use super::report::{Contact, Reporter};
use crate::metrics::HubCall;
use crate::notify::Containers;
use crate::source::FaultReminder;
use crate::source::hub::{
    FailureKind, HubClient, HubFailure, NextPoll, PollAnswer, PollEnd, PollReply, PollRetry, read_mounted,
};
use crate::unsorted_map::map;

/// The pipeline that follows the hub and keeps the outlets up to date.
pub struct HubPipeline {
    client: HubClient,
    retry: PollRetry,
    intake: Intake,
    reporter: Reporter,
    containers: watch::Sender<Containers>,
    reminder: FaultReminder,
}

/// A poll that has ended.
struct FinishedPoll {
    answer: Result<PollAnswer, HubFailure>,
    /// Whether this agent has interrupted the poll.
    interrupted: bool,
    /// The wait that the poll requested.
    wait_seconds: u32,
    elapsed: Duration,
}

impl HubPipeline {
    /// Creates a pipeline that has not polled yet. `poll_interval` is the time between polls that are not held.
    pub fn new(client: HubClient, poll_interval: Duration, parts: IntakeParts) -> Self {
        let containers = watch::Sender::default();
        let contact = Contact::new(parts.local_versions.order().to_vec());
        let reporter = Reporter::new(contact, containers.subscribe(), &parts.outlets);
        let (retry, intake) = (PollRetry::new(poll_interval), Intake::new(parts, containers.subscribe()));
        Self { client, retry, intake, reporter, containers, reminder: FaultReminder::default() }
    }

    /// Returns the pod's containers as the hub reports them.
    pub fn containers(&self) -> watch::Receiver<Containers> {
        self.containers.subscribe()
    }

    /// Returns the `ETag` of the dictionary that this agent would serve if it restarted now.
    pub fn watch_kept_etag(&self) -> watch::Receiver<Option<String>> {
        self.intake.keeper.watch_kept_etag()
    }

    /// Takes in the last good contents, and for the other configs the mounted versions. Serves them if no config is
    /// missing, and none waits for the hub to compare its Secrets.
    pub async fn start(&mut self, mounted: Option<&Path>) {
        let Intake { local_versions, keeper, not_ready, .. } = &mut self.intake;
        not_ready.set_reason("the hub has not been polled yet");
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
            let is_restored = readings.iter().any(|reading| reading.config == config);
            let Some(dir) = mounted.filter(|_| !is_restored) else { continue };
            match read_mounted(dir, &config) {
                Ok(version) => readings.extend(local_versions.take_mounted(&config, version)),
                Err(error) => tracing::warn!(%config, %error, "mounted version not used"),
            }
        }
        if !readings.is_empty() {
            self.intake.start(readings, restored).await;
        }
    }

    /// Follows the hub until dropped.
    pub async fn run(mut self) {
        let mut next = PollRetry::first();
        loop {
            self.wait(next).await;
            // Over a new connection the answer to a poll that is not held shows at once whether there is contact.
            let wait_seconds = if self.client.is_open() { next.wait_seconds } else { 0 };
            let poll = self.poll(wait_seconds).await;
            next = self.finish(poll).await;
        }
    }

    /// Waits for the next poll. Sends reports that are due, and does other work.
    async fn wait(&mut self, next: NextPoll) {
        let until = Instant::now() + next.after;
        loop {
            let connection = self.client.connections();
            tokio::select! {
                biased;
                () = self.reporter.wait_until_due(connection) => {
                    self.reporter.send(&mut self.client).await;
                    if next.follows_report {
                        return;
                    }
                }
                work = self.intake.wait_for_work() => {
                    self.intake.do_work(work).await;
                    if self.intake.polls_again() {
                        return;
                    }
                }
                () = sleep_until(until) => return,
            }
        }
    }

    /// Polls the hub, and does other work during the poll. Interrupts a held poll when a report is due.
    async fn poll(&mut self, wait_seconds: u32) -> FinishedPoll {
        let began = Instant::now();
        let request = self.intake.next_request(wait_seconds);
        let Self { client, reporter, intake, .. } = self;
        let (connection, interrupt) = (client.connections(), client.interrupt());
        let poll = client.poll(&request);
        tokio::pin!(poll);
        let mut interrupted = false;
        loop {
            tokio::select! {
                answer = &mut poll => {
                    return FinishedPoll { answer, interrupted, wait_seconds, elapsed: began.elapsed() };
                }
                work = intake.wait_for_work() => {
                    intake.do_work(work).await;
                    if intake.polls_again() && !interrupted {
                        interrupt.request();
                        interrupted = true;
                    }
                }
                () = reporter.wait_until_due(connection), if wait_seconds > 0 && !interrupted => {
                    interrupt.request();
                    interrupted = true;
                }
            }
        }
    }

    /// Takes in the answer to a poll. Returns the next poll.
    async fn finish(&mut self, poll: FinishedPoll) -> NextPoll {
        let FinishedPoll { answer, interrupted, wait_seconds, elapsed } = poll;
        let connected = match &answer {
            Ok(_) => true,
            // Something answers at this address, though not with a reply.
            Err(failure) => failure.kind == FailureKind::Malformed,
        };
        let (poll_end, failure) = match answer {
            Ok(PollAnswer::Unchanged) if interrupted => (PollEnd::Interrupted, None),
            Ok(PollAnswer::Unchanged) => (PollEnd::Unchanged, None),
            Ok(PollAnswer::Changed(reply)) => {
                let before = (self.intake.local_versions.request(0), self.containers.borrow().clone());
                let fault = self.take(*reply).await;
                let after = (self.intake.local_versions.request(0), self.containers.borrow().clone());
                let poll_end = if before == after {
                    PollEnd::Repeated
                } else if !concerns_pod(&before.0, &after.0) && before.1 == after.1 {
                    if interrupted { PollEnd::Interrupted } else { PollEnd::Unchanged }
                } else {
                    PollEnd::Changed
                };
                (poll_end, fault.map(|fault| HubFailure::new(FailureKind::Malformed, fault)))
            }
            Err(failure) => (PollEnd::Unchanged, Some(failure)),
        };
        let poll_end = failure.as_ref().map_or(poll_end, PollEnd::Failed);
        let outcome = match poll_end {
            PollEnd::Unchanged | PollEnd::Interrupted => "unchanged",
            PollEnd::Changed | PollEnd::Repeated => "changed",
            PollEnd::Failed(failure) => failure.kind.as_str(),
        };
        self.intake.delivery.outlets().metrics.count_call(HubCall::Poll, outcome);
        if failure.is_some() {
            self.client.close();
            self.intake.serve_now().await;
        }
        let next = self.retry.next(poll_end, wait_seconds, elapsed, Instant::now(), rand::random());
        self.note_contact(connected, failure.as_ref(), next);
        next
    }

    /// Takes a reply in. Subscribers are notified of its contents before anything else happens. Returns its fault.
    async fn take(&mut self, reply: PollReply) -> Option<String> {
        let HubSettings { wait_seconds, report_seconds } = reply.head.settings;
        self.retry.set_wait_seconds(wait_seconds);
        let containers = reply.head.containers.iter();
        let containers = map(containers.map(|container| (container.name.clone(), container.clone())));
        self.containers.send_if_modified(|current| {
            let differs = **current != containers;
            *current = Arc::new(containers);
            differs
        });
        let fault = self.intake.take(reply).await;
        let contact = &mut self.reporter.contact;
        contact.report_interval = Duration::from_secs(u64::from(report_seconds));
        contact.revisions = self.intake.local_versions.revisions();
        fault
    }

    fn note_contact(&mut self, connected: bool, failure: Option<&HubFailure>, next: NextPoll) {
        let status = &self.intake.delivery.outlets().status;
        let failures = self.retry.failures();
        let contact = ContactStatus {
            connected,
            failures,
            reason: failure.map(|failure| failure.kind.as_str().to_owned()).unwrap_or_default(),
            message: failure.map(|failure| failure.message.clone()).unwrap_or_default(),
            interval: self.retry.is_by_interval(),
        };
        status.set_contact(contact, failure.is_none().then(std::time::Instant::now));
        let is_reminder_due = self.reminder.is_due(failure.is_some(), std::time::Instant::now());
        match failure {
            Some(failure) => {
                if failures == 1 || is_reminder_due {
                    let age_seconds = status.age_seconds(std::time::Instant::now());
                    let (reason, error) = (failure.kind.as_str(), &failure.message);
                    tracing::warn!(reason, error, failures, age_seconds, "poll of the hub failed; retrying");
                }
                tracing::debug!(reason = failure.kind.as_str(), after = ?next.after, "next poll planned");
                if !self.intake.is_serving() {
                    self.intake.not_ready.set_reason(&failure.message);
                }
            }
            None if !self.reporter.contact.connected => tracing::info!("contact with the hub established"),
            None => {}
        }
        let malformed = failure.filter(|failure| failure.kind == FailureKind::Malformed);
        self.reporter.contact.trouble = malformed.map(|failure| failure.message.clone());
        self.reporter.contact.connected = connected;
    }
}

/// Returns whether a reply concerns this pod: whether the polls before and after it differ in more than revisions,
/// which also grow with changes for other pods.
fn concerns_pod(before: &PollRequest, after: &PollRequest) -> bool {
    let pod_request = |request: &PollRequest| {
        let mut request = request.clone();
        request.configs.iter_mut().for_each(|held| held.revision = 0);
        request
    };
    pod_request(before) != pod_request(after)
}
