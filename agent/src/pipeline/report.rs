//! Reports to the hub the versions that the pod runs, and how its containers took them.
//!
//! A report follows each change, and each new connection, since that may lead to another replica. It goes over the
//! connection of the polls. A pending outcome is reported only after a while: most outcomes are known in a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use nudge_protocol::hub::{HubSettings, ReportRequest, ReportedConfig, ReportedContainer, ReportedProblem};
use nudge_protocol::status::{ContainerStatus, Outcome, ProblemReason};
use nudge_protocol::{Ack, ConfigName, ContainerName, Notify};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Outlets;
use crate::content::ConfigView;
use crate::metrics::HubCall;
use crate::notify::Containers;
use crate::publish::{Current, Published};
use crate::source::hub::{HubClient, HubFailure, Revision, retry_wait};

/// The delay of a report that says only that the outcome is pending.
const PENDING_REPORT_DELAY: Duration = Duration::from_secs(2);

/// The contact with the hub, as the polls find it.
#[derive(Clone, Debug)]
pub(super) struct Contact {
    /// Whether the hub answers.
    pub(super) connected: bool,
    /// The shortest time between two reports.
    pub(super) report_interval: Duration,
    /// The configs in the order of merging.
    order: Vec<ConfigName>,
    /// The revision of each config in the last head.
    pub(super) revisions: BTreeMap<ConfigName, Revision>,
    /// The reason why the agent can't take in replies that arrive.
    pub(super) trouble: Option<String>,
}

impl Contact {
    /// Returns the contact before the first answer.
    pub(super) fn new(order: Vec<ConfigName>) -> Self {
        let report_interval = Duration::from_secs(u64::from(HubSettings::default().report_seconds));
        Self { connected: false, report_interval, order, revisions: BTreeMap::new(), trouble: None }
    }
}

/// The time of the next report. Does no I/O.
#[derive(Clone, Copy, Debug)]
enum Cadence {
    /// At once: no report was sent yet.
    First,
    /// After the hub's shortest time between two reports.
    Sent { at: Instant },
    /// At the next attempt, after failures in a row.
    Failed { failures: u32, retry_at: Instant },
}

impl Cadence {
    fn due_at(self, interval: Duration, now: Instant) -> Instant {
        match self {
            Self::First => now,
            Self::Sent { at } => at + interval,
            Self::Failed { retry_at, .. } => retry_at,
        }
    }

    fn failures(self) -> u32 {
        if let Self::Failed { failures, .. } = self { failures } else { 0 }
    }

    fn after_failure(self, failure: &HubFailure, now: Instant, random: f64) -> Self {
        let failures = self.failures().saturating_add(1);
        Self::Failed { failures, retry_at: now + retry_wait(failure, failures, random) }
    }
}

/// Returns the timestamp of a report that goes out now: later than the last one, also when the clock is set back. Does
/// no I/O.
fn timestamp_after(last: i64, now: OffsetDateTime) -> i64 {
    now.unix_timestamp().max(last.saturating_add(1))
}

/// The dictionary that all subscribers acknowledged last.
struct AcknowledgedDictionary {
    etag: String,
    configs: Vec<ConfigView>,
}

impl AcknowledgedDictionary {
    /// Returns whether the subscribers already have this config, though they have not acknowledged the dictionary with
    /// `etag`: the config was the same in the dictionary that they acknowledged before. Does no I/O.
    fn has(&self, config: &ConfigView, etag: &str) -> bool {
        self.etag != etag && self.configs.contains(config)
    }
}

/// The report that was sent last.
struct LastReport {
    /// The number of the connection that it was sent over.
    connection: u64,
    report: ReportRequest,
}

/// The maker of reports to the hub.
pub(super) struct Reporter {
    /// The contact with the hub.
    pub(super) contact: Contact,
    containers: watch::Receiver<Containers>,
    changes: watch::Receiver<()>,
    current: Current,
    outlets: Outlets,
    cadence: Cadence,
    last: Option<LastReport>,
    acknowledged: Option<AcknowledgedDictionary>,
    /// The time since which the outcome has been pending.
    pending_since: Option<Instant>,
    /// The timestamp of the last report.
    timestamp: i64,
}

