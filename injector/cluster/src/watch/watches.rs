//! The watches that keep the index: which objects, whole or metadata only, and what each change does to the index.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, Client, ResourceExt};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PodKey, PublishedMeta};
use nudge_core::namespaces::Enabled;
use nudge_core::pods::{PodState, pod_state};
use nudge_protocol::error_chain::chain;
use nudge_protocol::{NameError, labels};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::follow::{Following, Metadata, Whole, follow, label, names};
use super::{Change, FollowError, WatchHealth};
use crate::index::Index;

/// How many refusals in a row mean that Secrets may not be read: a server that has just started refuses for a moment what it allows.
const REFUSALS: u32 = 3;

/// How the watches are kept.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// How long a watch may be silent, in seconds: how soon a dead one is noticed.
    pub seconds: u32,
    /// Which namespaces are enabled.
    pub enabled: Enabled,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { seconds: 30, enabled: Enabled::default() }
    }
}

/// Keeps `index` up to date until dropped. Ends only when a watch does, and panics where that panicked.
pub async fn watch_cluster(client: Client, index: Arc<Index>, settings: WatchSettings) {
    let mut tasks = JoinSet::new();
    let seconds = settings.seconds;

    let health = new_health(&index, "namespaces");
    let source = Metadata(Api::<Namespace>::all(client.clone()));
    let following = Following { source, labels: settings.enabled.selector(), seconds, health };
    let sink = namespaces(Arc::clone(&index), settings.enabled);
    tasks.spawn(follow(following, sink, log));

    let health = new_health(&index, "versionedconfigs");
    // Parsed one by one: a single object that this release can't parse must not hide all others.
    let kind = ApiResource::erase::<VersionedConfig>(&());
    let source = Whole(Api::<DynamicObject>::all_with(client.clone(), &kind));
    let following = Following { source, labels: "", seconds, health };
    let sink = configs(Arc::clone(&index));
    tasks.spawn(follow(following, sink, log));

    let health = new_health(&index, "configmaps of versions");
    let source = Metadata(Api::<ConfigMap>::all(client.clone()));
    let following = Following { source, labels: labels::CONFIG, seconds, health };
    let sink = parts(Arc::clone(&index), PartKind::ConfigMap);
    tasks.spawn(follow(following, sink, log));

    let health = new_health(&index, "published configmaps");
    let source = Metadata(Api::<ConfigMap>::all(client.clone()));
    let following = Following { source, labels: labels::PUBLISHED, seconds, health };
    let sink = published(Arc::clone(&index));
    tasks.spawn(follow(following, sink, log));

    let health = new_health(&index, "pods");
    let source = Whole(Api::<Pod>::all(client.clone()));
    let following = Following { source, labels: labels::AGENT, seconds, health };
    let sink = pods(Arc::clone(&index));
    tasks.spawn(follow(following, sink, log));

    tasks.spawn(secrets(client, index, seconds));
    if let Some(ended) = tasks.join_next().await {
        propagate(ended);
    }
}

