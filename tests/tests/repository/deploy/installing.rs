//! Installed, applied again, upgraded while it runs, and removed in the order that README gives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Resource as _, ResourceExt as _};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::installation::{NAMESPACE, at_once, bind, create_part, deploy, hub_ca, injected_pod};
use nudge_tests::cluster::{Options, TestNamespace};
use nudge_tests::{Cluster, Finished, Installation, ReplicaOptions, eventually, ports};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::deploy::manifests::{base, difference, documents, read, render};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const APPLY: [&str; 3] = ["apply", "--server-side", "--warnings-as-errors"];

/// Returns what README says to apply on the server at hand; the base alone if this machine's kubectl can't render the
/// rest.
fn manifest(cluster: &Cluster) -> Result<String> {
    let current = cluster.has(30, "the overlay `current`").then(|| render(&deploy().join("overlays/current")));
    Ok(match current.transpose()?.flatten() {
        Some(text) => text,
        None => base()?,
    })
}

/// Returns a cluster with all of it, for tests that need neither a replica nor an enabled namespace.
pub(crate) async fn installed() -> Result<Option<&'static Cluster>> {
    static INSTALLED: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let installed = INSTALLED.get_or_try_init(async || {
        let controllers = [
            "namespace",
            "root-ca-cert-publisher",
            "serviceaccount",
            "serviceaccount-token",
            "clusterrole-aggregation",
        ];
        let Some(cluster) = Cluster::start(&Options::default().controllers(&controllers)).await? else {
            return Ok(None);
        };
        // A dry run finds no namespace that it has not really made.
        let namespace = read(&deploy().join("base/namespace.yaml"))?;
        if !apply_first(&cluster, &namespace).await? {
            return Ok(None);
        }
        let whole_manifest = manifest(&cluster)?;
        cluster.kubectl_on(&[&APPLY[..], &["--dry-run=server"]].concat(), &whole_manifest).await?;
        cluster.kubectl_on(&APPLY, &whole_manifest).await?;
        Ok::<_, anyhow::Error>(Some(cluster))
    });
    Ok(installed.await?.as_ref())
}

/// Applies the first thing to a new server: an old one takes a moment until it can say what it has. `false` without
/// kubectl.
async fn apply_first(cluster: &Cluster, text: &str) -> Result<bool> {
    let try_it = async || match cluster.kubectl_on(&APPLY, text).await {
        Err(error) if error.to_string().contains("currently unable to handle the request") => None,
        other => Some(other.map(|said| said.is_some())),
    };
    eventually(WAIT_TIMEOUT, "the server has its schemas", try_it).await?
}

/// Returns the objects as the server has them, but for what old servers write again with every application.
async fn stored_objects(cluster: &Cluster, objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let client = cluster.admin().await?;
    let mut collected = BTreeMap::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &kind);
        let plural = match kind.as_str() {
            "NetworkPolicy" => "networkpolicies".to_owned(),
            "PriorityClass" => "priorityclasses".to_owned(),
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
            other => format!("{}s", other.to_lowercase()),
        };
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = text(&object["metadata"]["name"]);
        let mut object = api.get(&name).await.with_context(|| format!("{kind} {name}"))?;
        object.metadata.managed_fields = None;
        object.metadata.resource_version = None;
        collected.insert(format!("{kind}/{name}"), serde_json::to_value(object)?);
    }
    Ok(collected)
}

#[tokio::test]
async fn applying_again_changes_nothing() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let text = manifest(cluster)?;
    let mut objects = documents(&text)?;
    // Written to by controllers of the cluster: their status, and the service account's token.
    objects.retain(|object| {
        !["CustomResourceDefinition", "ServiceAccount", "ValidatingAdmissionPolicy", "PodDisruptionBudget"]
            .map(Value::from)
            .contains(&object["kind"])
    });
    let before = stored_objects(cluster, &objects).await?;
    ensure!(before.len() > 15);
    cluster.kubectl_on(&APPLY, &text).await?;
    assert_eq!(difference(&stored_objects(cluster, &objects).await?, &before), Vec::<&String>::new());
    Ok(())
}

