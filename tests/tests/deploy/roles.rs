//! What view, edit and admin of a namespace may do with Nudge, and what not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use nudge_tests::cluster::Space;
use nudge_tests::{Cluster, eventually};
use serde_json::json;

use crate::installing::installed;

const SOON: Duration = Duration::from_mins(1);

/// Gives a new user one of Kubernetes' own roles in the namespace.
async fn user(space: &Space, role: &str) -> Result<String> {
    let user = format!("{role}-of-{}", space.name);
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    space.create_object::<RoleBinding>(binding).await?;
    Ok(user)
}

/// Whether a user may `verb` the resource `group/resource/subresource` in a namespace.
async fn may(space: &Space, user: &str, verb: &str, what: &str, name: Option<&str>) -> Result<bool> {
    let [group, resource, sub] = what.split('/').collect::<Vec<_>>()[..] else { anyhow::bail!("{what}") };
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(sub.to_owned()).filter(|sub| !sub.is_empty()),
        verb: Some(verb.to_owned()),
        namespace: Some(space.name.clone()),
        name: name.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        groups: Some(vec!["system:authenticated".to_owned()]),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reply = Api::all(space.client.clone()).create(&PostParams::default(), &review).await?;
    Ok(reply.status.context("no status")?.allowed)
}

#[tokio::test]
async fn view_reads_edit_switches_admin_binds() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let (space, other) = (cluster.space("roles").await?, cluster.space("other").await?);
    let (view, edit, admin) = (user(&space, "view").await?, user(&space, "edit").await?, user(&space, "admin").await?);
    // Kubernetes adds the roles up a moment after they are there.
    let added = async || {
        may(&space, &admin, "bind", "rbac.authorization.k8s.io/clusterroles/", Some("nudge-namespace"))
            .await
            .ok()?
            .then_some(())
    };
    eventually(SOON, "the roles are added up", added).await?;

    let configs = "nudge.dev/versionedconfigs/";
    for verb in ["get", "list", "watch"] {
        for user in [&view, &edit, &admin] {
            ensure!(may(&space, user, verb, configs, None).await?, "{user} {verb}");
            ensure!(!may(&other, user, verb, configs, None).await?, "{user} {verb} elsewhere");
        }
    }
    for verb in ["create", "update", "patch", "delete"] {
        ensure!(!may(&space, &view, verb, configs, None).await?, "view {verb}");
        for user in [&edit, &admin] {
            ensure!(may(&space, user, verb, configs, None).await?, "{user} {verb}");
            ensure!(!may(&space, user, verb, "nudge.dev/versionedconfigs/status", None).await?, "{user} {verb} status");
            ensure!(!may(&other, user, verb, configs, None).await?, "{user} {verb} elsewhere");
        }
    }
    let roles = "rbac.authorization.k8s.io/clusterroles/";
    for role in ["nudge-namespace", "nudge-secrets", "nudge-restart"] {
        for (user, can) in [(&view, false), (&edit, false), (&admin, true)] {
            assert_eq!(may(&space, user, "bind", roles, Some(role)).await?, can, "{user} {role}");
        }
        ensure!(!may(&other, &admin, "bind", roles, Some(role)).await?, "{role} elsewhere");
    }
    for role in ["nudge-injector", "cluster-admin"] {
        ensure!(!may(&space, &admin, "bind", roles, Some(role)).await?, "{role}");
    }
    ensure!(!may(&space, &admin, "patch", "/namespaces/", Some(&space.name)).await?, "the label is the cluster's");
    Ok(())
}

/// The same by what the API server does and not only says: its check against giving more than one has.
#[tokio::test]
async fn an_admin_lets_the_injector_into_the_own_namespace_and_nowhere_else() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let (space, other) = (cluster.space("owned").await?, cluster.space("foreign").await?);
    let admin = user(&space, "admin").await?;
    let client = cluster.client(&cluster.user(&admin, &[])).await?;
    let binding = |kind: &str, role: &str| {
        json!({
            "metadata": {"name": format!("{kind}-{role}").to_lowercase()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "nudge-injector", "namespace": "nudge-system"}],
        })
    };
    let bind = async |namespace: &str, role: &str| {
        let api: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
        let binding = serde_json::from_value(binding("ClusterRole", role))?;
        Ok::<_, anyhow::Error>(api.create(&PostParams::default(), &binding).await.map(drop))
    };
    eventually(SOON, "the admin may bind", async || bind(&space.name, "nudge-namespace").await.ok()?.ok()).await?;
    bind(&space.name, "nudge-secrets").await??;
    for role in ["nudge-injector", "cluster-admin"] {
        ensure!(bind(&space.name, role).await?.is_err(), "{role}");
    }
    ensure!(bind(&other.name, "nudge-namespace").await?.is_err(), "not theirs");
    let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
    let wide = serde_json::from_value(binding("ClusterRole", "nudge-namespace"))?;
    ensure!(everywhere.create(&PostParams::default(), &wide).await.is_err(), "for the whole cluster");
    let label = json!({"metadata": {"labels": {"nudge.dev/enabled": "true"}}});
    let namespaces: Api<Namespace> = Api::all(client);
    let labelled = namespaces.patch(&space.name, &PatchParams::default(), &Patch::Merge(&label)).await;
    ensure!(labelled.is_err(), "the label is the cluster's");
    injector_rights(cluster, &space, &other).await
}

/// What these bindings give the injector, and what they don't.
async fn injector_rights(cluster: &Cluster, space: &Space, other: &Space) -> Result<()> {
    let injector = "system:serviceaccount:nudge-system:nudge-injector";
    ensure!(cluster.version().minor >= 20);
    for (verb, what) in [
        ("update", "/configmaps/"),
        ("patch", "/pods/status"),
        ("update", "nudge.dev/versionedconfigs/status"),
        ("get", "/secrets/"),
    ] {
        ensure!(may(space, injector, verb, what, None).await?, "{verb} {what}");
        ensure!(!may(other, injector, verb, what, None).await?, "{verb} {what} where nobody has bound it");
    }
    for (verb, what) in [
        ("create", "/secrets/"),
        ("update", "/secrets/"),
        ("create", "/pods/"),
        ("create", "/pods/exec"),
        ("patch", "/pods/"),
        ("update", "apps/deployments/"),
        ("update", "nudge.dev/versionedconfigs/"),
        ("create", "/serviceaccounts/token"),
        ("create", "rbac.authorization.k8s.io/rolebindings/"),
    ] {
        ensure!(!may(space, injector, verb, what, None).await?, "{verb} {what}");
    }
    Ok(())
}