/// A watch never ends by itself: its panic goes on to the task that waits for it.
fn propagate(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

fn new_health(index: &Index, what: &'static str) -> WatchHealth {
    let health = WatchHealth::new(what);
    index.add_health(health.clone());
    health
}

fn log(error: &FollowError, failures: u32) {
    // An expired or broken watch is an everyday event; one that stays broken is not.
    if failures == 1 {
        tracing::debug!(error = chain(error), "watch interrupted");
    } else {
        tracing::warn!(error = chain(error), failures, "watch interrupted; retrying");
    }
}

fn namespaces(index: Arc<Index>, which: Enabled) -> impl FnMut(Change<PartialObjectMeta<Namespace>>) + Send {
    let mut enabled = BTreeSet::new();
    move |change| {
        match change {
            Change::All(all) => {
                enabled = all.iter().map(ResourceExt::name_any).filter(|name| which.takes(name)).collect();
            }
            Change::Put(namespace) => {
                enabled.extend(Some(namespace.name_any()).filter(|name| which.takes(name)));
            }
            Change::Gone(namespace) => {
                enabled.remove(&namespace.name_any());
            }
        }
        index.set_enabled(enabled.clone());
    }
}

fn configs(index: Arc<Index>) -> impl FnMut(Change<DynamicObject>) + Send {
    let key = |config: &DynamicObject| ConfigKey::of(&config.metadata).ok();
    // One that can't be parsed stays as it was known last.
    let parse = move |object: DynamicObject| {
        let (namespace, name) = names(&object.metadata);
        match object.try_parse::<VersionedConfig>() {
            Ok(config) => Some(config),
            Err(error) => {
                tracing::error!(
                    namespace,
                    name,
                    error = chain(&error),
                    "VersionedConfig not parsed; its last state stays"
                );
                None
            }
        }
    };
    move |change| match change {
        Change::All(all) => {
            let keep: BTreeSet<ConfigKey> = all.iter().filter_map(key).collect();
            for gone in index.configs().into_iter().filter(|known| !keep.contains(known)) {
                index.remove_config(&gone);
            }
            for config in all.into_iter().filter_map(parse) {
                index.replace_config(config);
            }
        }
        Change::Put(object) => {
            if let Some(config) = parse(object) {
                index.put_config(config);
            }
        }
        Change::Gone(object) => {
            if let Some(key) = key(&object) {
                index.remove_config(&key);
            }
        }
    }
}

fn parts<K>(index: Arc<Index>, kind: PartKind) -> impl FnMut(Change<PartialObjectMeta<K>>) + Send
where
    PartialObjectMeta<K>: ResourceExt,
{
    move |change| match change {
        Change::All(all) => {
            let all = all.iter().filter_map(|object| part_meta(object, kind)).collect();
            index.replace_parts(kind, all);
        }
        Change::Put(object) => match part_meta(&object, kind) {
            Some((key, part)) => index.put_part(key, part),
            None => remove(&index, kind, &object),
        },
        Change::Gone(object) => remove(&index, kind, &object),
    }
}

/// By its name: its labels may have changed.
fn remove(index: &Index, kind: PartKind, object: &impl ResourceExt) {
    let (namespace, name) = names(object.meta());
    index.remove_part(&ObjectKey::new(kind, namespace, name));
}

/// What matters of a part's metadata; `None` for an object that belongs to no config.
fn part_meta(object: &impl ResourceExt, kind: PartKind) -> Option<(ConfigKey, PartMeta)> {
    let config = label(object, labels::CONFIG)?;
    let version = label(object, labels::VERSION)?;
    let (namespace, name) = names(object.meta());
    let log = |error: &NameError| {
        tracing::info!(%kind, namespace, name, error = chain(error), "object of a version ignored");
    };
    let config = ConfigKey::parse(&*namespace, config).inspect_err(log).ok()?;
    let part = PartMeta {
        kind,
        name,
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        version: version.to_owned(),
        part: label(object, labels::PART).map(str::to_owned),
        parts: object.annotations().get(labels::PARTS).cloned(),
        prune: label(object, labels::PRUNE) == Some("true"),
        created: object.creation_timestamp().map_or(0, |time| time.0.as_second()),
        terminating: object.meta().deletion_timestamp.is_some(),
    };
    Some((config, part))
}

fn published(index: Arc<Index>) -> impl FnMut(Change<PartialObjectMeta<ConfigMap>>) + Send {
    // No config has a name that is not allowed, and no ConfigMap of that name is published.
    let entry = |object: &PartialObjectMeta<ConfigMap>| {
        let meta = PublishedMeta {
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        };
        Some((ConfigKey::of(&object.metadata).ok()?, meta))
    };
    move |change| match change {
        Change::All(all) => {
            let all: BTreeMap<ConfigKey, PublishedMeta> = all.iter().filter_map(entry).collect();
            for gone in index.published_keys().into_iter().filter(|key| !all.contains_key(key)) {
                index.set_published(gone, None);
            }
            for (key, meta) in all {
                index.set_published(key, Some(meta));
            }
        }
        Change::Put(object) => {
            if let Some((key, meta)) = entry(&object) {
                index.set_published(key, Some(meta));
            }
        }
        Change::Gone(object) => {
            if let Some((key, _)) = entry(&object) {
                index.set_published(key, None);
            }
        }
    }
}

fn pods(index: Arc<Index>) -> impl FnMut(Change<Pod>) + Send {
    let key = |pod: &Pod| PodKey::new(pod.namespace().unwrap_or_default(), pod.name_any());
    move |change| match change {
        Change::All(all) => {
            let states: Vec<PodState> = all.iter().filter_map(pod_state).collect();
            let keep: BTreeSet<PodKey> = states.iter().map(PodState::key).collect();
            for gone in index.pods().iter().map(|pod| pod.key()).filter(|known| !keep.contains(known)) {
                index.remove_pod(&gone);
            }
            for state in states {
                index.put_pod(state);
            }
        }
        Change::Put(pod) => match pod_state(&pod) {
            Some(state) => index.put_pod(state),
            None => index.remove_pod(&key(&pod)),
        },
        Change::Gone(pod) => index.remove_pod(&key(&pod)),
    }
}

/// Follows the Secrets of versions in every enabled namespace that allows it: one watch each, since Nudge must never have the right to
/// read the Secrets of all namespaces.
async fn secrets(client: Client, index: Arc<Index>, seconds: u32) {
    let mut enabled = index.enabled();
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<String, AbortHandle> = BTreeMap::new();
    loop {
        let namespaces = enabled.borrow_and_update().clone();
        running.retain(|namespace, task| {
            let stays = namespaces.contains(namespace);
            if !stays {
                task.abort();
                index.forget_secrets(namespace);
            }
            stays
        });
        for namespace in namespaces.iter().filter(|namespace| !running.contains_key(*namespace)).collect::<Vec<_>>() {
            let task = secrets_of(client.clone(), Arc::clone(&index), namespace.clone(), seconds);
            running.insert(namespace.clone(), tasks.spawn(task));
        }
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

async fn secrets_of(client: Client, index: Arc<Index>, namespace: String, seconds: u32) {
    // Not added to the index: a namespace that does not allow it is no fault.
    let health = WatchHealth::new("secrets of versions");
    let source = Metadata(Api::<Secret>::namespaced(client, &namespace));
    let following = Following { source, labels: labels::CONFIG, seconds, health };
    let mut put = parts(Arc::clone(&index), PartKind::Secret);
    let (allowing, refusing) = (Arc::clone(&index), index);
    let (allowed, refused) = (namespace.clone(), namespace);
    let sink = move |change| match change {
        Change::All(all) => {
            let all = all.iter().filter_map(|object: &PartialObjectMeta<Secret>| part_meta(object, PartKind::Secret));
            allowing.set_secrets(&allowed, all.collect());
        }
        change => put(change),
    };
    let failed = move |error: &FollowError, failures| {
        if error.is_refusal() {
            if failures >= REFUSALS {
                refusing.forget_secrets(&refused);
            }
        } else {
            log(error, failures);
        }
    };
    follow(following, sink, failed).await;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, spec: &serde_json::Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn an_object_that_cannot_be_parsed_hides_no_other_and_stays_as_it_was() {
        let index = Arc::new(Index::default());
        let mut take = configs(Arc::clone(&index));
        take(Change::All(vec![
            object("good", &json!({})),
            object("bad", &json!({"rollout": {"batch": {"later": 1}}})),
        ]));
        let known = |name: &str| index.config(&ConfigKey::parse("ns", name).unwrap()).is_some();
        assert!(known("good") && !known("bad"));
        take(Change::Put(object("good", &json!({"historyLimit": "later"}))));
        assert!(known("good"));
        take(Change::All(vec![object("good", &json!({"historyLimit": "later"}))]));
        assert!(known("good"), "it is there and can't be parsed");
        take(Change::Gone(object("good", &json!({"historyLimit": "later"}))));
        assert!(!known("good"));
    }
}
