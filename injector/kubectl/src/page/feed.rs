//! The state of the cluster that the page knows: one watch of each kind, for all windows of the browser together.

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

use super::scope::PageScope;
use crate::failure::Failure;
use crate::rollout::Pods;
use crate::session::{NamespacedKind, Session};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// The objects of one kind that a watch has seen.
#[derive(Debug)]
struct Watched<K> {
    /// The objects; absent until the first list is complete.
    objects: Option<BTreeMap<Key, K>>,
    /// The objects of the list that the watch is receiving.
    listed: BTreeMap<Key, K>,
    /// The reason why the objects may be out of date.
    fault: Option<String>,
}

impl<K> Default for Watched<K> {
    fn default() -> Self {
        Self { objects: None, listed: BTreeMap::new(), fault: None }
    }
}

impl<K: Resource> Watched<K> {
    /// Applies an event of the watch, or its failure.
    fn apply(&mut self, event: Result<Event<K>, String>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Err(fault) => {
                self.fault = Some(fault);
                return;
            }
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(object)) => drop(self.listed.insert(key(&object), object)),
            Ok(Event::InitDone) => self.objects = Some(std::mem::take(&mut self.listed)),
            Ok(Event::Apply(object)) => drop(self.objects.get_or_insert_default().insert(key(&object), object)),
            Ok(Event::Delete(object)) => drop(self.objects.get_or_insert_default().remove(&key(&object))),
        }
        self.fault = None;
    }
}

/// The state of the cluster as the watches have seen it.
#[derive(Debug, Default)]
pub(crate) struct WatchedState {
    configs: Watched<VersionedConfig>,
    approvals: Watched<VersionApproval>,
    /// The pods with an agent.
    pub(crate) pods: Pods,
    /// The reason why the pods are not known, or may be out of date.
    pub(crate) pods_fault: Option<String>,
    /// The reason why all may be out of date: the API server refuses, or does not answer.
    contact_fault: Option<String>,
}

impl WatchedState {
    /// Returns the configs, or `None` until the first list is complete.
    pub(crate) fn configs(&self) -> Option<&BTreeMap<Key, VersionedConfig>> {
        self.configs.objects.as_ref()
    }

    /// Returns why all that is shown may be out of date.
    pub(crate) fn fault(&self) -> Option<&str> {
        let faults = [&self.configs.fault, &self.contact_fault, &self.approvals.fault];
        faults.into_iter().find_map(Option::as_deref)
    }

    /// Returns the approvals of the namespace, as far as they may be read.
    pub(crate) fn approvals(&self, namespace: &str) -> impl Iterator<Item = &VersionApproval> {
        let objects = self.approvals.objects.iter().flatten();
        objects.filter(move |(key, _)| key.0 == namespace).map(|(_, approval)| approval)
    }

    fn apply_pods(&mut self, event: Result<Event<Pod>, String>) {
        self.pods_fault = match event {
            Ok(event) => {
                self.pods.apply(event);
                None
            }
            Err(fault) => Some(fault),
        };
    }

    /// Sets the configs of a test.
    #[cfg(test)]
    pub(crate) fn set_configs(&mut self, configs: BTreeMap<Key, VersionedConfig>) {
        self.configs.objects = Some(configs);
    }
}

