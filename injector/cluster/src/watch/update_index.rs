//! The changes of the index that follow from changes of watched objects.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use nudge_api::{PartKind, RolloutPolicy, VersionApproval, VersionedConfig};
use nudge_core::keys::{ConfigKey, ObjectKey, PartMeta, PublishedMeta};
use nudge_core::namespaces::NamespaceRule;
use nudge_core::pods::pod_state;
use nudge_protocol::bounded_text::clip;
use nudge_protocol::error_chain::chain;
use nudge_protocol::{NameError, labels};

use super::WatchChange;
use super::follow::{Unparsed, label, names};
use crate::index::{Index, StateOrigin, WatchScope, WatchedKind};

/// The maximum size of the annotation with the number of parts that is kept.
const MAX_PARTS_BYTES: usize = 64;
/// The maximum size of the reason why a policy can't be parsed that is kept.
const MAX_REASON_BYTES: usize = 256;

/// Returns a sink that keeps the enabled namespaces.
pub(super) fn namespace_sink(
    index: Arc<Index>,
    rule: NamespaceRule,
) -> impl FnMut(WatchChange<PartialObjectMeta<Namespace>>) + Send {
    let (mut enabled, mut listed) = (BTreeMap::new(), BTreeMap::new());
    let enabled_namespace = move |namespace: PartialObjectMeta<Namespace>| {
        let (name, labels) = (namespace.name_any(), namespace.metadata.labels.unwrap_or_default());
        rule.allows_name(&name).then(|| (name, Arc::new(labels)))
    };
    move |change| {
        match change {
            WatchChange::Listing => return listed.clear(),
            WatchChange::Found(namespace) => return listed.extend(enabled_namespace(namespace)),
            WatchChange::Listed(_) => enabled = std::mem::take(&mut listed),
            WatchChange::Put(namespace) => {
                let Some((name, labels)) = enabled_namespace(namespace) else { return };
                // Who gives Nudge a right in the namespace may change the namespace, too.
                if enabled.get(&name) == Some(&labels) {
                    return index.retry_forbidden(&name);
                }
                enabled.insert(name, labels);
            }
            WatchChange::Gone(namespace) if enabled.remove(&namespace.name_any()).is_some() => {}
            WatchChange::Gone(_) => return,
            // Only administrators write namespaces.
            WatchChange::Unparsed(Unparsed { name, reason, .. }) => {
                return tracing::error!(namespace = name, reason, "namespace not parsed");
            }
        }
        index.set_labelled(enabled.clone());
    }
}

/// Returns a sink that keeps the policies of the cluster. A policy that this release can't parse counts, too.
pub(super) fn policy_sink(index: Arc<Index>) -> impl FnMut(WatchChange<DynamicObject>) + Send {
    let parse = |object: DynamicObject| {
        let name = object.name_any();
        let policy = object.try_parse::<RolloutPolicy>().map(Arc::new);
        (name, policy.map_err(|error| clip(chain(&error), MAX_REASON_BYTES)))
    };
    move |change| match change {
        WatchChange::Listing => index.begin_policy_list(),
        WatchChange::Found(object) => {
            let (name, policy) = parse(object);
            index.add_listed_policy(name, policy);
        }
        WatchChange::Listed(_) => index.complete_policy_list(),
        WatchChange::Put(object) => {
            let (name, policy) = parse(object);
            index.put_policy(name, policy);
        }
        WatchChange::Gone(object) => index.remove_policy(&object.name_any()),
        WatchChange::Unparsed(Unparsed { name, gone: true, .. }) => index.remove_policy(&name),
        WatchChange::Unparsed(Unparsed { name, reason, .. }) => {
            index.note_unparsed_policy(name, clip(reason, MAX_REASON_BYTES));
        }
    }
}

