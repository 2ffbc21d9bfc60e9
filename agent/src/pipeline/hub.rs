//! Follows the hub, in a pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nudge_protocol::hub::HubSettings;
use nudge_protocol::status::ContactStatus;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::report::Contact;
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
    last_good: LastGood,
    not_ready: NotReady,
    served: bool,
    /// Taken in and not served yet, because the rest of the configs may arrive in a moment.
    withheld: Applied,
    contact: watch::Sender<Contact>,
    containers: watch::Sender<Containers>,
    reminder: Reminder,
    /// `ETag` of the dictionary that would be served after a restart.
    kept: watch::Sender<Option<String>>,
}

impl HubPipeline {
    /// A pipeline that has not polled yet.
    pub fn new(parts: HubParts) -> Self {
        let HubParts { client, poll_interval, local_versions, store, outlets, last_good, not_ready } = parts;
        Self {
            client,
            retry: PollRetry::new(poll_interval),
            contact: watch::Sender::new(Contact::new(local_versions.order().to_vec())),
            local_versions,
            store,
            delivery: Delivery::new(outlets),
            last_good,
            not_ready,
            served: false,
            withheld: Applied::default(),
            containers: watch::Sender::default(),
            reminder: Reminder::default(),
            kept: watch::Sender::default(),
        }
    }

    /// The contact with the hub, for the reports.
    pub fn contact(&self) -> watch::Receiver<Contact> {
        self.contact.subscribe()
    }

    /// The pod's containers as the hub reports them.
    pub fn containers(&self) -> watch::Receiver<Containers> {
        self.containers.subscribe()
    }

    /// `ETag` of the dictionary that this agent would serve if it restarted now.
    pub fn kept(&self) -> watch::Receiver<Option<String>> {
        self.kept.subscribe()
    }

    /// Takes the last good contents, and for the other configs the mounted versions. Serves them if no config is missing.
    pub async fn start(&mut self, mounted: Option<&Path>) {
        self.not_ready.say("the hub has not been polled yet");
        let mut readings = match self.last_good.load() {
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
                self.mark_kept();
            }
        }
    }

    /// Follows the hub until dropped.
    pub async fn run(mut self) {
        let mut next = PollRetry::first();
        loop {
            let until = Instant::now() + next.after;
            while Instant::now() < until {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = self.delivery.files_due() => self.delivery.deliver().await,
                }
            }
            let began = Instant::now();
            let answer = self.poll(next).await;
            next = self.digest(answer, next.wait_seconds, began.elapsed()).await;
        }
    }

    /// Polls the hub, and meanwhile writes files that are still to be written.
    async fn poll(&mut self, next: NextPoll) -> Result<Answer, Failure> {
        let request = self.local_versions.request(next.wait_seconds);
        let Self { client, delivery, .. } = self;
        let poll = client.poll(&request);
        tokio::pin!(poll);
        loop {
            tokio::select! {
                answer = &mut poll => return answer,
                () = delivery.files_due() => delivery.deliver().await,
            }
        }
    }

    /// Takes an answer in. Returns the next poll.
    async fn digest(&mut self, answer: Result<Answer, Failure>, asked: u32, took: Duration) -> NextPoll {
        let connected = match &answer {
            Ok(_) => true,
            // Something answers there, though not with a reply.
            Err(failure) => failure.kind == Kind::Malformed,
        };
        let (answered, fault) = match answer {
            Ok(Answer::Unchanged) => (PollEnd::Unchanged, None),
            Ok(Answer::Changed(reply)) => {
                let before = (self.local_versions.request(0), self.containers.borrow().clone());
                let fault = self.take(*reply).await;
                let repeated = before == (self.local_versions.request(0), self.containers.borrow().clone());
                let end = if repeated { PollEnd::Repeated } else { PollEnd::Changed };
                (end, fault.map(|fault| Failure::new(Kind::Malformed, fault)))
            }
            Err(failure) => (PollEnd::Unchanged, Some(failure)),
        };
        let end = fault.as_ref().map_or(answered, PollEnd::Failed);
        let outcome = match end {
            PollEnd::Unchanged => "unchanged",
            PollEnd::Changed | PollEnd::Repeated => "changed",
            PollEnd::Failed(failure) => failure.kind.as_str(),
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
        self.contact.send_if_modified(|contact| {
            contact.report_every = Duration::from_secs(u64::from(report_seconds));
            contact.take_revisions(self.local_versions.revisions())
        });
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
            let (file, (head, blocks)) = (self.last_good.clone(), self.local_versions.last_good());
            let stored = tokio::task::spawn_blocking(move || file.store(&head, &blocks)).await;
            match stored {
                Ok(Ok(())) => self.mark_kept(),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "last good contents not stored; a restart of this agent loses them");
                }
                Err(error) => tracing::error!(%error, "last good contents not stored, which is a bug"),
            }
        }
    }

    /// The dictionary that is served now would be served after a restart.
    fn mark_kept(&self) {
        let served = self.delivery.outlets().current.borrow().as_ref().map(|now| now.dictionary.etag().to_owned());
        self.kept.send_replace(served);
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
            None if !self.contact.borrow().connected => tracing::info!("contact with the hub established"),
            None => {}
        }
        let trouble = fault.filter(|failure| failure.kind == Kind::Malformed).map(|failure| failure.message.clone());
        self.contact.send_if_modified(|contact| contact.note(connected, trouble));
    }
}
