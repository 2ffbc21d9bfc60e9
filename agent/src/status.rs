//! The status of the agent's own work, for `/status` and the reports to the hub.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use nudge_protocol::expectation::Expectation;
use nudge_protocol::mutex::lock;
use nudge_protocol::status::{
    ConfigStatus, ContactStatus, ContainerStatus, FilesStatus, NotificationStatus, Outcome, Problem, Status,
    UnservedConfig,
};
use nudge_protocol::webhooks::WebhookView;
use nudge_protocol::{Ack, ConfigName, ContainerName, KeyPattern, Notify};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::publish::Published;
use crate::source::SourceFault;

/// A container that the agent serves.
#[derive(Clone, Debug)]
pub struct Container {
    /// The name in the pod's spec.
    pub name: ContainerName,
    /// The way to notify the container.
    pub notify: Notify,
    /// The event that counts as its acknowledgement.
    pub ack: Ack,
    /// The patterns of the keys that the container reads; empty if it reads all keys.
    pub keys: Vec<KeyPattern>,
    /// What the container must show after a notification, if anything.
    pub verify: Option<Expectation>,
}

#[derive(Debug)]
struct ContainerRow {
    container: Container,
    notified: NotificationStatus,
    fetched: Option<String>,
}

#[derive(Debug)]
struct StatusFacts {
    /// The time when the source was last read without fault.
    confirmed: Instant,
    contact: Option<ContactStatus>,
    since: BTreeMap<ConfigName, OffsetDateTime>,
    problems: BTreeMap<ConfigName, Problem>,
    containers: Vec<ContainerRow>,
    files: Option<FilesStatus>,
    /// The configs whose files are not those that are served.
    unwritten: Vec<ConfigName>,
    /// The faults of the addresses that the endpoint can't listen on.
    listen_faults: BTreeMap<SocketAddr, SourceFault>,
}

/// The status, which all parts of the agent share. Every method is short and never waits for another method.
#[derive(Clone, Debug)]
pub struct StatusPage {
    source: &'static str,
    facts: Arc<Mutex<StatusFacts>>,
    changes: watch::Sender<()>,
}

impl StatusPage {
    /// Creates the status before anything has happened. The source counts as read `now`.
    pub fn new(source: &'static str, containers: Vec<Container>, now: Instant) -> Self {
        let row = |container| ContainerRow { container, notified: NotificationStatus::default(), fetched: None };
        let facts = StatusFacts {
            confirmed: now,
            contact: None,
            since: BTreeMap::new(),
            problems: BTreeMap::new(),
            containers: containers.into_iter().map(row).collect(),
            files: None,
            unwritten: Vec::new(),
            listen_faults: BTreeMap::new(),
        };
        Self { source, facts: Arc::new(Mutex::new(facts)), changes: watch::Sender::new(()) }
    }

