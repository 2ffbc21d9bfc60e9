//! The watches that keep the index: one of the namespaces, and a set for each enabled namespace, or for the whole cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, join_all, pending};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use nudge_api::{PartKind, RolloutPolicy, VersionApproval, VersionedConfig};
use nudge_core::namespaces::NamespaceRule;
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use tokio::sync::watch::Receiver;
use tokio::task::{AbortHandle, JoinSet};

use super::follow::{Following, Metadata, Source, Whole, follow};
use super::pace::Pace;
use super::update_index::{
    keep, namespaces, policies, put_account, put_approval, put_config, put_part, put_pod, put_published,
};
use super::{Change, FollowError, WatchHealth, WatchMetrics};
use crate::index::{Index, Kind, ReadFault, Scope};
use crate::tasks::propagate;

/// How many refusals in a row mean that there is no right: a server that has just started refuses for a moment what it allows.
const REFUSALS: u32 = 3;

/// Objects in one page of a list: of whole objects only a few, since one can have a megabyte.
const CONFIGS: u32 = 50;
const POLICIES: u32 = 50;
const PODS: u32 = 200;
const METADATA: u32 = 500;

/// With which rights the objects of namespaces are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadScope {
    /// With those that are bound in each enabled namespace.
    #[default]
    Namespaces,
    /// With those that are bound for the whole cluster. Secrets are read as above all the same.
    Cluster,
}

impl ReadScope {
    /// The kinds that are watched in this scope.
    fn kinds(self, scope: &Scope) -> &'static [Kind] {
        match (self, scope) {
            (Self::Namespaces, Scope::Namespace(_)) => &Kind::ALL,
            (Self::Namespaces, Scope::Cluster) => &[],
            // Nudge must never have the right to read the Secrets of all namespaces.
            (Self::Cluster, Scope::Namespace(_)) => &[Kind::Secrets],
            (Self::Cluster, Scope::Cluster) => {
                &[Kind::Configs, Kind::ConfigMaps, Kind::Published, Kind::Pods, Kind::Accounts, Kind::Approvals]
            }
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

/// How the watches are kept.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// How long a watch may be silent, in seconds: how soon a dead one is noticed.
    pub seconds: u32,
    /// Which namespaces are enabled.
    pub enabled: NamespaceRule,
    /// With which rights they are read.
    pub reads: ReadScope,
    /// What is watched of them.
    pub kinds: &'static [Kind],
    /// Whether the policies of the cluster are watched.
    pub policies: bool,
    /// Counts the watches.
    pub metrics: WatchMetrics,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            seconds: 30,
            enabled: NamespaceRule::default(),
            reads: ReadScope::default(),
            kinds: &Kind::ALL,
            policies: false,
            metrics: WatchMetrics::default(),
        }
    }
}

/// Keeps `index` up to date until dropped. Ends only when a watch does, and panics where that panicked.
pub async fn watch_cluster(client: Client, index: Arc<Index>, settings: WatchSettings) {
    index.expect(settings.kinds);
    let enabled = index.enabled();
    let policies = settings.policies;
    let watches = Watches { client, index, pace: Arc::default(), settings };
    let policies = if policies { watches.policies() } else { Box::pin(pending()) };
    let health = WatchHealth::new("namespaces");
    watches.index.add_health(health.clone());
    let source = Metadata(Api::<Namespace>::all(watches.client.clone()));
    let sink = namespaces(Arc::clone(&watches.index), watches.settings.enabled.clone());
    let following = watches.following(source, watches.settings.enabled.selector(), METADATA, health);
    tokio::select! {
        () = follow(following, sink, |error, failures| log(None, error, failures)) => {}
        () = policies => {}
        () = watches.keep(enabled) => {}
    }
}

struct Watches {
    client: Client,
    index: Arc<Index>,
    pace: Arc<Pace>,
    settings: WatchSettings,
}

