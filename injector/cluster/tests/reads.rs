//! The objects that are read from namespaces of a real API server, with rights in some of the namespaces.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use nudge_api::{VersionedConfig, crd};
use nudge_cluster::index::{Index, NamespaceCounts};
use nudge_cluster::lenient_object::Lenient;
use nudge_cluster::watch::{ReadScope, WatchSettings, watch_cluster};
use nudge_core::keys::{ConfigKey, PodKey};
use nudge_protocol::{labels, pod};
use nudge_tests::cluster::{Cluster, TestNamespace};
use nudge_tests::eventually;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_mins(1);

/// The cluster with the kind and the roles.
async fn cluster() -> Result<Option<&'static Cluster>> {
    static MADE: OnceCell<()> = OnceCell::const_new();
    let Some(cluster) = Cluster::shared().await? else { return Ok(None) };
    let made = MADE.get_or_try_init(async || {
        let admin = cluster.admin().await?;
        let post = PostParams::default();
        Api::<CustomResourceDefinition>::all(admin.clone()).create(&post, &crd::<VersionedConfig>()).await?;
        let read = json!(["get", "list", "watch"]);
        let namespaces = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": read}]);
        let objects = json!([
            {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": read},
            {"apiGroups": [""], "resources": ["configmaps", "pods", "serviceaccounts"], "verbs": read},
        ]);
        let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": read}]);
        for (name, rules) in [("namespaces", namespaces), ("reads", objects), ("secrets", secrets)] {
            let role = json!({"metadata": {"name": format!("test-{name}")}, "rules": rules});
            Api::<ClusterRole>::all(admin.clone()).create(&post, &serde_json::from_value(role)?).await?;
        }
        let configs = Api::<VersionedConfig>::all(admin);
        eventually(SOON, "the kind is served", async || configs.list(&ListParams::default()).await.ok().map(drop)).await
    });
    made.await?;
    Ok(Some(cluster))
}

