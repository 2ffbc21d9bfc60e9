//! The watches that keep the index: one of the namespaces, and a set for each enabled namespace, or for the whole
//! cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, join_all, pending};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use nudge_api::{PartKind, RolloutPolicy, VersionApproval, VersionedConfig};
use nudge_core::namespaces::NamespaceRule;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};

use super::follow::{Following, KubeSource, Source, follow};
use super::start_pace::Pace;
use super::update_index::{
    namespace_sink, object_sink, policy_sink, put_account, put_approval, put_config, put_part, put_pod, put_published,
};
use super::{FollowError, WatchHealth, WatchMetrics};
use crate::index::{Index, ReadFault, StateOrigin, WatchScope, WatchedKind};
use crate::panics::propagate;

/// The number of objects in one page of a list: of whole objects only a few, since one can have a megabyte.
const WHOLE_PAGE_SIZE: u32 = 50;
const POD_PAGE_SIZE: u32 = 200;
const METADATA_PAGE_SIZE: u32 = 500;

/// The rights for reading the objects of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadScope {
    /// The rights that are bound in each enabled namespace.
    #[default]
    Namespaces,
    /// The rights that are bound for the whole cluster. Even so, Secrets are read with the rights of each namespace.
    Cluster,
}

impl ReadScope {
    fn kinds(self, scope: &WatchScope) -> &'static [WatchedKind] {
        match (self, scope) {
            (Self::Namespaces, WatchScope::Namespace(_)) => &WatchedKind::ALL,
            (Self::Namespaces, WatchScope::Cluster) => &[],
            // Nudge must never have the right to read the Secrets of all namespaces.
            (Self::Cluster, WatchScope::Namespace(_)) => &[WatchedKind::Secrets],
            (Self::Cluster, WatchScope::Cluster) => &[
                WatchedKind::Configs,
                WatchedKind::ConfigMaps,
                WatchedKind::Published,
                WatchedKind::Pods,
                WatchedKind::Accounts,
                WatchedKind::Approvals,
            ],
        }
    }
}

impl fmt::Display for ReadScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Cluster => "cluster",
        })
    }
}

impl FromStr for ReadScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "namespaces" => Ok(Self::Namespaces),
            "cluster" => Ok(Self::Cluster),
            _ => Err("is `namespaces` or `cluster`".to_owned()),
        }
    }
}

/// What a replica watches, and how long a watch may be silent.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The number of seconds that a watch may be silent; after that, a dead watch is noticed.
    pub seconds: u32,
    /// The rule that enables namespaces.
    pub enabled: NamespaceRule,
    /// The rights for reading the objects of enabled namespaces.
    pub reads: ReadScope,
    /// The kinds that are watched in them.
    pub kinds: &'static [WatchedKind],
    /// Whether the policies of the cluster are watched.
    pub policies: bool,
    /// The counters of all watches of the replica.
    pub metrics: WatchMetrics,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            seconds: 30,
            enabled: NamespaceRule::default(),
            reads: ReadScope::default(),
            kinds: &WatchedKind::ALL,
            policies: false,
            metrics: WatchMetrics::default(),
        }
    }
}

/// Keeps `index` up to date until dropped. Ends only when a watch does, and panics if that panicked.
pub async fn watch_cluster(client: Client, index: Arc<Index>, settings: WatchSettings) {
    index.expect(settings.kinds);
    let enabled = index.enabled_namespaces();
    let policies = settings.policies;
    let watches = Watches { client, index, pace: Arc::default(), settings };
    let policies = if policies { watches.watch_policies() } else { Box::pin(pending()) };
    let health = WatchHealth::new("namespaces");
    watches.index.add_health(health.clone());
    let source = KubeSource::<PartialObjectMeta<Namespace>>::metadata(&watches.client, None);
    let sink = namespace_sink(Arc::clone(&watches.index), watches.settings.enabled.clone());
    let following = watches.following(source, watches.settings.enabled.selector(), METADATA_PAGE_SIZE, health);
    tokio::select! {
        () = follow(following, sink, |error, failures| log(None, error, failures)) => {}
        () = policies => {}
        () = watches.keep_all(enabled) => {}
    }
}

struct Watches {
    client: Client,
    index: Arc<Index>,
    pace: Arc<Pace>,
    settings: WatchSettings,
}