impl Reporter {
    /// Creates a reporter that has reported nothing yet.
    pub(super) fn new(contact: Contact, containers: watch::Receiver<Containers>, outlets: &Outlets) -> Self {
        Self {
            contact,
            containers,
            changes: outlets.status.changes(),
            current: outlets.current.subscribe(),
            outlets: outlets.clone(),
            cadence: Cadence::First,
            last: None,
            acknowledged: None,
            pending_since: None,
            timestamp: 0,
        }
    }

    /// Waits until a report is due over this connection.
    pub(super) async fn wait_until_due(&mut self, connection: u64) {
        loop {
            self.changes.mark_unchanged();
            let report = self.build_report();
            let is_new = |last: &LastReport| last.connection != connection || !is_same(&last.report, &report);
            if !self.contact.connected || !self.last.as_ref().is_none_or(is_new) {
                self.pending_since = None;
                self.wait_for_change().await;
                continue;
            }
            let now = Instant::now();
            self.pending_since = is_pending(&report).then(|| *self.pending_since.get_or_insert(now));
            let settled = self.pending_since.map_or(now, |since| since + PENDING_REPORT_DELAY);
            let due = self.cadence.due_at(self.contact.report_interval, now).max(settled);
            if due <= now {
                return;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.wait_for_change() => {}
            }
        }
    }

    /// Sends a report of the present state.
    pub(super) async fn send(&mut self, client: &mut HubClient) {
        let report = self.build_report();
        self.timestamp = timestamp_after(self.timestamp, OffsetDateTime::now_utc());
        self.pending_since = None;
        match client.report(&ReportRequest { at: self.timestamp, ..report.clone() }).await {
            Ok(()) => {
                self.outlets.metrics.count_call(HubCall::Report, "ok");
                tracing::debug!(acknowledged = report.acknowledged, "reported");
                self.cadence = Cadence::Sent { at: Instant::now() };
                self.last = Some(LastReport { connection: client.connections(), report });
            }
            Err(failure) => {
                self.outlets.metrics.count_call(HubCall::Report, failure.kind.as_str());
                self.cadence = self.cadence.after_failure(&failure, Instant::now(), rand::random());
                if self.cadence.failures() == 1 {
                    let reason = failure.kind.as_str();
                    tracing::warn!(reason, error = failure.message, "report to the hub failed; retrying");
                }
            }
        }
    }

    /// Waits until something changes that is part of a report.
    async fn wait_for_change(&mut self) {
        let Self { containers, changes, current, .. } = self;
        tokio::select! {
            Ok(()) = containers.changed() => {}
            Ok(()) = changes.changed() => {}
            Ok(()) = current.changed() => {}
            else => std::future::pending().await,
        }
    }

    fn build_report(&mut self) -> ReportRequest {
        let published = self.current.borrow_and_update().clone();
        let containers = self.containers.borrow_and_update().clone();
        let etag = published.as_ref().map_or("", |published| published.dictionary.etag());
        let ended = |name: &ContainerName| containers.get(name).is_some_and(|container| container.ended);
        let mut containers: Vec<ReportedContainer> = self
            .outlets
            .status
            .containers(etag)
            .into_iter()
            .filter(|container| container.notify != Notify::None && !ended(&container.name))
            .map(to_reported)
            .collect();
        let without_container = self.outlets.hooks.list(etag).into_iter().filter(|webhook| webhook.container.is_none());
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
        let acknowledged = published.is_some()
            && self.outlets.status.unwritten_configs().is_none()
            && self.outlets.status.listen_fault().is_none()
            && containers.iter().all(|container| container.acknowledged);
        if let Some(published) = &published {
            let configs = published.dictionary.configs();
            match &mut self.acknowledged {
                Some(before) if before.etag == etag => {}
                _ if acknowledged => {
                    let (etag, configs) = (etag.to_owned(), configs.to_vec());
                    self.acknowledged = Some(AcknowledgedDictionary { etag, configs });
                }
                // Some subscribers may have taken another version of a config meanwhile.
                Some(before) => before.configs.retain(|config| configs.contains(config)),
                None => {}
            }
        }
        ReportRequest {
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            configs: self.build_configs(published.as_deref(), acknowledged),
            acknowledged,
            containers,
            at: 0,
        }
    }