    fn facts(&self) -> MutexGuard<'_, StatusFacts> {
        // Every change below is one assignment, so no panic elsewhere leaves it incomplete.
        lock(&self.facts)
    }

    /// Changes the facts, and announces the change.
    fn change(&self, change: impl FnOnce(&mut StatusFacts)) {
        change(&mut self.facts());
        self.changes.send_replace(());
    }

    /// Returns a receiver of the changes of everything that is part of a report to the hub.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Sets the contact with the hub; `confirmed` is the time of its answer, if it has answered.
    pub fn set_contact(&self, contact: ContactStatus, confirmed: Option<Instant>) {
        let mut facts = self.facts();
        facts.confirmed = confirmed.unwrap_or(facts.confirmed);
        facts.contact = Some(contact);
    }

    /// Sets the result of a read of the source. `problems` has the configs that the source can't provide; `confirmed`
    /// is set if the source was read without fault.
    pub fn set_source(
        &self,
        since: &BTreeMap<ConfigName, OffsetDateTime>,
        problems: &BTreeMap<ConfigName, Problem>,
        confirmed: Option<Instant>,
    ) {
        self.change(|facts| {
            facts.since.clone_from(since);
            facts.problems.clone_from(problems);
            facts.confirmed = confirmed.unwrap_or(facts.confirmed);
        });
    }

    /// Returns the seconds since the source was last read without fault.
    pub fn age_seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.facts().confirmed).as_secs()
    }

    /// Returns the present problems, by config.
    pub fn problems(&self) -> BTreeMap<ConfigName, Problem> {
        self.facts().problems.clone()
    }

    /// Marks the containers that will now be notified of the dictionary with `etag`: all with a signal, and the
    /// containers in `with_webhooks`. A container that reads none of the `changed` keys will not be notified, if it has
    /// the dictionary before, with `etag_before`.
    pub fn begin_notifying(&self, etag_before: &str, etag: &str, changed: &[String], with_webhooks: &[ContainerName]) {
        self.change(|facts| {
            for row in &mut facts.containers {
                let Container { name, notify, .. } = &row.container;
                if notify.signal().is_some() || (*notify == Notify::Webhook && with_webhooks.contains(name)) {
                    let is_unchanged = row.has_dictionary(etag_before) && !row.container.reads_any(changed);
                    let outcome = if is_unchanged { Outcome::Unchanged } else { Outcome::Pending };
                    let etag = Some(etag.to_owned());
                    row.notified = NotificationStatus { outcome, etag, ..NotificationStatus::default() };
                }
            }
        });
    }

    /// Sets the status of notifying a container by signal, or of restarting it.
    pub fn set_notification(&self, container: &ContainerName, notified: NotificationStatus) {
        self.set_notification_of(|row| row.name == *container, notified);
    }

    /// Returns whether any container reads only some of the keys.
    pub fn selects_keys(&self) -> bool {
        self.facts().containers.iter().any(|row| !row.container.keys.is_empty())
    }

    /// Returns whether the container is not notified of the dictionary with `etag`, because it reads no key that has
    /// changed.
    pub fn is_unchanged(&self, container: &ContainerName, etag: &str) -> bool {
        self.notification(container).is_some_and(|notified| is_unchanged(&notified, etag))
    }

    /// Returns the status of notifying a container.
    pub fn notification(&self, container: &ContainerName) -> Option<NotificationStatus> {
        let facts = self.facts();
        let row = facts.containers.iter().find(|row| row.container.name == *container)?;
        Some(row.notified.clone())
    }

    /// Sets the status of notifying a container by its webhooks. For a container that is notified by signal, webhooks
    /// do not count.
    pub fn set_webhook_notification(&self, container: &ContainerName, notified: NotificationStatus) {
        self.set_notification_of(|row| row.name == *container && row.notify == Notify::Webhook, notified);
    }

    fn set_notification_of(&self, is_meant: impl Fn(&Container) -> bool, notified: NotificationStatus) {
        self.change(|facts| {
            if let Some(row) = facts.containers.iter_mut().find(|row| is_meant(&row.container)) {
                row.notified = notified;
            }
        });
    }

    /// Returns the containers that are notified.
    pub fn subscribers(&self) -> Vec<ContainerName> {
        let facts = self.facts();
        let rows = facts.containers.iter().filter(|row| row.container.notify != Notify::None);
        rows.map(|row| row.container.name.clone()).collect()
    }

    /// Returns the containers that were notified of the dictionary with `etag`, or have it already.
    pub fn containers_with(&self, etag: &str) -> Vec<ContainerName> {
        let facts = self.facts();
        let rows = facts.containers.iter().filter(|row| {
            let fetched = row.fetched.as_deref();
            let container = Container { ack: Ack::Delivered, ..row.container.clone() };
            container.notify != Notify::None && has_acknowledged(&container, &row.notified, fetched, etag)
        });
        rows.map(|row| row.container.name.clone()).collect()
    }

    /// Sets the status of the files. `changed` has the configs that they were written for.
    pub fn set_files(&self, files: FilesStatus, changed: Vec<ConfigName>) {
        self.change(|facts| {
            facts.unwritten = if files.message.is_some() { changed } else { Vec::new() };
            facts.files = Some(files);
        });
    }

    /// Sets the fault that keeps the endpoint from listening at this address; `None` clears it.
    pub fn set_listen_fault(&self, address: SocketAddr, fault: Option<SourceFault>) {
        if self.facts().listen_faults.get(&address) == fault.as_ref() {
            return;
        }
        self.change(|facts| {
            match fault {
                Some(fault) => facts.listen_faults.insert(address, fault),
                None => facts.listen_faults.remove(&address),
            };
        });
    }

    /// Returns the fault of one of the addresses that the endpoint can't listen on.
    pub fn listen_fault(&self) -> Option<SourceFault> {
        self.facts().listen_faults.values().next().cloned()
    }

    /// Waits until the endpoint listens at all of its addresses.
    pub async fn wait_until_listening(&self) {
        let mut changes = self.changes();
        while self.listen_fault().is_some() && changes.changed().await.is_ok() {}
    }

    /// Returns the configs whose files can't be written, and the reason; `None` if the files are those of the served
    /// dictionary.
    pub fn unwritten_configs(&self) -> Option<(Vec<ConfigName>, String)> {
        let facts = self.facts();
        Some((facts.unwritten.clone(), facts.files.as_ref()?.message.clone()?))
    }

    /// Records that a request got the dictionary with `etag`. The request counts for the container that it names.
    /// Without a name the request counts only if exactly one container is notified.
    pub fn record_fetch(&self, container: Option<&str>, etag: &str) {
        let mut facts = self.facts();
        let is_notified = |row: &&mut ContainerRow| row.container.notify != Notify::None;
        let row = if let Some(name) = container {
            facts.containers.iter_mut().find(|row| row.container.name.as_str() == name)
        } else {
            let mut rows = facts.containers.iter_mut().filter(is_notified);
            rows.next().filter(|_| rows.next().is_none())
        };
        if let Some(row) = row
            && row.fetched.as_deref() != Some(etag)
        {
            row.fetched = Some(etag.to_owned());
            drop(facts);
            self.changes.send_replace(());
        }
    }

    /// Returns the status of the containers, with whether they have acknowledged the dictionary with `etag`.
    pub fn containers(&self, etag: &str) -> Vec<ContainerStatus> {
        self.facts().containers.iter().map(|row| row.status(etag)).collect()
    }

    /// Returns the reply to `/status`.
    pub fn status(&self, published: &Published, hooks: Vec<WebhookView>, now: Instant) -> Status {
        let facts = self.facts();
        let dictionary = &published.dictionary;
        let config = |view: &crate::content::ConfigView| ConfigStatus {
            name: view.name.clone(),
            version: view.version.clone(),
            digest: view.digest.clone(),
            since: facts.since.get(&view.name).copied().unwrap_or(published.at),
            keys: view.keys,
            bytes: view.bytes,
            problem: facts.problems.get(&view.name).cloned(),
        };
        Status {
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            source: self.source.to_owned(),
            contact: facts.contact.clone(),
            age_seconds: now.saturating_duration_since(facts.confirmed).as_secs(),
            etag: dictionary.etag().to_owned(),
            configs: dictionary.configs().iter().map(config).collect(),
            unserved: facts
                .problems
                .iter()
                .filter(|(name, _)| !dictionary.configs().iter().any(|view| view.name == **name))
                .map(|(name, problem)| UnservedConfig { name: name.clone(), problem: problem.clone() })
                .collect(),
            overlaps: dictionary.overlaps().to_vec(),
            containers: facts.containers.iter().map(|row| row.status(dictionary.etag())).collect(),
            hooks,
            files: facts.files.clone(),
        }
    }
}