#[tokio::test]
async fn the_pods_of_every_role_fit_their_namespace() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let client = cluster.admin().await?;
    let state = ["/run/nudge-injector", "/var/run/secrets/kubernetes.io/serviceaccount"];
    let files = ["/etc/nudge-injector/content-key", "/etc/nudge-injector/serving"];
    for (file, account, expected) in [
        ("certs", "nudge-certs", state.to_vec()),
        ("control", "nudge-injector", [files, state].concat()),
        ("hub", "nudge-hub", [files, state].concat()),
    ] {
        let deployment = documents(&read(&deploy().join(format!("base/{file}.yaml")))?)?.remove(0);
        // Old servers refuse a pod whose service account has no token in a Secret yet.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        let token = async || {
            let account = accounts.get(account).await.ok()?;
            (cluster.version().minor >= 24 || account.secrets.is_some()).then_some(())
        };
        eventually(WAIT_TIMEOUT, "the service account has a token", token).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let mut template = deployment["spec"]["template"].clone();
        template["metadata"]["name"] = json!("replica");
        let pod = pods.create(&dry, &serde_json::from_value(template.clone())?).await?;
        let spec = pod.spec.context("no spec")?;
        assert_eq!((spec.priority, spec.service_account_name.as_deref()), (Some(1_000_000), Some(account)));
        let mounted = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
        let mut mounted: Vec<_> = mounted.map(|mount| mount.mount_path.as_str()).collect();
        mounted.sort_unstable();
        assert_eq!(mounted, expected, "{file}");
        if cluster.has(25, "Pod Security") {
            template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
            let refused = pods.create(&dry, &serde_json::from_value(template)?).await.err().context("not enforced")?;
            ensure!(refused.to_string().contains("restricted"), "{refused}");
        }
    }
    Ok(())
}