    /// Returns the configs in the order of the pod. A config's own problem comes before the problems of the whole pod.
    fn build_configs(&self, published: Option<&Published>, acknowledged: bool) -> Vec<ReportedConfig> {
        let contact = &self.contact;
        let status = &self.outlets.status;
        let (problems, unwritten, listen_fault) =
            (status.problems(), status.unwritten_configs(), status.listen_fault());
        let config = |name: &ConfigName| {
            let served = published.and_then(|published| {
                let view = published.dictionary.configs().iter().find(|view| view.name == *name)?;
                let has_view = |before: &AcknowledgedDictionary| before.has(view, published.dictionary.etag());
                Some((view.version.clone(), self.acknowledged.as_ref().is_some_and(has_view)))
            });
            let Revision { uid, number } = contact.revisions.get(name).cloned().unwrap_or_default();
            let problem = |reason: ProblemReason, message: &str| ReportedProblem {
                reason: reason.as_str().to_owned(),
                message: message.to_owned(),
            };
            // The version is served, and the hub compares it before it takes a report.
            let of_config = problems.get(name).filter(|of_config| of_config.reason != ProblemReason::NotCompared);
            let of_config = of_config.map(|of_config| problem(of_config.reason, &of_config.message));
            let of_files = || {
                let (_, message) = unwritten.as_ref().filter(|(configs, _)| configs.contains(name))?;
                Some(problem(ProblemReason::CantApply, message))
            };
            let of_endpoint = || listen_fault.as_ref().map(|fault| problem(fault.reason, &fault.message));
            let of_contact = || contact.trouble.as_ref().map(|trouble| problem(ProblemReason::Damaged, trouble));
            ReportedConfig {
                name: name.clone(),
                uid,
                revision: number,
                acknowledged: acknowledged || served.as_ref().is_some_and(|(_, is_acknowledged)| *is_acknowledged),
                version: served.map(|(version, _)| version),
                problem: of_config.or_else(of_files).or_else(of_endpoint).or_else(of_contact),
            }
        };
        contact.order.iter().map(config).collect()
    }
}

/// Returns whether both reports say the same about the pod. Revisions do not count: they also grow with changes for
/// other pods.
fn is_same(one: &ReportRequest, other: &ReportRequest) -> bool {
    let without_revision = |config: &ReportedConfig| ReportedConfig { revision: 0, ..config.clone() };
    let configs = |report: &ReportRequest| report.configs.iter().map(without_revision).collect::<Vec<_>>();
    (one.acknowledged, &one.containers) == (other.acknowledged, &other.containers) && configs(one) == configs(other)
}

/// Returns whether the report says only that the outcome is pending.
fn is_pending(report: &ReportRequest) -> bool {
    let is_waiting = |container: &ReportedContainer| {
        let outcome = container.outcome;
        container.acknowledged || matches!(outcome, Outcome::NothingYet | Outcome::Pending | Outcome::Delivered)
    };
    let has_problem = report.configs.iter().any(|config| config.problem.is_some());
    !report.acknowledged && !has_problem && report.containers.iter().all(is_waiting)
}

