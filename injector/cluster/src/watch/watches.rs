//! The watches that keep the index: which objects, whole or metadata only, and how each change is taken in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Api, Client, Resource as _, ResourceExt};
use nudge_api::{PartKind, VersionedConfig};
use nudge_core::keys::{ConfigKey, PartMeta, PodKey, PublishedMeta};
use nudge_core::namespaces::Enabled;
use nudge_core::pods::{PodState, pod_state};
use nudge_protocol::error_chain::chain;
use nudge_protocol::labels;
use tokio::task::{AbortHandle, JoinSet};

use super::follow::{Following, Metadata, Whole, follow, label, names};
use super::{Change, FollowError, WatchHealth};
use crate::index::Index;

/// So many refusals in a row are believed.
const REFUSALS: u32 = 3;

/// How the watches are kept.
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// The longest silence of a watch, in seconds: how soon a dead one is noticed.
    pub seconds: u32,
    /// Which namespaces are enabled.
    pub enabled: Enabled,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { seconds: 30, enabled: Enabled::default() }
    }
}

/// Keeps `index` until dropped.
pub async fn watch_cluster(client: Client, index: Arc<Index>, settings: WatchSettings) {
    let mut tasks = JoinSet::new();
    let seconds = settings.seconds;

    let health = new_health(&index, "namespaces");
    let source = Metadata(Api::<Namespace>::all(client.clone()));
    let following = Following { source, labels: settings.enabled.selector(), seconds, health };
    let sink = namespaces(Arc::clone(&index), settings.enabled);
    tasks.spawn(follow(following, sink, say));

    let health = new_health(&index, "versionedconfigs");
    // Read one by one: a single object that this release can't read must not hide all others.
    let kind = ApiResource::erase::<VersionedConfig>(&());
    let source = Whole(Api::<DynamicObject>::all_with(client.clone(), &kind));
    let following = Following { source, labels: "", seconds, health };
    let sink = configs(Arc::clone(&index));
    tasks.spawn(follow(following, sink, say));

    let health = new_health(&index, "configmaps of versions");
    let source = Metadata(Api::<ConfigMap>::all(client.clone()));
    let following = Following { source, labels: labels::CONFIG, seconds, health };
    let sink = parts(Arc::clone(&index), PartKind::ConfigMap);
    tasks.spawn(follow(following, sink, say));

    let health = new_health(&index, "published configmaps");
    let source = Metadata(Api::<ConfigMap>::all(client.clone()));
    let following = Following { source, labels: labels::PUBLISHED, seconds, health };
    let sink = published(Arc::clone(&index));
    tasks.spawn(follow(following, sink, say));

    let health = new_health(&index, "pods");
    let source = Whole(Api::<Pod>::all(client.clone()));
    let following = Following { source, labels: labels::AGENT, seconds, health };
    let sink = pods(Arc::clone(&index));
    tasks.spawn(follow(following, sink, say));

    tasks.spawn(secrets(client, index, seconds));
    // None of them ends by itself.
    while let Some(ended) = tasks.join_next().await {
        tracing::error!(panicked = ended.is_err(), "a watch has ended, which is a bug");
    }
}

fn new_health(index: &Index, what: &'static str) -> WatchHealth {
    let health = WatchHealth::new(what);
    index.add_health(health.clone());
    health
}

fn say(error: &FollowError, failures: u32) {
    // An expired or broken watch is an everyday event; one that stays broken is not.
    if failures == 1 {
        tracing::debug!(cause = chain(error), "watch interrupted");
    } else {
        tracing::warn!(cause = chain(error), failures, "watch interrupted");
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
    let key = |config: &DynamicObject| ConfigKey::new(config.namespace().unwrap_or_default(), config.name_any());
    // What can't be read stays as it was known last.
    let read = move |object: DynamicObject| {
        let name = key(&object);
        match object.try_parse::<VersionedConfig>() {
            Ok(config) => Some(config),
            Err(error) => {
                tracing::error!(config = %name, cause = chain(&error), "a VersionedConfig can't be read and is left as it is");
                None
            }
        }
    };
    move |change| match change {
        Change::All(all) => {
            let keep: BTreeSet<ConfigKey> = all.iter().map(key).collect();
            for gone in index.configs().into_iter().filter(|known| !keep.contains(known)) {
                index.remove_config(&gone);
            }
            for config in all.into_iter().filter_map(read) {
                index.replace_config(config);
            }
        }
        Change::Put(object) => {
            if let Some(config) = read(object) {
                index.put_config(config);
            }
        }
        Change::Gone(object) => index.remove_config(&key(&object)),
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
            None => forget(&index, kind, &object),
        },
        Change::Gone(object) => forget(&index, kind, &object),
    }
}

/// Whatever its labels are now.
fn forget(index: &Index, kind: PartKind, object: &impl ResourceExt) {
    let (namespace, name) = names(object.meta());
    index.remove_part(kind, &namespace, &name);
}