/// Returns a sink that keeps the objects of a kind in the scope, each by `put`. Objects of namespaces that are not
/// enabled are ignored.
pub(super) fn object_sink<T: Resource>(
    index: Arc<Index>,
    scope: WatchScope,
    kind: WatchedKind,
    put: impl Fn(&Index, T, StateOrigin) + Send,
) -> impl FnMut(WatchChange<T>) + Send {
    // The objects that the list has shown and the index keeps, so that their number is bounded; `None` between lists.
    let mut listed: Option<HashSet<(String, String)>> = None;
    move |change| match change {
        WatchChange::Listing => listed = Some(HashSet::new()),
        WatchChange::Found(object) => {
            let (namespace, name) = names(object.meta());
            if index.is_enabled(&namespace) {
                put(&index, object, StateOrigin::List);
                if index.has(kind, &namespace, &name) {
                    listed.get_or_insert_default().insert((namespace, name));
                }
            }
        }
        WatchChange::Listed(began) => index.complete_list(&scope, kind, began, &listed.take().unwrap_or_default()),
        WatchChange::Put(object) => {
            if index.is_enabled(object.meta().namespace.as_deref().unwrap_or_default()) {
                put(&index, object, StateOrigin::Watch);
            }
        }
        WatchChange::Gone(object) => {
            let (namespace, name) = names(object.meta());
            index.remove(kind, &namespace, &name);
        }
        WatchChange::Unparsed(Unparsed { namespace, name, gone: true, .. }) => index.remove(kind, &namespace, &name),
        WatchChange::Unparsed(Unparsed { namespace, name, reason, .. }) => {
            index.note_unparsed(kind, &namespace, &name, &reason);
            if let Some(listed) = listed.as_mut().filter(|_| index.has(kind, &namespace, &name)) {
                listed.insert((namespace, name));
            }
        }
    }
}

/// Adds a config. One that can't be parsed stays as it was known last.
pub(super) fn put_config(index: &Index, object: DynamicObject, origin: StateOrigin) {
    let (namespace, name) = names(&object.metadata);
    match object.try_parse::<VersionedConfig>() {
        Ok(config) => index.put_config_from(origin, config),
        Err(error) => index.note_unparsed(WatchedKind::Configs, &namespace, &name, &chain(&error)),
    }
}

/// Adds an approval. One that can't be parsed may be a denial: it is left out, and counts as not known.
pub(super) fn put_approval(index: &Index, object: DynamicObject) {
    let (namespace, name) = names(&object.metadata);
    match object.try_parse::<VersionApproval>() {
        Ok(approval) => index.put_approval(approval),
        Err(error) => index.note_unparsed(WatchedKind::Approvals, &namespace, &name, &chain(&error)),
    }
}

pub(super) fn put_part(index: &Index, object: &impl ResourceExt, kind: PartKind) {
    if let Some((key, part)) = part_meta(object, kind) {
        index.put_part(key, part);
    } else {
        let (namespace, name) = names(object.meta());
        index.remove_part(&ObjectKey::new(kind, namespace, name));
    }
}

/// Returns the metadata of a part that matters; `None` for an object that belongs to no config.
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
        parts: object.annotations().get(labels::PARTS).cloned().map(|text| clip(text, MAX_PARTS_BYTES)),
        prune: label(object, labels::PRUNE).is_some_and(|value| value == "true" || kept_versions(value).is_some()),
        keep: label(object, labels::PRUNE).and_then(kept_versions),
        created: object.creation_timestamp().map_or(0, |time| time.0.as_second()),
        terminating: object.meta().deletion_timestamp.is_some(),
    };
    Some((config, part))
}

/// Returns how many versions of a source are kept, by the label of a version that the source has made.
fn kept_versions(label: &str) -> Option<u32> {
    label.parse().ok().filter(|versions: &u32| versions.to_string() == label)
}

pub(super) fn put_published(index: &Index, object: &PartialObjectMeta<ConfigMap>) {
    // A ConfigMap whose name no config can have is not published.
    if let Ok(key) = ConfigKey::of(&object.metadata) {
        let meta = PublishedMeta {
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        };
        index.set_published_meta(key, Some(meta));
    }
}