/// Webhooks at addresses of this machine instead of Services; all else as it is.
pub(crate) fn by_address(text: &str, address: SocketAddr) -> Result<String> {
    let mut objects = documents(text)?;
    let webhooks = objects.iter_mut().filter_map(|object| object.get_mut("webhooks")?.as_array_mut()).flatten();
    for webhook in webhooks {
        let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?.to_owned();
        webhook["clientConfig"] = json!({"url": format!("https://{address}{path}")});
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Ok(serde_json::to_string(&list)?)
}

async fn run(cluster: &Cluster, arguments: &[&str]) -> Result<Finished> {
    let finished = cluster.kubectl(arguments).await?.context("kubectl")?;
    ensure!(finished.code == Some(0), "kubectl {arguments:?}: {}", finished.stderr);
    Ok(finished)
}

/// Returns every ConfigMap and pod of the namespace.
async fn what_users_have(space: &TestNamespace) -> Result<Vec<String>> {
    let mut collected = Vec::new();
    for mut map in space.api::<ConfigMap>().list(&ListParams::default()).await? {
        map.meta_mut().managed_fields = None;
        collected.push(serde_json::to_string(&map)?);
    }
    for mut pod in space.api::<Pod>().list(&ListParams::default()).await? {
        pod.meta_mut().managed_fields = None;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{} is terminating", pod.name_any());
        collected.push(serde_json::to_string(&pod.spec)?);
    }
    Ok(collected)
}

#[tokio::test]
async fn upgraded_while_it_runs_and_removed_as_readme_says() -> Result<()> {
    let options = Options::default().controllers(&["namespace", "serviceaccount", "garbagecollector"]);
    let Some(cluster) = Cluster::start(&options).await? else { return Ok(()) };
    let address = || ports::free().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let addresses = (address()?, address()?, address()?);
    let text = by_address(&manifest(&cluster)?, addresses.0)?;
    if !apply_first(&cluster, &text).await? {
        return Ok(());
    }
    // Applies only the additional objects of the tests' own replica.
    let installation = Installation::apply(&cluster).await?.context("kubectl")?;
    let mut replica =
        installation.replica(&ReplicaOptions { addresses: Some(addresses), ..ReplicaOptions::default() }).await?;
    let space = installation.enabled("user").await?;
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "shop"}, "data": {"key": "zero"}})).await?;
    for version in ["1", "2"] {
        let labels = json!({"nudge.dev/config": "shop", "nudge.dev/version": version});
        let metadata = json!({"name": format!("shop-{version}"), "labels": labels});
        let part = json!({"metadata": metadata, "immutable": true, "data": {"key": version}});
        // The webhooks may not be trusted yet.
        create_part::<ConfigMap>(&space, part).await?;
    }
    let config = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "shop"}, "spec": {"version": "2", "rollout": at_once(), "objects": ["ConfigMap"]}});
    // The injector writes its authority into the webhooks a moment after its start.
    let configs = space.api::<VersionedConfig>();
    let shop: VersionedConfig = serde_json::from_value(config)?;
    let try_to_create = async || configs.create(&PostParams::default(), &shop).await.ok().map(drop);
    eventually(WAIT_TIMEOUT, "the config is made", try_to_create).await?;
    let current = async |version: &str| {
        let shown = async || {
            let status = configs.get("shop").await.ok()?.status?;
            (status.published_version.as_deref() == Some(version)).then_some(())
        };
        eventually(WAIT_TIMEOUT, &format!("{version} is published"), shown).await
    };
    current("2").await?;
    hub_ca(&space).await?;

    // Upgraded: the same set with something else in it, by the same command; what the injector has written stays or
    // comes back.
    let newer = text.replace("\"replicas\":2", "\"replicas\":3");
    ensure!(newer != text);
    cluster.kubectl_on(&APPLY, &newer).await?;
    let patch = json!({"spec": {"version": "1"}});
    let switched = async || {
        let patch = kube::api::Patch::Merge(&patch);
        configs.patch("shop", &kube::api::PatchParams::default(), &patch).await.ok().map(drop)
    };
    eventually(WAIT_TIMEOUT, "the webhooks are trusted", switched).await?;
    current("1").await?;
    injected_pod(&space, "web", "shop").await?;

    // Removed.
    let before = what_users_have(&space).await?;
    ensure!(before.len() >= 4, "{before:?}");
    let webhooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    run(&cluster, &["delete", webhooks, "nudge-injector"]).await?;
    run(&cluster, &["--namespace", NAMESPACE, "delete", "deployment", "-l", "app.kubernetes.io/name=nudge"]).await?;
    replica.process.stop()?;
    cluster.kubectl_on(&["delete", "--ignore-not-found"], &text).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.admin().await?);
    eventually(WAIT_TIMEOUT, "Nudge's namespace is gone", async || namespaces.get(NAMESPACE).await.err().map(drop))
        .await?;
    assert_eq!(what_users_have(&space).await?, before);
    Ok(())
}

/// `deploy/namespace` is what the tests of everything else bind.
#[tokio::test]
async fn the_bindings_of_a_namespace_are_accepted() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let space = cluster.space("bound").await?;
    for (file, role, count) in [
        ("namespace/role-bindings", "nudge-namespace", 2),
        ("namespace/secrets/role-bindings", "nudge-secrets", 2),
        ("namespace/publish-secrets/role-binding", "nudge-publish-secrets", 1),
        ("namespace/restart/role-binding", "nudge-restart", 1),
        ("namespace/sources/role-binding", "nudge-sources", 1),
        ("namespace/sources/secrets/role-binding", "nudge-sources-secrets", 1),
    ] {
        let text = read(&deploy().join(format!("{file}.yaml")))?;
        cluster.kubectl_on(&[&APPLY[..], &["--namespace", &space.name]].concat(), &text).await?;
        let bindings = space.api::<k8s_openapi::api::rbac::v1::RoleBinding>();
        let all_done = async || {
            let mut all_done = Vec::new();
            for binding in bindings.list(&ListParams::default()).await?.items {
                bindings.delete(&binding.name_any(), &kube::api::DeleteParams::default()).await?;
                all_done.push((binding.name_any(), binding.role_ref, binding.subjects));
            }
            Ok::<_, anyhow::Error>(all_done)
        };
        let applied = all_done().await?;
        bind(&space, role).await?;
        assert_eq!((applied.len(), applied), (count, all_done().await?));
    }
    Ok(())
}