impl Watches {
    /// Keeps a set of watches for the cluster where there is one, and one for each enabled namespace: it begins when the namespace is
    /// enabled and ends when it no longer is.
    async fn keep(&self, mut enabled: Receiver<Arc<BTreeSet<String>>>) {
        // What is listed before the namespaces are known would not be kept.
        if enabled.changed().await.is_err() {
            return;
        }
        let mut tasks = JoinSet::new();
        let shared = self.begin(&Scope::Cluster, None, &mut tasks).1;
        let mut running: BTreeMap<String, (Instant, AbortHandle)> = BTreeMap::new();
        let mut first = true;
        loop {
            let namespaces = enabled.borrow_and_update().clone();
            running.retain(|namespace, (since, task)| {
                // One that was disabled and enabled again since then was forgotten meanwhile.
                let stays = self.index.enabled_since(namespace) == Some(*since);
                if !stays {
                    task.abort();
                }
                stays
            });
            let mut news = false;
            for namespace in namespaces.iter() {
                if !running.contains_key(namespace)
                    && let Some(since) = self.index.enabled_since(namespace)
                {
                    let (task, _) = self.begin(&Scope::Namespace(namespace.clone()), Some(since), &mut tasks);
                    running.insert(namespace.clone(), (since, task));
                    news = true;
                }
            }
            if news && !first {
                // Their objects were left out so far.
                shared.iter().for_each(WatchHealth::request_relist);
            }
            first = false;
            tokio::select! {
                changed = enabled.changed() => if changed.is_err() {
                    return;
                },
                Some(ended) = tasks.join_next() => match ended {
                    // Its namespace is no longer enabled.
                    Err(error) if error.is_cancelled() => {}
                    ended => return propagate(ended),
                },
            }
        }
    }

    /// Begins the watches of a scope, in one task. `since`: when the namespace was enabled.
    fn begin(&self, scope: &Scope, since: Option<Instant>, tasks: &mut JoinSet<()>) -> (AbortHandle, Vec<WatchHealth>) {
        let mut healths = Vec::new();
        let mut watches = Vec::new();
        let kinds = self.settings.reads.kinds(scope).iter();
        for &kind in kinds.filter(|kind| self.settings.kinds.contains(kind)) {
            let health = match scope {
                Scope::Cluster => WatchHealth::of_all(kind.as_str()),
                Scope::Namespace(_) => WatchHealth::new(kind.as_str()),
            };
            match scope {
                Scope::Cluster => self.index.add_shared_health(kind, &health),
                Scope::Namespace(namespace) => self.index.add_health_of(namespace, since, kind, health.clone()),
            }
            watches.push(self.watch(kind, scope, health.clone()));
            healths.push(health);
        }
        let all = async move {
            if watches.is_empty() {
                pending::<()>().await;
            }
            join_all(watches).await;
        };
        (tasks.spawn(all), healths)
    }