/// What matters of a part's metadata. An object without a version's label is nobody's part; it is left out.
fn part_meta(object: &impl ResourceExt, kind: PartKind) -> Option<(ConfigKey, PartMeta)> {
    let config = label(object, labels::CONFIG)?;
    let version = label(object, labels::VERSION)?;
    let (namespace, name) = names(object.meta());
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
    Some((ConfigKey::new(namespace, config), part))
}

fn published(index: Arc<Index>) -> impl FnMut(Change<PartialObjectMeta<ConfigMap>>) + Send {
    let entry = |object: &PartialObjectMeta<ConfigMap>| {
        let (namespace, name) = names(object.meta());
        let meta = PublishedMeta {
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        };
        (ConfigKey::new(namespace, name), meta)
    };
    move |change| match change {
        Change::All(all) => {
            let all: BTreeMap<ConfigKey, PublishedMeta> = all.iter().map(entry).collect();
            for gone in index.published_keys().into_iter().filter(|key| !all.contains_key(key)) {
                index.set_published(gone, None);
            }
            for (key, meta) in all {
                index.set_published(key, Some(meta));
            }
        }
        Change::Put(object) => {
            let (key, meta) = entry(&object);
            index.set_published(key, Some(meta));
        }
        Change::Gone(object) => index.set_published(entry(&object).0, None),
    }
}

fn pods(index: Arc<Index>) -> impl FnMut(Change<Pod>) + Send {
    let key = |pod: &Pod| PodKey::new(pod.namespace().unwrap_or_default(), pod.name_any());
    move |change| match change {
        Change::All(all) => {
            let states: Vec<PodState> = all.iter().filter_map(pod_state).collect();
            let keep: BTreeSet<PodKey> =
                states.iter().map(|pod| PodKey::new(pod.namespace.clone(), pod.name.clone())).collect();
            for pod in index.pods() {
                let known = PodKey::new(pod.namespace.clone(), pod.name.clone());
                if !keep.contains(&known) {
                    index.remove_pod(&known);
                }
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

/// Follows the Secrets of versions in every enabled namespace that allows it: one watch each, since a right to read the Secrets of
/// all namespaces is what Nudge must never have.
async fn secrets(client: Client, index: Arc<Index>, seconds: u32) {
    let mut enabled = index.enabled();
    let running: Mutex<BTreeMap<String, AbortOnDrop>> = Mutex::default();
    loop {
        let namespaces = enabled.borrow_and_update().clone();
        {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            running.retain(|namespace, _| {
                let stays = namespaces.contains(namespace);
                if !stays {
                    index.unsee_secrets(namespace);
                }
                stays
            });
            for namespace in namespaces.iter() {
                if !running.contains_key(namespace) {
                    let task = secrets_of(client.clone(), Arc::clone(&index), namespace.clone(), seconds);
                    running.insert(namespace.clone(), AbortOnDrop(tokio::spawn(task).abort_handle()));
                }
            }
        }
        if enabled.changed().await.is_err() {
            return;
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn secrets_of(client: Client, index: Arc<Index>, namespace: String, seconds: u32) {
    // Not among the index's pulses: a namespace that does not allow it is no fault.
    let health = WatchHealth::new("secrets of versions");
    let source = Metadata(Api::<Secret>::namespaced(client, &namespace));
    let following = Following { source, labels: labels::CONFIG, seconds, health };
    let mut take_in = parts(Arc::clone(&index), PartKind::Secret);
    let (allowing, refusing) = (Arc::clone(&index), index);
    let (allowed, refused) = (namespace.clone(), namespace);
    let sink = move |change| match change {
        Change::All(all) => {
            let all = all.iter().filter_map(|object: &PartialObjectMeta<Secret>| part_meta(object, PartKind::Secret));
            allowing.see_secrets(&allowed, all.collect());
        }
        change => take_in(change),
    };
    let failed = move |error: &FollowError, failures| {
        // A server that has just started refuses for a moment what it allows.
        if error.is_refusal() {
            if failures >= REFUSALS {
                refusing.unsee_secrets(&refused);
            }
        } else {
            say(error, failures);
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
    fn an_object_that_cannot_be_read_hides_no_other_and_stays_as_it_was() {
        let index = Arc::new(Index::default());
        let mut take = configs(Arc::clone(&index));
        take(Change::All(vec![
            object("good", &json!({})),
            object("bad", &json!({"rollout": {"batch": {"later": 1}}})),
        ]));
        let known = |name: &str| index.config(&ConfigKey::new("ns", name)).is_some();
        assert!(known("good") && !known("bad"));
        take(Change::Put(object("good", &json!({"historyLimit": "later"}))));
        assert!(known("good"));
        take(Change::All(vec![object("good", &json!({"historyLimit": "later"}))]));
        assert!(known("good"), "it is there, whatever it says");
        take(Change::Gone(object("good", &json!({"historyLimit": "later"}))));
        assert!(!known("good"));
    }
}
