//! What the page knows of the cluster: one watch of configs and one of pods, for all windows of the browser together.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use nudge_api::{VersionApproval, VersionedConfig};
use nudge_protocol::labels;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::scope::Scope;
use crate::failure::Failure;
use crate::rollout::Pods;
use crate::session::Session;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// What the watches have seen.
#[derive(Debug, Default)]
pub(crate) struct WatchedState {
    /// The configs; absent until the first list is complete.
    pub(crate) configs: Option<BTreeMap<Key, VersionedConfig>>,
    /// The configs of the list that the watch is receiving.
    listed: BTreeMap<Key, VersionedConfig>,
    /// What users have decided about versions.
    approvals: Option<BTreeMap<Key, VersionApproval>>,
    /// The approvals of the list that the watch is receiving.
    listed_approvals: BTreeMap<Key, VersionApproval>,
    /// The pods with an agent.
    pub(crate) pods: Pods,
    /// Why the configs may be out of date, as the watch says.
    configs_fault: Option<String>,
    /// Why the configs may be out of date, as the API server says or by its silence.
    contact_fault: Option<String>,
    /// Why the approvals may be out of date.
    approvals_fault: Option<String>,
    /// Why the pods are not known, or may be out of date.
    pub(crate) pods_fault: Option<String>,
}

fn key(object: &impl Resource) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What is known after an event; absent until the first list is complete.
fn apply<K: Resource>(known: &mut Option<BTreeMap<Key, K>>, listed: &mut BTreeMap<Key, K>, event: Event<K>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => drop(listed.insert(key(&object), object)),
        Event::InitDone => *known = Some(std::mem::take(listed)),
        Event::Apply(object) => drop(known.get_or_insert_default().insert(key(&object), object)),
        Event::Delete(object) => drop(known.get_or_insert_default().remove(&key(&object))),
    }
}

impl WatchedState {
    /// Why all that is shown may be out of date.
    pub(crate) fn fault(&self) -> Option<&str> {
        let faults = [&self.configs_fault, &self.contact_fault, &self.approvals_fault];
        faults.into_iter().find_map(Option::as_deref)
    }

    /// What users have decided about versions of the namespace, as far as that may be read.
    pub(crate) fn approvals(&self, namespace: &str) -> impl Iterator<Item = &VersionApproval> {
        let known = self.approvals.iter().flatten();
        known.filter(move |(key, _)| key.0 == namespace).map(|(_, approval)| approval)
    }

    fn apply(&mut self, event: Event<VersionedConfig>) {
        apply(&mut self.configs, &mut self.listed, event);
    }
}

/// What the watches have seen, and when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    seen: Arc<Mutex<WatchedState>>,
    changed: watch::Sender<u64>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { seen: Arc::default(), changed: watch::Sender::new(0) }
    }

    /// What was seen. Nothing waits while this is held.
    pub(crate) fn seen(&self) -> MutexGuard<'_, WatchedState> {
        self.seen.lock()
    }

    /// Says when something changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut WatchedState)) {
        change(&mut self.seen());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns whether anybody looks.
    pub(crate) fn is_seen(&self) -> bool {
        self.changed.receiver_count() > 0
    }

    /// Notes whether the API server answers.
    pub(crate) fn note_contact(&self, fault: Option<String>) {
        if self.seen().contact_fault != fault {
            self.change(|seen| seen.contact_fault = fault);
        }
    }

    /// Watches configs for as long as it is polled.
    pub(crate) async fn watch_configs(&self, session: &Session, scope: &Scope) {
        let Some(api) = api(session, scope) else { return };
        let mut events = pin!(watcher::<VersionedConfig>(api, settings()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.change(|seen| {
                    seen.configs_fault = None;
                    seen.apply(event);
                }),
                Err(error) => {
                    let fault = fault("watching configs", &error);
                    self.change(|seen| seen.configs_fault = Some(fault));
                }
            }
        }
    }

    /// Watches what users decide about versions for as long as it is polled.
    pub(crate) async fn watch_approvals(&self, session: &Session, scope: &Scope) {
        let Some(api) = api(session, scope) else { return };
        let mut events = pin!(watcher::<VersionApproval>(api, settings()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.change(|seen| {
                    seen.approvals_fault = None;
                    apply(&mut seen.approvals, &mut seen.listed_approvals, event);
                }),
                Err(error) => {
                    let fault = fault("watching VersionApprovals", &error);
                    self.change(|seen| seen.approvals_fault = Some(fault));
                }
            }
        }
    }

    /// Watches the pods with an agent for as long as it is polled.
    pub(crate) async fn watch_pods(&self, session: &Session, scope: &Scope) {
        if let Scope::Nothing(why) = scope {
            self.change(|seen| seen.pods_fault = Some(why.clone()));
        }
        let Some(api) = api(session, scope) else { return };
        let mut events = pin!(watcher::<Pod>(api, settings().labels(labels::AGENT)).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.change(|seen| {
                    seen.pods_fault = None;
                    seen.pods.apply(event);
                }),
                Err(error) => {
                    let fault = fault("watching pods", &error);
                    self.change(|seen| seen.pods_fault = Some(fault));
                }
            }
        }
    }
}