impl Watches {
    /// Keeps a set of watches for the cluster, if there is one, and one for each enabled namespace. A namespace's set
    /// begins when the namespace is enabled, and ends when it no longer is.
    async fn keep_all(&self, mut enabled: Receiver<Arc<BTreeSet<String>>>) {
        // Objects that are listed before the namespaces are known would not be kept.
        if enabled.changed().await.is_err() {
            return;
        }
        let mut tasks = JoinSet::new();
        let shared = self.begin(&WatchScope::Cluster, None, &mut tasks).1;
        let mut running: BTreeMap<String, (Instant, AbortHandle)> = BTreeMap::new();
        let mut is_first = true;
        loop {
            let namespaces = enabled.borrow_and_update().clone();
            running.retain(|namespace, (since, task)| {
                // A namespace that was disabled and enabled again was forgotten meanwhile.
                let is_kept = self.index.enabled_since(&WatchScope::Namespace(namespace.clone())) == Some(*since);
                if !is_kept {
                    task.abort();
                }
                is_kept
            });
            let mut has_new = false;
            for namespace in namespaces.iter() {
                let scope = WatchScope::Namespace(namespace.clone());
                if !running.contains_key(namespace)
                    && let Some(since) = self.index.enabled_since(&scope)
                {
                    let (task, _) = self.begin(&scope, Some(since), &mut tasks);
                    running.insert(namespace.clone(), (since, task));
                    has_new = true;
                }
            }
            if has_new && !is_first {
                // Shared watches have left out the objects of the new namespaces so far.
                shared.iter().for_each(WatchHealth::request_relist);
            }
            is_first = false;
            tokio::select! {
                changed = enabled.changed() => if changed.is_err() {
                    return;
                },
                Some(ended) = tasks.join_next() => match ended {
                    // The namespace of the task is no longer enabled.
                    Err(error) if error.is_cancelled() => {}
                    ended => return propagate(ended),
                },
            }
        }
    }

    /// Begins the watches of a scope, in one task. `since` is the time when the namespace was enabled.
    fn begin(
        &self,
        scope: &WatchScope,
        since: Option<Instant>,
        tasks: &mut JoinSet<()>,
    ) -> (AbortHandle, Vec<WatchHealth>) {
        let mut healths = Vec::new();
        let mut watches = Vec::new();
        let kinds = self.settings.reads.kinds(scope).iter();
        for &kind in kinds.filter(|kind| self.settings.kinds.contains(kind)) {
            let health = match scope {
                WatchScope::Cluster => self.index.add_shared_health(kind),
                WatchScope::Namespace(namespace) => self.index.add_health_of(namespace, since, kind),
            };
            watches.push(self.watch(kind, scope, health.clone()));
            healths.push(health);
        }
        let run_all = async move {
            if watches.is_empty() {
                pending::<()>().await;
            }
            join_all(watches).await;
        };
        (tasks.spawn(run_all), healths)
    }