impl Container {
    /// Returns whether the container reads any of these keys.
    fn reads_any(&self, keys: &[String]) -> bool {
        self.keys.is_empty() || keys.iter().any(|key| self.keys.iter().any(|pattern| pattern.matches(key)))
    }
}

impl ContainerRow {
    /// Returns whether the container has taken the dictionary with `etag`, or started with it.
    fn has_dictionary(&self, etag: &str) -> bool {
        let is_fresh = self.notified.outcome == Outcome::NothingYet && self.container.ack == Ack::Delivered;
        is_fresh || has_acknowledged(&self.container, &self.notified, self.fetched.as_deref(), etag)
    }

    fn status(&self, etag: &str) -> ContainerStatus {
        let Container { ref name, notify, ack, .. } = self.container;
        ContainerStatus {
            name: name.clone(),
            notify,
            ack,
            notified: self.notified.clone(),
            fetched: self.fetched.clone(),
            acknowledged: has_acknowledged(&self.container, &self.notified, self.fetched.as_deref(), etag),
        }
    }
}

fn is_unchanged(notified: &NotificationStatus, etag: &str) -> bool {
    notified.outcome == Outcome::Unchanged && notified.etag.as_deref() == Some(etag)
}

/// Returns whether a container has acknowledged the dictionary with `etag`. A container that has fetched the dictionary
/// has it, whatever `ack` says. A container that takes versions by a restart has it only after the restart: the process
/// that fetched it before ends. A container that must show that it took the version has it only when it has shown that.
fn has_acknowledged(container: &Container, notified: &NotificationStatus, fetched: Option<&str>, etag: &str) -> bool {
    let delivered = notified.outcome == Outcome::Delivered && notified.etag.as_deref() == Some(etag);
    let fetched = fetched == Some(etag);
    if container.notify == Notify::InPlace || container.verify.is_some() {
        return (delivered && (fetched || container.ack == Ack::Delivered)) || is_unchanged(notified, etag);
    }
    fetched || (container.ack == Ack::Delivered && delivered) || is_unchanged(notified, etag)
}