    /// Follows the policies of the cluster. That they can't be read holds versions, but makes no replica useless.
    fn policies(&self) -> BoxFuture<'static, ()> {
        let health = WatchHealth::new("rolloutpolicies");
        self.index.expect_policies(health.clone());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<RolloutPolicy>(&()));
        let (index, sink) = (Arc::clone(&self.index), policies(Arc::clone(&self.index)));
        let failed = move |error: &FollowError, failures: u32| {
            let why = match error {
                error if error.is_not_found() => ReadFault::Missing,
                error if error.is_forbidden() => ReadFault::Forbidden,
                _ => ReadFault::Other,
            };
            if index.policies_failed(why, failures) {
                tracing::error!(
                    error = chain(error),
                    "RolloutPolicies can't be read; no version goes on until they can"
                );
            } else if why != ReadFault::Missing {
                log(None, error, failures);
            }
        };
        Box::pin(follow(self.following(Whole(api), "", POLICIES, health), sink, failed))
    }

    fn watch(&self, kind: Kind, scope: &Scope, health: WatchHealth) -> BoxFuture<'static, ()> {
        let index = Arc::clone(&self.index);
        match kind {
            Kind::Configs => {
                let following = self.following(Whole(self.unparsed::<VersionedConfig>(scope)), "", CONFIGS, health);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put_config))
            }
            Kind::ConfigMaps => {
                let source = Metadata(self.api::<ConfigMap>(scope));
                let following = self.following(source, labels::CONFIG, METADATA, health);
                let put = |index: &Index, object, _| put_part(index, &object, PartKind::ConfigMap);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
            Kind::Secrets => {
                let source = Metadata(self.api::<Secret>(scope));
                let following = self.following(source, labels::CONFIG, METADATA, health);
                let put = |index: &Index, object, _| put_part(index, &object, PartKind::Secret);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
            Kind::Published => {
                let source = Metadata(self.api::<ConfigMap>(scope));
                let following = self.following(source, labels::PUBLISHED, METADATA, health);
                let put = |index: &Index, object, _| put_published(index, &object);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
            Kind::Pods => {
                let source = Whole(self.api::<Pod>(scope));
                let following = self.following(source, labels::AGENT, PODS, health);
                let put = |index: &Index, pod, _| put_pod(index, &pod);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
            Kind::Approvals => {
                let source = Whole(self.unparsed::<VersionApproval>(scope));
                let following = self.following(source, "", CONFIGS, health);
                let put = |index: &Index, approval, _| put_approval(index, approval);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
            Kind::Accounts => {
                let source = Metadata(self.api::<ServiceAccount>(scope));
                let following = self.following(source, "", METADATA, health);
                let put = |index: &Index, account, _| put_account(index, &account);
                self.run(following, scope, kind, keep(index, scope.clone(), kind, put))
            }
        }
    }

    /// Parsed one by one: a single object that this release can't parse must not hide all others.
    fn unparsed<K: Resource<DynamicType = ()>>(&self, scope: &Scope) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<K>(&());
        match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespace(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    fn api<K>(&self, scope: &Scope) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match scope {
            Scope::Cluster => Api::all(self.client.clone()),
            Scope::Namespace(namespace) => Api::namespaced(self.client.clone(), namespace),
        }
    }

    fn following<S>(&self, source: S, labels: &'static str, page: u32, health: WatchHealth) -> Following<S> {
        let (pace, metrics) = (Arc::clone(&self.pace), self.settings.metrics.clone());
        Following { source, labels, page, seconds: self.settings.seconds, health, pace, metrics }
    }

    fn run<S>(
        &self,
        following: Following<S>,
        scope: &Scope,
        kind: Kind,
        mut sink: impl FnMut(Change<S::Item>) + Send + 'static,
    ) -> BoxFuture<'static, ()>
    where
        S: Source + 'static,
        S::Item: 'static,
    {
        let (index, scope) = (Arc::clone(&self.index), scope.clone());
        let since = |index: &Index, scope: &Scope| match scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => index.enabled_since(namespace),
        };
        // One that is about to end must not write into a namespace that was enabled again.
        let (own, known, of) = (since(&index, &scope), Arc::clone(&index), scope.clone());
        let sink = move |change| {
            if since(&known, &of) == own {
                sink(change);
            }
        };
        let health = following.health.clone();
        let failed = move |error: &FollowError, failures: u32| {
            if kind == Kind::Approvals && error.is_refusal() {
                health.forbid();
                index.refused_approvals(&scope);
                let Scope::Namespace(namespace) = &scope else { return log(None, error, failures) };
                return log(Some(namespace), error, failures);
            }
            failed(&index, &scope, kind, error, failures);
        };
        Box::pin(follow(following, sink, failed))
    }
}

/// Reports a failed watch.
fn failed(index: &Index, scope: &Scope, kind: Kind, error: &FollowError, failures: u32) {
    let Scope::Namespace(namespace) = scope else { return log(None, error, failures) };
    if !error.is_forbidden() {
        return log(Some(namespace), error, failures);
    }
    if index.refused(namespace, kind, failures >= REFUSALS) {
        tracing::error!(
            namespace,
            error = chain(error),
            "enabled namespace can't be read, so Nudge does nothing there; bind its ClusterRoles: kubectl nudge enable {namespace}"
        );
    }
}

fn log(namespace: Option<&str>, error: &FollowError, failures: u32) {
    // An expired or broken watch is an everyday event; one that stays broken is not.
    if failures == 1 {
        tracing::debug!(namespace, error = chain(error), "watch interrupted");
    } else {
        tracing::warn!(namespace, error = chain(error), failures, "watch interrupted; retrying");
    }
}
