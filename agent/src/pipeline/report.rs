//! Tells the hub what the pod runs and how its containers took it.
//!
//! The first report goes out at once; what changes while the hub wants no other is told together. It has a connection of its own, for
//! the other one is held by the poll, and closes it when there is nothing more to tell.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, ReportRequest, ReportedConfig, ReportedContainer, ReportedProblem};
use nudge_protocol::status::{ContainerStatus, Outcome, ProblemReason};
use nudge_protocol::{Ack, ConfigName, ContainerName, Notify};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Outlets;
use crate::notify::{Containers, Hooks};
use crate::publish::{Current, Published};
use crate::serve::{HubCall, Metrics};
use crate::source::hub::{Failure, HubClient, pause};
use crate::status::StatusPage;

/// What reports need to know of the polls.
#[derive(Clone, Debug)]
pub struct Contact {
    /// The hub answers.
    pub connected: bool,
    /// Counts up whenever it answers again: a hub that was away may have forgotten what it was told.
    pub epoch: u64,
    /// The shortest time between two reports.
    pub report_every: Duration,
    /// The configs in the order of merging.
    order: Vec<ConfigName>,
    /// Uid and revision of each.
    revisions: BTreeMap<ConfigName, (String, u64)>,
    /// Why replies can't be taken in, though they come.
    trouble: Option<String>,
}

impl Contact {
    /// None so far.
    pub fn new(order: Vec<ConfigName>) -> Self {
        let report_every = Duration::from_secs(u64::from(HubSettings::default().report_seconds));
        Self { connected: false, epoch: 0, report_every, order, revisions: BTreeMap::new(), trouble: None }
    }

    /// Takes in how the last poll went. Returns whether that changes anything.
    pub fn note(&mut self, connected: bool, trouble: Option<String>) -> bool {
        let differs = self.connected != connected || self.trouble != trouble;
        self.epoch += u64::from(connected && !self.connected);
        (self.connected, self.trouble) = (connected, trouble);
        differs
    }

    /// Takes in what the last head said of each config. Returns whether that changes anything.
    pub fn take_revisions(&mut self, revisions: BTreeMap<ConfigName, (String, u64)>) -> bool {
        let differs = self.revisions != revisions;
        self.revisions = revisions;
        differs
    }
}

/// When the next report goes out. Pure.
#[derive(Clone, Copy, Debug, Default)]
struct Cadence {
    sent: Option<Instant>,
    failures: u32,
    again: Option<Instant>,
}

impl Cadence {
    fn due(&self, every: Duration, now: Instant) -> Instant {
        self.again.or_else(|| self.sent.map(|sent| sent + every)).unwrap_or(now)
    }

    fn sent(&mut self, now: Instant) {
        *self = Self { sent: Some(now), failures: 0, again: None };
    }

    fn failed(&mut self, failure: &Failure, now: Instant, random: f64) {
        self.failures = self.failures.saturating_add(1);
        self.again = Some(now + pause(failure, self.failures, random));
    }
}

/// The second of a report that goes out now: later than that of the last one, whatever the clock does. Pure.
fn second_after(last: i64, now: OffsetDateTime) -> i64 {
    now.unix_timestamp().max(last.saturating_add(1))
}

/// Sends the reports.
pub struct Reporter {
    client: HubClient,
    contact: watch::Receiver<Contact>,
    containers: watch::Receiver<Containers>,
    changes: watch::Receiver<()>,
    current: Current,
    status: StatusPage,
    hooks: Hooks,
    metrics: Metrics,
}

impl Reporter {
    /// Nothing is reported yet.
    pub fn new(
        client: HubClient,
        contact: watch::Receiver<Contact>,
        containers: watch::Receiver<Containers>,
        outlets: &Outlets,
    ) -> Self {
        Self {
            client,
            contact,
            containers,
            changes: outlets.status.changes(),
            current: outlets.current.subscribe(),
            status: outlets.status.clone(),
            hooks: outlets.hooks.clone(),
            metrics: outlets.metrics.clone(),
        }
    }