#[cfg(test)]
mod tests {
    use nudge_protocol::NotifySignal;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn container(name: &str, notify: Notify) -> Container {
        Container { name: ContainerName::new(name).unwrap(), notify, ack: Ack::Fetched, keys: Vec::new(), verify: None }
    }

    fn notified(outcome: Outcome) -> NotificationStatus {
        NotificationStatus { outcome, etag: Some("new".to_owned()), ..NotificationStatus::default() }
    }

    fn fetched_etags(status: &StatusPage) -> Vec<Option<String>> {
        status.facts().containers.iter().map(|row| row.fetched.clone()).collect()
    }

    #[test]
    fn a_request_without_a_name_counts_only_for_the_only_notified_container() {
        let usr1 = Notify::Signal(NotifySignal::Usr1);
        let single = StatusPage::new("dir", vec![container("a", usr1), container("b", Notify::None)], Instant::now());
        single.record_fetch(None, "x");
        assert_eq!(fetched_etags(&single), [Some("x".to_owned()), None]);
        single.record_fetch(Some("b"), "y");
        single.record_fetch(Some("stranger"), "z");
        assert_eq!(fetched_etags(&single), [Some("x".to_owned()), Some("y".to_owned())]);

        let several =
            StatusPage::new("dir", vec![container("a", usr1), container("b", Notify::Webhook)], Instant::now());
        several.record_fetch(None, "x");
        assert_eq!(fetched_etags(&several), [None, None]);
    }

    #[test]
    fn an_acknowledgement_is_for_the_version_that_is_served() {
        let notified = notified(Outcome::Delivered);
        let has = |ack, fetched, etag| {
            let container = Container { ack, ..container("a", Notify::Signal(NotifySignal::Usr1)) };
            has_acknowledged(&container, &notified, fetched, etag)
        };
        assert!(has(Ack::Delivered, None, "new") && !has(Ack::Delivered, Some("old"), "newer"));
        assert!(!has(Ack::Fetched, Some("old"), "new") && has(Ack::Fetched, Some("new"), "new"));
        assert!(has(Ack::Delivered, Some("newer"), "newer"));
    }

    fn keyed(patterns: &[&str], ack: Ack) -> StatusPage {
        let keys = patterns.iter().map(|pattern| KeyPattern::new(pattern).unwrap()).collect();
        let app = Container { ack, keys, ..container("app", Notify::Signal(NotifySignal::Hup)) };
        StatusPage::new("hub", vec![app], Instant::now())
    }