/// Grants the user the role cluster-wide.
async fn bind_everywhere(cluster: &Cluster, role: &str, user: &str) -> Result<()> {
    let binding = json!({"metadata": {"name": format!("{role}-{user}")}, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
    let bindings = Api::<ClusterRoleBinding>::all(cluster.admin().await?);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// Grants the user the role in the namespace.
async fn bind(space: &TestNamespace, role: &str, user: &str) -> Result<()> {
    let binding = json!({"metadata": {"name": role}, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
    space.create_object::<RoleBinding>(binding).await?;
    Ok(())
}

/// Enables the namespace, or no longer.
async fn enable(space: &TestNamespace, on: bool) -> Result<()> {
    let patch = json!({"metadata": {"labels": {labels::ENABLED: if on { Value::from("true") } else { Value::Null }}}});
    let namespaces = Api::<Namespace>::all(space.client.clone());
    namespaces.patch(&space.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// A config with a version of two kinds, a published ConfigMap, a pod, and a service account.
async fn fill(space: &TestNamespace) -> Result<()> {
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": {}})).await?;
    let version = json!({labels::CONFIG: "shop", labels::VERSION: "1"});
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop-1", "labels": version}})).await?;
    space.create_object::<Secret>(json!({"metadata": {"name": "shop-1", "labels": version}})).await?;
    let published = json!({"metadata": {"name": "shop", "labels": {labels::FOLLOWS: "shop"}}});
    space.create_object::<ConfigMap>(published).await?;
    let configs = json!([{"name": pod::env::CONFIGS, "value": "shop"}]);
    let object = json!({"metadata": {"name": "web", "labels": {labels::AGENT: "0.1.0"}}, "spec": {
        "automountServiceAccountToken": false,
        "containers": [{"name": pod::AGENT_CONTAINER, "image": "test", "env": configs}, {"name": "app", "image": "test"}]}});
    space.create_object::<Pod>(object).await?;
    space.service_account("app").await?;
    Ok(())
}

/// The service account `app` as it is now.
async fn account(space: &TestNamespace) -> Result<String> {
    space.api::<ServiceAccount>().get("app").await?.metadata.uid.context("no uid")
}

/// Returns which objects of a namespace are known (config, published ConfigMap, pod), and the number of objects of
/// versions.
fn known(index: &Index, space: &TestNamespace) -> ([bool; 3], usize) {
    let Ok(key) = ConfigKey::parse(&*space.name, "shop") else { return ([false; 3], 0) };
    let pod = index.pod(&PodKey::new(&*space.name, "web")).is_some();
    ([index.config(&key).is_some(), index.published_meta(&key).is_some(), pod], index.parts(&key).len())
}

async fn knows(index: &Index, space: &TestNamespace, parts: usize) -> Result<()> {
    let what = format!("{} is known with {parts} parts", space.name);
    let all = async || {
        let complete = index.is_complete(&space.name) && index.doubted_watch(&space.name).is_none();
        (complete && known(index, space) == ([true; 3], parts)).then_some(())
    };
    eventually(SOON, &what, all).await.with_context(|| format!("{:?}", known(index, space)))
}

/// The watches of a process, until dropped.
struct Watching {
    index: Arc<Index>,
    task: JoinHandle<()>,
}

impl Watching {
    fn new(client: Client, reads: ReadScope) -> Self {
        let index = Arc::new(Index::default());
        let settings = WatchSettings { seconds: 3, reads, ..WatchSettings::default() };
        let task = tokio::spawn(watch_cluster(client, Arc::clone(&index), settings));
        Self { index, task }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the user's requests: resource, namespace, and answer.
fn asked(cluster: &Cluster, user: &str) -> Result<Vec<(String, String, u64)>> {
    let mut all = Vec::new();
    for event in cluster.audit(user)? {
        if event["impersonatedUser"]["username"] == user {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let reference = &event["objectRef"];
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            all.push((text(&reference["resource"]), text(&reference["namespace"]), code));
        }
    }
    Ok(all)
}

#[tokio::test]
async fn only_namespaces_whose_rights_are_bound_are_read_and_the_others_hold_nobody() -> Result<()> {
    let Some(cluster) = cluster().await? else { return Ok(()) };
    let user = "bound";
    bind_everywhere(cluster, "test-namespaces", user).await?;
    let enabled = [(labels::ENABLED, "true")];
    let (bound, unbound) =
        (cluster.space_with("bound", &enabled).await?, cluster.space_with("unbound", &enabled).await?);
    let later = cluster.space("later").await?;
    for space in [&bound, &unbound, &later] {
        fill(space).await?;
    }
    for space in [&bound, &later] {
        bind(space, "test-reads", user).await?;
    }
    bind(&bound, "test-secrets", user).await?;
    let watching = Watching::new(cluster.client(&cluster.user(user, &[])).await?, ReadScope::Namespaces);
    let index = &watching.index;

    // A namespace without rights holds nobody but itself. Others that tests have enabled have none either.
    tokio::time::timeout(SOON, index.wait_until_synced()).await.context("not synced")?;
    knows(index, &bound, 2).await?;
    assert!(index.has_account(&bound.name, "app", &account(&bound).await?));
    assert!(!index.has_account(&unbound.name, "app", &account(&unbound).await?));
    assert!(index.silent_watch(Duration::from_mins(1)).is_none());
    assert!(index.may_read_secrets(&bound.name) && !index.may_read_secrets(&unbound.name));
    assert!(!index.is_complete(&unbound.name) && index.doubted_watch(&unbound.name).is_some());
    assert_eq!(known(index, &unbound), ([false; 3], 0));
    let forbidden = async || index.forbidden_kind(&unbound.name);
    eventually(SOON, "the namespace is known as forbidden", forbidden).await?;
    let confirmed = index.confirm(Instant::now(), Duration::from_secs(20)).await;
    assert_eq!(confirmed, Ok(()), "what can't be read is not waited for");

    // A namespace that is not enabled is not even requested.
    assert_eq!(known(index, &later), ([false; 3], 0));
    assert!(asked(cluster, user)?.iter().all(|(_, namespace, _)| *namespace != later.name));

    // Enabled at run time: Secrets are not allowed there.
    enable(&later, true).await?;
    knows(index, &later, 1).await?;
    assert!(!index.may_read_secrets(&later.name) && index.is_synced());

    // And no longer: all of it is forgotten, and its watches end.
    enable(&later, false).await?;
    let forgotten = async || (known(index, &later) == ([false; 3], 0)).then_some(());
    eventually(SOON, "the namespace is forgotten", forgotten).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = asked(cluster, user)?.iter().filter(|(_, namespace, _)| *namespace == later.name).count();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = asked(cluster, user)?.iter().filter(|(_, namespace, _)| *namespace == later.name).count();
    // A watch that was open shows in the audit log when it ends.
    assert!(after <= before + 5, "{before} requests, then {after}");
    enable(&later, true).await?;
    knows(index, &later, 1).await?;
    // Too fast for the watches to be ended in between.
    enable(&later, false).await?;
    enable(&later, true).await?;
    knows(index, &later, 1).await?;

    // Rights that are bound later are used without a restart.
    bind(&unbound, "test-reads", user).await?;
    knows(index, &unbound, 1).await?;
    bind(&unbound, "test-secrets", user).await?;
    knows(index, &unbound, 2).await?;

    // The rights are taken away: the known state stays, nothing may move, and Secrets are gone at once.
    for role in ["test-reads", "test-secrets"] {
        unbound.api::<RoleBinding>().delete(role, &DeleteParams::default()).await?;
    }
    let held = async || {
        (index.forbidden_kind(&unbound.name).is_some() && !index.may_read_secrets(&unbound.name)).then_some(())
    };
    eventually(SOON, "the namespace is held", held).await?;
    assert!(index.doubted_watch(&unbound.name).is_some() && index.doubted_watch(&bound.name).is_none());
    assert_eq!(known(index, &unbound), ([true; 3], 1));
    // An object that is deleted meanwhile is not there when the rights are back.
    unbound.api::<VersionedConfig>().delete("shop", &DeleteParams::default()).await?;
    let before = account(&unbound).await?;
    assert!(index.has_account(&unbound.name, "app", &before), "a watch that is refused ends none");
    unbound.api::<ServiceAccount>().delete("app", &DeleteParams::default()).await?;
    unbound.service_account("app").await?;
    bind(&unbound, "test-reads", user).await?;
    let gone = async || {
        let complete = index.doubted_watch(&unbound.name).is_none();
        (complete && !known(index, &unbound).0[0]).then_some(())
    };
    eventually(SOON, "the config is gone", gone).await?;
    assert!(!index.has_account(&unbound.name, "app", &before), "the account of that name is another");
    assert!(index.has_account(&unbound.name, "app", &account(&unbound).await?));

    // Nothing but namespaces was requested cluster-wide.
    let wide: Vec<_> = asked(cluster, user)?.into_iter().filter(|(_, namespace, _)| namespace.is_empty()).collect();
    assert!(!wide.is_empty() && wide.iter().all(|(resource, ..)| resource == "namespaces"), "{wide:?}");
    Ok(())
}

#[tokio::test]
async fn with_rights_for_the_cluster_nothing_is_kept_of_namespaces_that_are_not_enabled() -> Result<()> {
    let Some(cluster) = cluster().await? else { return Ok(()) };
    let user = "everywhere";
    for role in ["test-namespaces", "test-reads"] {
        bind_everywhere(cluster, role, user).await?;
    }
    let first = cluster.space_with("first", &[(labels::ENABLED, "true")]).await?;
    let second = cluster.space("second").await?;
    for space in [&first, &second] {
        fill(space).await?;
        bind(space, "test-secrets", user).await?;
    }
    let watching = Watching::new(cluster.client(&cluster.user(user, &[])).await?, ReadScope::Cluster);
    let index = &watching.index;
    knows(index, &first, 2).await?;
    // Changed objects are left out, too.
    let patch = json!({"spec": {"historyLimit": 7}});
    let configs = second.api::<VersionedConfig>();
    configs.patch("shop", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(known(index, &second), ([false; 3], 0));
    assert!(!index.configs().iter().any(|key| key.namespace == second.name));
    // The namespace is enabled at run time: the objects that were left out are listed.
    enable(&second, true).await?;
    knows(index, &second, 2).await?;
    assert!(index.has_account(&second.name, "app", &account(&second).await?));
    let confirmed = async || index.doubted_watch(&first.name).is_none().then_some(());
    eventually(SOON, "the list is confirmed", confirmed).await?;
    enable(&second, false).await?;
    let forgotten = async || (known(index, &second) == ([false; 3], 0)).then_some(());
    eventually(SOON, "the namespace is forgotten", forgotten).await?;
    // Nobody has requested the Secrets of the cluster.
    let secrets = asked(cluster, user)?.into_iter().filter(|(resource, ..)| resource == "secrets");
    assert!(secrets.into_iter().all(|(_, namespace, _)| !namespace.is_empty()));
    Ok(())
}

#[tokio::test]
async fn rights_for_the_cluster_that_are_missing_keep_the_replica_from_being_ready() -> Result<()> {
    let Some(cluster) = cluster().await? else { return Ok(()) };
    let user = "nowhere";
    bind_everywhere(cluster, "test-namespaces", user).await?;
    let space = cluster.space_with("closed", &[(labels::ENABLED, "true")]).await?;
    let watching = Watching::new(cluster.client(&cluster.user(user, &[])).await?, ReadScope::Cluster);
    let enabled = async || watching.index.is_enabled(&space.name).then_some(());
    eventually(SOON, "the namespace is enabled", enabled).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!watching.index.is_synced() && watching.index.silent_watch(Duration::from_mins(1)).is_some());
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_more_objects_than_a_page_is_known_whole() -> Result<()> {
    let Some(cluster) = cluster().await? else { return Ok(()) };
    let user = "pages";
    bind_everywhere(cluster, "test-namespaces", user).await?;
    let space = cluster.space_with("pages", &[(labels::ENABLED, "true")]).await?;
    bind(&space, "test-reads", user).await?;
    fill(&space).await?;
    for number in 0..130 {
        let mut config = VersionedConfig::new(&format!("c{number}"), nudge_api::VersionedConfigSpec::default());
        config.metadata.annotations = Some([("example/note".to_owned(), "x".repeat(1000))].into());
        space.api::<VersionedConfig>().create(&PostParams::default(), &config).await?;
    }
    let watching = Watching::new(cluster.client(&cluster.user(user, &[])).await?, ReadScope::Namespaces);
    let index = &watching.index;
    let count = || index.configs().iter().filter(|key| key.namespace == space.name).count();
    knows(index, &space, 1).await?;
    assert_eq!(count(), 131);
    let config = index.config(&ConfigKey::parse(&*space.name, "c7")?).context("c7")?;
    assert!(config.metadata.annotations.is_none() && config.metadata.managed_fields.is_none());

    let NamespaceCounts { complete, .. } = index.count_namespaces();
    assert_eq!(complete, 1, "others have no rights for this user");
    Ok(())
}

/// Patches the object as a user with that right may: the API server stores a year that no client can parse. Returns
/// whether it did.
async fn attack<K>(space: &TestNamespace, name: &str) -> Result<bool>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let objects = Api::<Lenient<K>>::namespaced(space.client.clone(), &space.name);
    let field = Patch::Merge(json!({"metadata": {"annotations": {"attack": "yes"}}}));
    objects.patch(name, &PatchParams::default(), &field).await?;
    let managed = json!([{"manager": "attack", "operation": "Update", "apiVersion": K::api_version(&()), "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:attack": {}}}}, "time": "9999-12-31T23:59:59-23:59"}]);
    let patch = Patch::Merge(json!({"metadata": {"managedFields": managed}}));
    let Lenient(object) = objects.patch(name, &PatchParams::default(), &patch).await?;
    assert_eq!(object.meta().name.as_deref(), Some(name));
    let typed = Api::<K>::namespaced(space.client.clone(), &space.name).get(name).await;
    Ok(matches!(typed, Err(kube::Error::SerdeError(_))))
}

#[tokio::test]
async fn objects_that_cannot_be_parsed_hold_nobody() -> Result<()> {
    let Some(cluster) = cluster().await? else { return Ok(()) };
    let user = "attacked";
    bind_everywhere(cluster, "test-namespaces", user).await?;
    let enabled = [(labels::ENABLED, "true")];
    let (before, after) = (cluster.space_with("before", &enabled).await?, cluster.space_with("after", &enabled).await?);
    let all = async |space: &TestNamespace| {
        // Of custom resources it stores none.
        attack::<VersionedConfig>(space, "shop").await?;
        let parts = attack::<ConfigMap>(space, "shop-1").await? && attack::<Secret>(space, "shop-1").await?;
        let stored = parts && attack::<ConfigMap>(space, "shop").await? && attack::<Pod>(space, "web").await?;
        assert!(stored, "this is no attack any more");
        Ok::<_, anyhow::Error>(())
    };
    for space in [&before, &after] {
        fill(space).await?;
        bind(space, "test-reads", user).await?;
        bind(space, "test-secrets", user).await?;
    }
    all(&before).await?;
    let watching = Watching::new(cluster.client(&cluster.user(user, &[])).await?, ReadScope::Namespaces);
    let index = &watching.index;
    tokio::time::timeout(SOON, index.wait_until_synced()).await.context("not synced")?;
    knows(index, &before, 2).await?;
    knows(index, &after, 2).await?;
    // The same while they are watched, and a change after it.
    all(&after).await?;
    let configs = Api::<Lenient<VersionedConfig>>::namespaced(after.client.clone(), &after.name);
    let patch = Patch::Merge(json!({"spec": {"historyLimit": 7}}));
    configs.patch("shop", &PatchParams::default(), &patch).await?;
    let key = ConfigKey::parse(&*after.name, "shop")?;
    let changed = async || index.config(&key).filter(|config| config.spec.history_limit == 7).map(drop);
    eventually(SOON, "the change is known", changed).await?;
    knows(index, &after, 2).await?;
    assert!(index.count_left_out().iter().all(|(_, count)| *count == 0), "all of them are known");
    Ok(())
}