/// Converts the status of a container. A container that was not notified of anything yet has the version it started
/// with.
fn to_reported(container: ContainerStatus) -> ReportedContainer {
    let ContainerStatus { name, notify, ack, notified, acknowledged, .. } = container;
    let fresh = notified.outcome == Outcome::NothingYet && ack == Ack::Delivered;
    let (outcome, message) = (notified.outcome, notified.message);
    ReportedContainer { name, notify, ack, outcome, message, acknowledged: acknowledged || fresh }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hub::FailureKind;

    #[test]
    fn the_first_goes_out_at_once_and_the_next_after_a_while() {
        let (start, interval) = (Instant::now(), Duration::from_secs(5));
        assert_eq!(Cadence::First.due_at(interval, start), start);
        let cadence = Cadence::Sent { at: start };
        assert_eq!(cadence.due_at(interval, start), start + interval);
        let failure = HubFailure::new(FailureKind::Lost, "");
        let cadence = cadence.after_failure(&failure, start, 1.0).after_failure(&failure, start, 1.0);
        assert_eq!(cadence.due_at(interval, start), start + Duration::from_secs(2));
    }

    #[test]
    fn a_report_is_always_later_than_the_one_before() {
        let clock = |second| OffsetDateTime::from_unix_timestamp(second).unwrap();
        assert_eq!(timestamp_after(0, clock(100)), 100);
        assert_eq!(timestamp_after(100, clock(100)), 101);
        // The clock was set back.
        assert_eq!(timestamp_after(500, clock(100)), 501);
    }

    #[test]
    fn a_report_differs_by_what_the_pod_runs_and_not_by_revisions() {
        let report = |revision: u64, version: &str, acknowledged: bool| {
            let (name, version) = (ConfigName::new("shop").unwrap(), nudge_protocol::VersionName::new(version).ok());
            let uid = nudge_protocol::ConfigUid::new("u");
            let config = ReportedConfig { name, uid, revision, version, problem: None, acknowledged };
            ReportRequest { configs: vec![config], acknowledged, ..ReportRequest::default() }
        };
        assert!(is_same(&report(1, "1", true), &report(9, "1", true)));
        assert!(
            !is_same(&report(1, "1", true), &report(1, "2", true))
                && !is_same(&report(1, "1", true), &report(1, "1", false))
        );
    }

    #[test]
    fn what_subscribers_have_not_taken_says_nothing_about_configs_that_are_as_before() {
        let view = |name: &str, version: &str| ConfigView {
            name: ConfigName::new(name).unwrap(),
            version: nudge_protocol::VersionName::new(version).unwrap(),
            digest: format!("digest of {version}"),
            keys: 1,
            bytes: 1,
        };
        let before =
            AcknowledgedDictionary { etag: "old".to_owned(), configs: vec![view("shop", "1"), view("keys", "1")] };
        assert!(before.has(&view("shop", "1"), "new"));
        assert!(!before.has(&view("keys", "2"), "new") && !before.has(&view("menu", "1"), "new"));
        // A container that has restarted has to take the whole dictionary.
        assert!(!before.has(&view("shop", "1"), "old"));
    }

    #[test]
    fn only_what_may_still_become_an_acknowledgement_waits() {
        let container = |outcome: Outcome, acknowledged: bool| ReportedContainer {
            name: ContainerName::new("app").unwrap(),
            notify: Notify::Webhook,
            ack: Ack::Fetched,
            outcome,
            message: String::new(),
            acknowledged,
        };
        let report = |containers: Vec<ReportedContainer>| {
            let acknowledged = containers.iter().all(|container| container.acknowledged);
            ReportRequest { containers, acknowledged, ..ReportRequest::default() }
        };
        assert!(is_pending(&report(vec![container(Outcome::Pending, false), container(Outcome::Delivered, true)])));
        assert!(is_pending(&report(vec![container(Outcome::Delivered, false)])));
        assert!(!is_pending(&report(vec![container(Outcome::Delivered, true)])), "it is there");
        let failed = [container(Outcome::Failed, false), container(Outcome::Pending, false)];
        assert!(!is_pending(&report(failed.to_vec())), "a failure does not wait");
    }
}