    /// Begins to notify of the dictionary `number`, after the one before it. Returns whether the container is not
    /// notified.
    fn begin(status: &StatusPage, number: usize, changed: &[&str]) -> bool {
        let changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
        status.begin_notifying(&(number - 1).to_string(), &number.to_string(), &changed, &[]);
        status.is_unchanged(&ContainerName::new("app").unwrap(), &number.to_string())
    }

    #[test]
    fn a_container_is_not_notified_where_no_key_that_it_reads_has_changed() {
        let all = keyed(&[], Ack::Delivered);
        assert!(!all.selects_keys() && !begin(&all, 2, &[]), "it reads all keys");
        let some = keyed(&["db.*", "tls.crt"], Ack::Delivered);
        assert!(some.selects_keys() && begin(&some, 2, &["log.level", "tls.key"]), "it started with the one before");
        assert!(some.containers("2")[0].acknowledged && !some.containers("3")[0].acknowledged);
        assert!(!begin(&some, 3, &["log.level", "db.host"]));
        // It has not taken that yet.
        assert!(!begin(&some, 4, &["log.level"]));
        let unread = keyed(&["db.*"], Ack::Fetched);
        assert!(!begin(&unread, 2, &["log.level"]), "it has read nothing yet");
        unread.record_fetch(None, "2");
        assert!(begin(&unread, 3, &["log.level"]) && begin(&unread, 4, &["log.level"]));
        assert!(unread.containers("4")[0].acknowledged);
    }

    proptest! {
        #[test]
        fn what_a_container_reads_is_what_it_has_last_taken(
            changes in vec((any::<bool>(), prop_oneof![Just(None), Just(Some(Outcome::Delivered)), Just(Some(Outcome::NoHandler))]), 1..20),
        ) {
            let status = keyed(&["read"], Ack::Delivered);
            let app = ContainerName::new("app").unwrap();
            // The number of the dictionary whose keys the container has, and of the dictionary in which a read key
            // changed last.
            let (mut has, mut newest) = (1, 1);
            for (number, (is_read, outcome)) in (2..).zip(changes) {
                newest = if is_read { number } else { newest };
                let is_unchanged = begin(&status, number, if is_read { &["read"] } else { &["other"] });
                prop_assert!(!is_unchanged || has == newest, "a change was missed");
                prop_assert!(is_unchanged || is_read || has < newest, "nothing has changed");
                if let Some(outcome) = outcome.filter(|_| !is_unchanged) {
                    let etag = Some(number.to_string());
                    status.set_notification(&app, NotificationStatus { outcome, etag, ..NotificationStatus::default() });
                    if outcome == Outcome::Delivered {
                        has = newest;
                    }
                }
            }
        }
    }

    #[test]
    fn a_fetch_before_a_restart_or_a_verification_does_not_acknowledge() {
        let restarted = container("a", Notify::InPlace);
        let verified = Container { verify: "workers".parse().ok(), ..container("a", Notify::Webhook) };
        let has = |outcome, ack, fetched| {
            [&restarted, &verified].map(|container| {
                let container = Container { ack, ..container.clone() };
                has_acknowledged(&container, &notified(outcome), fetched, "new")
            })
        };
        for (outcome, ack, fetched, expected) in [
            (Outcome::Pending, Ack::Delivered, Some("new"), false),
            (Outcome::Pending, Ack::Fetched, Some("new"), false),
            (Outcome::Failed, Ack::Delivered, Some("new"), false),
            (Outcome::NotVerified, Ack::Delivered, Some("new"), false),
            (Outcome::Delivered, Ack::Delivered, None, true),
            (Outcome::Delivered, Ack::Fetched, None, false),
            (Outcome::Delivered, Ack::Fetched, Some("new"), true),
        ] {
            assert_eq!(has(outcome, ack, fetched), [expected; 2], "{outcome:?} {ack:?} {fetched:?}");
        }
    }
}