/// A short timeout detects a connection that died silently.
fn settings() -> watcher::Config {
    watcher::Config::default().timeout(60)
}

/// The objects of the scope; absent where none may be listed.
pub(super) fn api<K>(session: &Session, scope: &Scope) -> Option<Api<K>>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match scope {
        Scope::All => Some(Api::all(session.client.clone())),
        Scope::One => Some(session.api()),
        Scope::Nothing(_) => None,
    }
}

fn fault(what: &str, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of(what, error).message,
        other => format!("{what}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use nudge_api::VersionedConfigSpec;

    use super::*;

    fn config(name: &str) -> VersionedConfig {
        let mut config = VersionedConfig::new(name, VersionedConfigSpec::default());
        config.metadata.namespace = Some("team".to_owned());
        config
    }

    #[test]
    fn nothing_is_known_before_the_list_is_complete() {
        let feed = Feed::new();
        let changes = feed.changes();
        let names =
            || feed.seen().configs.as_ref().map(|known| known.keys().map(|key| key.1.clone()).collect::<Vec<_>>());
        feed.change(|seen| seen.apply(Event::Init));
        feed.change(|seen| seen.apply(Event::InitApply(config("a"))));
        assert_eq!(names(), None);
        feed.change(|seen| seen.apply(Event::InitDone));
        feed.change(|seen| seen.apply(Event::Apply(config("b"))));
        assert_eq!(names(), Some(vec!["a".to_owned(), "b".to_owned()]));
        feed.change(|seen| seen.apply(Event::Delete(config("a"))));
        assert_eq!(names(), Some(vec!["b".to_owned()]));
        // A list after a broken watch replaces what was known.
        feed.change(|seen| seen.apply(Event::Init));
        feed.change(|seen| seen.apply(Event::InitApply(config("c"))));
        assert_eq!(names(), Some(vec!["b".to_owned()]));
        feed.change(|seen| seen.apply(Event::InitDone));
        assert_eq!(names(), Some(vec!["c".to_owned()]));
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn what_the_watch_says_comes_before_lost_contact() {
        let feed = Feed::new();
        assert!(!feed.is_seen());
        let mut changes = feed.changes();
        assert!(feed.is_seen());
        feed.note_contact(None);
        assert!(!changes.has_changed().unwrap(), "nothing is new");
        feed.note_contact(Some("silent".to_owned()));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(feed.seen().fault(), Some("silent"));
        feed.change(|seen| seen.configs_fault = Some("refused".to_owned()));
        assert_eq!(feed.seen().fault(), Some("refused"));
        feed.change(|seen| seen.configs_fault = None);
        feed.note_contact(None);
        assert_eq!(feed.seen().fault(), None);
    }
}