    /// Reports until dropped.
    pub async fn run(mut self) {
        let mut cadence = Cadence::default();
        let mut notified: Option<(u64, ReportRequest)> = None;
        let mut second = 0;
        loop {
            // Those who are being told come first, so that the report says how that went where it went at once.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let contact = self.contact.borrow_and_update().clone();
            self.changes.mark_unchanged();
            let report = self.report(&contact);
            let epoch = contact.epoch;
            if !contact.connected || notified.as_ref() == Some(&(epoch, report.clone())) {
                self.client.close();
                self.changed().await;
                continue;
            }
            let due = cadence.due(contact.report_every, Instant::now());
            if due > Instant::now() {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.changed() => {}
                }
                continue;
            }
            second = second_after(second, OffsetDateTime::now_utc());
            let result = self.client.report(&ReportRequest { at: second, ..report.clone() }).await;
            match result {
                Ok(()) => {
                    self.metrics.asked(HubCall::Report, "ok");
                    tracing::debug!(acknowledged = report.acknowledged, "reported");
                    cadence.sent(Instant::now());
                    notified = Some((epoch, report));
                }
                Err(failure) => {
                    self.metrics.asked(HubCall::Report, failure.kind.as_str());
                    cadence.failed(&failure, Instant::now(), rand::random());
                    if cadence.failures == 1 {
                        tracing::warn!(reason = failure.kind.as_str(), cause = failure.message, "not reported yet");
                    }
                }
            }
        }
    }

    /// Something has changed that may stand in a report.
    async fn changed(&mut self) {
        let Self { contact, containers, changes, current, .. } = self;
        tokio::select! {
            Ok(()) = contact.changed() => {}
            Ok(()) = containers.changed() => {}
            Ok(()) = changes.changed() => {}
            Ok(()) = current.changed() => {}
            else => std::future::pending().await,
        }
    }

    fn report(&mut self, contact: &Contact) -> ReportRequest {
        let published = self.current.borrow_and_update().clone();
        let containers = self.containers.borrow_and_update().clone();
        let etag = published.as_ref().map_or("", |published| published.dictionary.etag());
        let ended = |name: &ContainerName| containers.get(name).is_some_and(|container| container.ended);
        let mut notified: Vec<ReportedContainer> = self
            .status
            .containers(etag)
            .into_iter()
            .filter(|container| container.notify != Notify::None && !ended(&container.name))
            .map(reported)
            .collect();
        let free = self.hooks.list(etag).into_iter().filter(|hook| hook.container.is_none());
        notified.extend(free.filter_map(|hook| {
            let delivered = hook.notified.outcome == Outcome::Delivered && hook.notified.etag.as_deref() == Some(etag);
            Some(ReportedContainer {
                // `hook_…` is no container's name, and no container has one that begins with `hook-` and 24 digits.
                name: ContainerName::new(&hook.id.replace('_', "-")).ok()?,
                notify: Notify::Webhook,
                ack: Ack::Delivered,
                outcome: hook.notified.outcome,
                message: hook.notified.message,
                acknowledged: delivered || hook.notified.outcome == Outcome::NothingYet,
            })
        }));
        ReportRequest {
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            configs: self.configs(contact, published.as_deref()),
            acknowledged: published.is_some() && notified.iter().all(|container| container.acknowledged),
            containers: notified,
            at: 0,
        }
    }

    fn configs(&self, contact: &Contact, published: Option<&Published>) -> Vec<ReportedConfig> {
        let problems = self.status.problems();
        let config = |name: &ConfigName| {
            let served = published.and_then(|published| {
                published.dictionary.configs().iter().find(|view| view.name == *name).map(|view| view.version.clone())
            });
            let (uid, revision) = contact.revisions.get(name).cloned().unwrap_or_default();
            let problem = |reason: ProblemReason, message: &str| ReportedProblem {
                reason: reason.as_str().to_owned(),
                message: message.to_owned(),
            };
            let own = problems.get(name).map(|found| problem(found.reason, &found.message));
            let trouble = || contact.trouble.as_ref().map(|trouble| problem(ProblemReason::Damaged, trouble));
            ReportedConfig { name: name.clone(), uid, revision, version: served, problem: own.or_else(trouble) }
        };
        contact.order.iter().map(config).collect()
    }
}

/// One container. One that was told nothing yet has what it started with.
fn reported(container: ContainerStatus) -> ReportedContainer {
    let ContainerStatus { name, notify, ack, notified, acknowledged, .. } = container;
    let fresh = notified.outcome == Outcome::NothingYet && ack == Ack::Delivered;
    let (outcome, message) = (notified.outcome, notified.message);
    ReportedContainer { name, notify, ack, outcome, message, acknowledged: acknowledged || fresh }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hub::Kind;

    #[test]
    fn the_first_goes_out_at_once_and_the_next_after_a_while() {
        let (start, every) = (Instant::now(), Duration::from_secs(5));
        let mut cadence = Cadence::default();
        assert_eq!(cadence.due(every, start), start);
        cadence.sent(start);
        assert_eq!(cadence.due(every, start), start + every);
        let failure = Failure::new(Kind::Lost, "");
        cadence.failed(&failure, start, 1.0);
        cadence.failed(&failure, start, 1.0);
        assert_eq!(cadence.due(every, start), start + Duration::from_secs(2));
        cadence.sent(start);
        assert_eq!(cadence.failures, 0);
    }

    #[test]
    fn a_report_is_always_later_than_the_one_before() {
        let clock = |second| OffsetDateTime::from_unix_timestamp(second).unwrap();
        assert_eq!(second_after(0, clock(100)), 100);
        assert_eq!(second_after(100, clock(100)), 101);
        // The clock was set back.
        assert_eq!(second_after(500, clock(100)), 501);
    }

    #[test]
    fn contact_counts_how_often_it_came_back() {
        let mut contact = Contact::new(Vec::new());
        assert!(contact.note(true, None) && !contact.note(true, None));
        assert!(contact.note(false, None) && contact.note(true, None));
        assert_eq!(contact.epoch, 2);
    }
}