/// The state that the watches have seen, and its changes.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    state: Arc<Mutex<WatchedState>>,
    changes: watch::Sender<u64>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), changes: watch::Sender::new(0) }
    }

    /// Locks the state. Nothing may wait while the lock is held.
    pub(crate) fn state(&self) -> MutexGuard<'_, WatchedState> {
        self.state.lock()
    }

    /// Subscribes to the changes of the state.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut WatchedState)) {
        change(&mut self.state());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns whether a window is open.
    pub(crate) fn has_windows(&self) -> bool {
        self.changes.receiver_count() > 0
    }

    /// Notes whether the API server answers.
    pub(crate) fn note_contact(&self, fault: Option<String>) {
        if self.state().contact_fault != fault {
            self.change(|state| state.contact_fault = fault);
        }
    }

    /// Watches configs for as long as it is polled.
    pub(crate) async fn watch_configs(&self, session: &Session, scope: &PageScope) {
        self.watch(session, scope, "", "watching configs", |state, event| state.configs.apply(event)).await;
    }

    /// Watches approvals for as long as it is polled.
    pub(crate) async fn watch_approvals(&self, session: &Session, scope: &PageScope) {
        let apply = |state: &mut WatchedState, event| state.approvals.apply(event);
        self.watch(session, scope, "", "watching VersionApprovals", apply).await;
    }

    /// Watches the pods with an agent for as long as it is polled.
    pub(crate) async fn watch_pods(&self, session: &Session, scope: &PageScope) {
        if let PageScope::Nothing(cause) = scope {
            self.change(|state| state.pods_fault = Some(cause.clone()));
        }
        self.watch(session, scope, labels::AGENT, "watching pods", WatchedState::apply_pods).await;
    }

    async fn watch<K: NamespacedKind>(
        &self,
        session: &Session,
        scope: &PageScope,
        selector: &str,
        context: &str,
        apply: impl Fn(&mut WatchedState, Result<Event<K>, String>),
    ) {
        let Some(api) = api::<K>(session, scope) else { return };
        // A short timeout detects a connection that died silently.
        let config = watcher::Config::default().timeout(60).labels(selector);
        let mut events = pin!(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| fault(context, &error));
            self.change(|state| apply(state, event));
        }
    }
}

/// Returns the API for the objects of the scope, or `None` if none may be listed.
pub(super) fn api<K: NamespacedKind>(session: &Session, scope: &PageScope) -> Option<Api<K>> {
    match scope {
        PageScope::All => Some(Api::all(session.client.clone())),
        PageScope::One => Some(session.api()),
        PageScope::Nothing(_) => None,
    }
}

fn fault(context: &str, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of(context, error).message,
        error => format!("{context}: {error}"),
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
            || feed.state().configs().map(|objects| objects.keys().map(|key| key.1.clone()).collect::<Vec<_>>());
        feed.change(|state| state.configs.apply(Ok(Event::Init)));
        feed.change(|state| state.configs.apply(Ok(Event::InitApply(config("a")))));
        assert_eq!(names(), None);
        feed.change(|state| state.configs.apply(Ok(Event::InitDone)));
        feed.change(|state| state.configs.apply(Ok(Event::Apply(config("b")))));
        assert_eq!(names(), Some(vec!["a".to_owned(), "b".to_owned()]));
        feed.change(|state| state.configs.apply(Ok(Event::Delete(config("a")))));
        assert_eq!(names(), Some(vec!["b".to_owned()]));
        // A list after a broken watch replaces the known objects.
        feed.change(|state| state.configs.apply(Ok(Event::Init)));
        feed.change(|state| state.configs.apply(Ok(Event::InitApply(config("c")))));
        assert_eq!(names(), Some(vec!["b".to_owned()]));
        feed.change(|state| state.configs.apply(Ok(Event::InitDone)));
        assert_eq!(names(), Some(vec!["c".to_owned()]));
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn what_the_watch_says_comes_before_lost_contact() {
        let feed = Feed::new();
        assert!(!feed.has_windows());
        let mut changes = feed.changes();
        assert!(feed.has_windows());
        feed.note_contact(None);
        assert!(!changes.has_changed().unwrap(), "nothing is new");
        feed.note_contact(Some("silent".to_owned()));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert_eq!(feed.state().fault(), Some("silent"));
        feed.change(|state| state.configs.fault = Some("refused".to_owned()));
        assert_eq!(feed.state().fault(), Some("refused"));
        feed.change(|state| state.configs.fault = None);
        feed.note_contact(None);
        assert_eq!(feed.state().fault(), None);
    }
}