pub(super) fn put_pod(index: &Index, pod: &Pod) {
    match pod_state(pod) {
        Some(state) => index.put_pod(state),
        None => index.remove(WatchedKind::Pods, &pod.namespace().unwrap_or_default(), &pod.name_any()),
    }
}

/// Adds an account. One that is being deleted counts as deleted, even while a finalizer holds it.
pub(super) fn put_account(index: &Index, account: &PartialObjectMeta<ServiceAccount>) {
    let (namespace, name) = names(&account.metadata);
    match &account.metadata.uid {
        Some(uid) if account.metadata.deletion_timestamp.is_none() => index.put_account(&namespace, &name, uid),
        _ => index.remove_account(&namespace, &name),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::watch::WatchHealth;

    fn object(name: &str, spec: &serde_json::Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": spec,
        }))
        .unwrap()
    }

    /// Lists these objects.
    fn list<T>(take: &mut impl FnMut(WatchChange<T>), objects: impl IntoIterator<Item = T>) {
        take(WatchChange::Listing);
        objects.into_iter().for_each(|object| take(WatchChange::Found(object)));
        take(WatchChange::Listed(Instant::now()));
    }

    #[tokio::test]
    async fn a_change_of_a_namespace_has_the_api_server_requested_what_it_refused() {
        let index = Arc::new(Index::default());
        let mut take = namespace_sink(Arc::clone(&index), NamespaceRule::default());
        let namespace = || {
            let labels = json!({"nudge.dev/enabled": "true"});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": labels}});
            serde_json::from_value::<PartialObjectMeta<Namespace>>(object).unwrap()
        };
        take(WatchChange::Put(namespace()));
        let since = index.enabled_since(&WatchScope::Namespace("ns".to_owned()));
        let [secrets, pods] =
            [WatchedKind::Secrets, WatchedKind::Pods].map(|kind| index.add_health_of("ns", since, kind));
        secrets.set_forbidden(true);
        take(WatchChange::Put(namespace()));
        let asked = async |health: &WatchHealth| {
            tokio::time::timeout(std::time::Duration::ZERO, health.wait_for_request()).await.is_ok()
        };
        assert!(asked(&secrets).await && !asked(&pods).await);
    }

    #[test]
    fn an_object_that_cannot_be_parsed_hides_no_other_and_stays_as_it_was() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let mut take = object_sink(Arc::clone(&index), WatchScope::Cluster, WatchedKind::Configs, put_config);
        list(&mut take, [object("good", &json!({})), object("bad", &json!({"rollout": {"steps": {"later": 1}}}))]);
        let known = |name: &str| index.config(&ConfigKey::parse("ns", name).unwrap()).is_some();
        assert!(known("good") && !known("bad"));
        take(WatchChange::Put(object("good", &json!({"historyLimit": "later"}))));
        assert!(known("good"));
        list(&mut take, [object("good", &json!({"historyLimit": "later"}))]);
        assert!(known("good"), "it is there and can't be parsed");
        take(WatchChange::Gone(object("good", &json!({"historyLimit": "later"}))));
        assert!(!known("good"));
    }

    #[test]
    fn what_cannot_be_parsed_is_there_all_the_same() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let put = |index: &Index, object, _| put_part(index, &object, PartKind::ConfigMap);
        let mut take =
            object_sink(Arc::clone(&index), WatchScope::Namespace("ns".to_owned()), WatchedKind::ConfigMaps, put);
        let part = |name: &str| -> PartialObjectMeta<ConfigMap> {
            let meta =
                json!({"name": name, "namespace": "ns", "labels": {labels::CONFIG: "shop", labels::VERSION: "1"}});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        let unparsed = |name: &str, gone: bool| {
            let (namespace, reason) = ("ns".to_owned(), "it is hostile".to_owned());
            WatchChange::Unparsed(Unparsed { namespace, name: name.to_owned(), gone, reason })
        };
        let key = ConfigKey::parse("ns", "shop").unwrap();
        let known = |parts: usize, others: bool| {
            assert_eq!(index.parts(&key).len(), parts);
            assert_eq!(index.count_left_out().iter().any(|(_, count)| *count > 0), others);
        };
        list(&mut take, [part("a")]);
        known(1, false);
        take(unparsed("a", false));
        take(unparsed("b", false));
        known(1, true);
        take(WatchChange::Listing);
        take(unparsed("a", false));
        take(unparsed("b", false));
        take(WatchChange::Listed(Instant::now()));
        known(1, true);
        take(WatchChange::Put(part("b")));
        known(2, false);
        take(unparsed("a", true));
        take(unparsed("b", true));
        known(0, false);
        // An object that is found outside of a list does not count for the next list.
        take(unparsed("c", false));
        list(&mut take, [part("a")]);
        known(1, false);
    }

    #[test]
    fn a_list_that_breaks_off_removes_nothing() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let mut take =
            object_sink(Arc::clone(&index), WatchScope::Namespace("ns".to_owned()), WatchedKind::Configs, put_config);
        let known = |name: &str| index.config(&ConfigKey::parse("ns", name).unwrap()).is_some();
        list(&mut take, [object("a", &json!({})), object("b", &json!({}))]);
        take(WatchChange::Listing);
        take(WatchChange::Found(object("b", &json!({}))));
        assert!(known("a") && known("b"));
        // The next list starts from nothing: objects of the first list do not count.
        list(&mut take, [object("a", &json!({}))]);
        assert!(known("a") && !known("b"));
    }

    #[test]
    fn nothing_is_kept_of_a_namespace_that_is_not_enabled() {
        let index = Arc::new(Index::default());
        let mut take = object_sink(Arc::clone(&index), WatchScope::Cluster, WatchedKind::Configs, put_config);
        list(&mut take, [object("a", &json!({}))]);
        take(WatchChange::Put(object("b", &json!({}))));
        index.set_enabled(["ns".to_owned()].into());
        assert!(index.configs().is_empty());
        take(WatchChange::Put(object("b", &json!({}))));
        assert_eq!(index.configs().len(), 1);
        index.set_enabled([].into());
        assert!(index.configs().is_empty());
    }

    #[test]
    fn namespaces_are_those_of_the_last_complete_list_and_of_what_came_after() {
        let index = Arc::new(Index::default());
        let mut take = namespace_sink(Arc::clone(&index), NamespaceRule::all_but("nudge-system"));
        let namespace = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        list(&mut take, ["a", "b", "nudge-system", "kube-system"].map(namespace));
        let enabled = || index.enabled_namespaces().borrow().iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(enabled(), "a b");
        let mut changes = index.enabled_namespaces();
        changes.borrow_and_update();
        take(WatchChange::Put(namespace("a")));
        assert!(!changes.has_changed().unwrap());
        take(WatchChange::Put(namespace("c")));
        take(WatchChange::Gone(namespace("a")));
        take(WatchChange::Listing);
        take(WatchChange::Found(namespace("d")));
        assert_eq!(enabled(), "b c");
        take(WatchChange::Listed(Instant::now()));
        assert_eq!(enabled(), "d");
    }

    #[test]
    fn a_service_account_that_is_being_deleted_is_deleted() {
        let index = Arc::new(Index::default());
        index.set_enabled(["ns".to_owned()].into());
        let put = |index: &Index, account, _| put_account(index, &account);
        let mut take = object_sink(Arc::clone(&index), WatchScope::Cluster, WatchedKind::Accounts, put);
        let account = |uid: &str, deleted: Option<&str>| -> PartialObjectMeta<ServiceAccount> {
            let meta = json!({"name": "app", "namespace": "ns", "uid": uid, "deletionTimestamp": deleted});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        list(&mut take, [account("a", None)]);
        assert!(index.has_account("ns", "app", "a"));
        take(WatchChange::Put(account("a", Some("2026-01-01T00:00:00Z"))));
        assert!(!index.has_account("ns", "app", "a"));
        take(WatchChange::Put(account("b", None)));
        assert!(index.has_account("ns", "app", "b"));
        take(WatchChange::Gone(account("b", None)));
        assert!(!index.has_account("ns", "app", "b"));
    }
}