    /// Follows the policies of the cluster. If they can't be read versions wait, but the replica is not useless.
    fn watch_policies(&self) -> BoxFuture<'static, ()> {
        let health = WatchHealth::new("rolloutpolicies");
        self.index.expect_policies(health.clone());
        let (index, sink) = (Arc::clone(&self.index), policy_sink(Arc::clone(&self.index)));
        let on_failure = move |error: &FollowError, failures: u32| {
            let cause = match error {
                error if error.is_not_found() => ReadFault::Missing,
                error if error.is_forbidden() => ReadFault::Forbidden,
                _ => ReadFault::Other,
            };
            if index.note_policy_failures(cause, failures) {
                tracing::error!(
                    error = chain(error),
                    "RolloutPolicies can't be read; no version continues until they can"
                );
            } else if cause != ReadFault::Missing {
                log(None, error, failures);
            }
        };
        let following = self.whole::<RolloutPolicy, _>(&WatchScope::Cluster, "", WHOLE_PAGE_SIZE, health);
        Box::pin(follow(following, sink, on_failure))
    }

    fn watch(&self, kind: WatchedKind, scope: &WatchScope, health: WatchHealth) -> BoxFuture<'static, ()> {
        match kind {
            WatchedKind::Configs => {
                let following = self.whole::<VersionedConfig, _>(scope, "", WHOLE_PAGE_SIZE, health);
                self.run(following, scope, kind, put_config)
            }
            WatchedKind::Approvals => {
                let following = self.whole::<VersionApproval, _>(scope, "", WHOLE_PAGE_SIZE, health);
                self.run(following, scope, kind, |index, approval, _| put_approval(index, approval))
            }
            WatchedKind::ConfigMaps => {
                let following = self.metadata::<ConfigMap>(scope, labels::CONFIG, health);
                self.run(following, scope, kind, |index, object, _| put_part(index, &object, PartKind::ConfigMap))
            }
            WatchedKind::Secrets => {
                let following = self.metadata::<Secret>(scope, labels::CONFIG, health);
                self.run(following, scope, kind, |index, object, _| put_part(index, &object, PartKind::Secret))
            }
            WatchedKind::Published => {
                let following = self.metadata::<ConfigMap>(scope, labels::FOLLOWS, health);
                self.run(following, scope, kind, |index, object, _| put_published(index, &object))
            }
            WatchedKind::Accounts => {
                let following = self.metadata::<ServiceAccount>(scope, "", health);
                self.run(following, scope, kind, |index, account, _| put_account(index, &account))
            }
            WatchedKind::Pods => {
                let following = self.whole::<Pod, _>(scope, labels::AGENT, POD_PAGE_SIZE, health);
                self.run(following, scope, kind, |index, pod, _| put_pod(index, &pod))
            }
        }
    }

    /// Returns how to follow whole objects of the kind `K`. As [`kube::core::DynamicObject`], one that this release
    /// can't parse hides no other object.
    fn whole<K: Resource<DynamicType = ()>, T>(
        &self,
        scope: &WatchScope,
        labels: &'static str,
        page_size: u32,
        health: WatchHealth,
    ) -> Following<KubeSource<T>> {
        self.following(KubeSource::whole::<K>(&self.client, scope.namespace()), labels, page_size, health)
    }

    fn metadata<K: Resource<DynamicType = ()>>(
        &self,
        scope: &WatchScope,
        labels: &'static str,
        health: WatchHealth,
    ) -> Following<KubeSource<PartialObjectMeta<K>>> {
        self.following(KubeSource::metadata(&self.client, scope.namespace()), labels, METADATA_PAGE_SIZE, health)
    }

    fn following<S>(&self, source: S, labels: &'static str, page_size: u32, health: WatchHealth) -> Following<S> {
        let (pace, metrics) = (Arc::clone(&self.pace), self.settings.metrics.clone());
        Following { source, labels, page_size, seconds: self.settings.seconds, health, pace, metrics }
    }

    fn run<S>(
        &self,
        following: Following<S>,
        scope: &WatchScope,
        kind: WatchedKind,
        put: impl Fn(&Index, S::Item, StateOrigin) + Send + 'static,
    ) -> BoxFuture<'static, ()>
    where
        S: Source + 'static,
        S::Item: 'static,
    {
        let (index, scope) = (Arc::clone(&self.index), scope.clone());
        let mut put_change = object_sink(Arc::clone(&index), scope.clone(), kind, put);
        let (enabled_at, current, sink_scope) = (index.enabled_since(&scope), Arc::clone(&index), scope.clone());
        // A watch that is being stopped must not write into a namespace that was enabled again.
        let sink = move |change| {
            if current.enabled_since(&sink_scope) == enabled_at {
                put_change(change);
            }
        };
        let health = following.health.clone();
        let on_failure = move |error: &FollowError, failures: u32| {
            if kind == WatchedKind::Approvals && error.is_refusal() {
                health.set_forbidden(true);
                index.note_refused_approvals(&scope);
                return log(scope.namespace(), error, failures);
            }
            report_failure(&index, &scope, kind, error, failures);
        };
        Box::pin(follow(following, sink, on_failure))
    }
}

/// Reports a failed watch.
fn report_failure(index: &Index, scope: &WatchScope, kind: WatchedKind, error: &FollowError, failures: u32) {
    let Some(namespace) = scope.namespace().filter(|_| error.is_forbidden()) else {
        return log(scope.namespace(), error, failures);
    };
    if index.note_refusals(namespace, kind, failures) {
        tracing::error!(
            namespace,
            error = chain(error),
            "enabled namespace can't be read, so Nudge does nothing there; bind its ClusterRoles: kubectl nudge enable {namespace}"
        );
    }
}

fn log(namespace: Option<&str>, error: &FollowError, failures: u32) {
    // A watch that expires or breaks is an everyday event; one that stays broken is not.
    if failures == 1 {
        tracing::debug!(namespace, error = chain(error), "watch interrupted");
    } else {
        tracing::warn!(namespace, error = chain(error), failures, "watch interrupted; retrying");
    }
}
