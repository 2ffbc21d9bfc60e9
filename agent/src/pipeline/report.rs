//! Reports to the hub what the pod runs and how its containers took it.
//!
//! The first report goes out at once. Later changes are collected until the hub takes another one. Reports have a connection of their
//! own, since the poll holds the other one; it is closed when there is nothing to report.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, ReportRequest, ReportedConfig, ReportedContainer, ReportedProblem};
use nudge_protocol::status::{ContainerStatus, Outcome, ProblemReason};
use nudge_protocol::{Ack, ConfigName, ContainerName, Notify};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Outlets;
use crate::metrics::{HubCall, Metrics};
use crate::notify::{Containers, Webhooks};
use crate::publish::{Current, Published};
use crate::source::hub::{Failure, HubClient, retry_wait};
use crate::status::StatusPage;

/// The contact with the hub, as the polls find it.
#[derive(Clone, Debug)]
pub struct Contact {
    /// The hub answers.
    pub connected: bool,
    /// Counts up whenever it answers again: a hub that was away may have lost earlier reports.
    pub epoch: u64,
    /// The shortest time between two reports.
    pub report_every: Duration,
    /// The configs in the order of merging.
    order: Vec<ConfigName>,
    /// Uid and revision of each.
    revisions: BTreeMap<ConfigName, (String, u64)>,
    /// Why the agent can't take in replies that arrive.
    trouble: Option<String>,
}

impl Contact {
    /// Before the first answer.
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

    /// Takes in uid and revision of each config from the last head. Returns whether that changes anything.
    pub fn take_revisions(&mut self, revisions: BTreeMap<ConfigName, (String, u64)>) -> bool {
        let differs = self.revisions != revisions;
        self.revisions = revisions;
        differs
    }
}

/// When the next report goes out. Pure.
#[derive(Clone, Copy, Debug)]
enum Cadence {
    /// At once: none was sent yet.
    First,
    /// After the hub's shortest time between two reports.
    Sent { at: Instant },
    /// Again, after so many failures in a row.
    Failed { failures: u32, retry_at: Instant },
}

impl Cadence {
    fn due(self, every: Duration, now: Instant) -> Instant {
        match self {
            Self::First => now,
            Self::Sent { at } => at + every,
            Self::Failed { retry_at, .. } => retry_at,
        }
    }

    fn failures(self) -> u32 {
        if let Self::Failed { failures, .. } = self { failures } else { 0 }
    }

    fn failed(self, failure: &Failure, now: Instant, random: f64) -> Self {
        let failures = self.failures().saturating_add(1);
        Self::Failed { failures, retry_at: now + retry_wait(failure, failures, random) }
    }
}

/// The timestamp of a report that goes out now: later than the last one, also when the clock is set back. Pure.
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
    hooks: Webhooks,
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
        let mut cadence = Cadence::First;
        let mut reported: Option<(u64, ReportRequest)> = None;
        let mut second = 0;
        loop {
            // Containers are notified first, so that the report has the outcomes that are known at once.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let contact = self.contact.borrow_and_update().clone();
            self.changes.mark_unchanged();
            let report = self.report(&contact);
            let epoch = contact.epoch;
            if !contact.connected || reported.as_ref() == Some(&(epoch, report.clone())) {
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
                    cadence = Cadence::Sent { at: Instant::now() };
                    reported = Some((epoch, report));
                }
                Err(failure) => {
                    self.metrics.asked(HubCall::Report, failure.kind.as_str());
                    cadence = cadence.failed(&failure, Instant::now(), rand::random());
                    if cadence.failures() == 1 {
                        let reason = failure.kind.as_str();
                        tracing::warn!(reason, error = failure.message, "report to the hub failed; retrying");
                    }
                }
            }
        }
    }

    /// Waits until something changes that is part of a report.
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
        let mut containers: Vec<ReportedContainer> = self
            .status
            .containers(etag)
            .into_iter()
            .filter(|container| container.notify != Notify::None && !ended(&container.name))
            .map(reported)
            .collect();
        let without_container = self.hooks.list(etag).into_iter().filter(|webhook| webhook.container.is_none());
        containers.extend(without_container.filter_map(|webhook| {
            let delivered =
                webhook.notified.outcome == Outcome::Delivered && webhook.notified.etag.as_deref() == Some(etag);
            Some(ReportedContainer {
                // `hook_…` is no container's name, and no container has one that begins with `hook-` and 24 digits.
                name: ContainerName::new(&webhook.id.replace('_', "-")).ok()?,
                notify: Notify::Webhook,
                ack: Ack::Delivered,
                outcome: webhook.notified.outcome,
                message: webhook.notified.message,
                acknowledged: delivered || webhook.notified.outcome == Outcome::NothingYet,
            })
        }));
        ReportRequest {
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            configs: self.configs(contact, published.as_deref()),
            acknowledged: published.is_some() && containers.iter().all(|container| container.acknowledged),
            containers,
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

/// One container. One that was not notified of anything yet has the version it started with.
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
        assert_eq!(Cadence::First.due(every, start), start);
        let cadence = Cadence::Sent { at: start };
        assert_eq!(cadence.due(every, start), start + every);
        let failure = Failure::new(Kind::Lost, "");
        let cadence = cadence.failed(&failure, start, 1.0).failed(&failure, start, 1.0);
        assert_eq!(cadence.due(every, start), start + Duration::from_secs(2));
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
