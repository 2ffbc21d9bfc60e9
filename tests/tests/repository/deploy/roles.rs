//! The rights that view, edit and admin of a namespace have in Nudge, and the rights that they lack.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::installation::{ACCOUNT, CERTS_ACCOUNT, HUB_ACCOUNT, NAMESPACE, bind};
use nudge_tests::eventually;
use serde_json::{Value, json};

use crate::deploy::installing::installed;

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Gives a new user one of Kubernetes' own roles in the namespace.
async fn user(space: &TestNamespace, role: &str) -> Result<String> {
    let user = format!("{role}-of-{}", space.name);
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    space.create_object::<RoleBinding>(binding).await?;
    Ok(user)
}

/// Returns whether a user may `verb` the resource `group/resource/subresource` in a namespace.
async fn is_allowed(space: &TestNamespace, user: &str, verb: &str, what: &str, name: Option<&str>) -> Result<bool> {
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
async fn view_reads_edit_switches_and_no_admin_of_a_namespace_binds() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let (space, other) = (cluster.space("roles").await?, cluster.space("other").await?);
    let (view, edit, admin) = (user(&space, "view").await?, user(&space, "edit").await?, user(&space, "admin").await?);
    // Kubernetes adds the roles up a moment after they are there.
    let added =
        async || is_allowed(&space, &admin, "create", "nudge.dev/versionedconfigs/", None).await.ok()?.then_some(());
    eventually(WAIT_TIMEOUT, "the roles are added up", added).await?;

    let configs = "nudge.dev/versionedconfigs/";
    for verb in ["get", "list", "watch"] {
        for user in [&view, &edit, &admin] {
            ensure!(is_allowed(&space, user, verb, configs, None).await?, "{user} {verb}");
            ensure!(!is_allowed(&other, user, verb, configs, None).await?, "{user} {verb} elsewhere");
        }
    }
    for verb in ["create", "update", "patch", "delete"] {
        ensure!(!is_allowed(&space, &view, verb, configs, None).await?, "view {verb}");
        for user in [&edit, &admin] {
            ensure!(is_allowed(&space, user, verb, configs, None).await?, "{user} {verb}");
            ensure!(
                !is_allowed(&space, user, verb, "nudge.dev/versionedconfigs/status", None).await?,
                "{user} {verb} status"
            );
            ensure!(!is_allowed(&other, user, verb, configs, None).await?, "{user} {verb} elsewhere");
        }
    }
    // Measurements belong to Nudge, and so do the statuses of policies and approvals.
    for what in
        ["internal.nudge.dev/rolloutanalyses/", "nudge.dev/rolloutpolicies/", "nudge.dev/rolloutpolicies/status"]
    {
        for user in [&view, &edit, &admin] {
            ensure!(!is_allowed(&space, user, "get", what, None).await?, "{user} {what}");
        }
    }
    for verb in ["update", "patch"] {
        for user in [&view, &edit, &admin] {
            ensure!(!is_allowed(&space, user, verb, "nudge.dev/versionapprovals/status", None).await?, "{user} {verb}");
        }
    }
    let roles = "rbac.authorization.k8s.io/clusterroles/";
    for role in [
        "nudge-namespace",
        "nudge-namespace-hub",
        "nudge-secrets",
        "nudge-publish-secrets",
        "nudge-restart",
        "nudge-injector",
    ] {
        for user in [&view, &edit, &admin] {
            ensure!(!is_allowed(&space, user, "bind", roles, Some(role)).await?, "{user} {role}");
        }
    }
    ensure!(
        !is_allowed(&space, &admin, "patch", "/namespaces/", Some(&space.name)).await?,
        "the label is the cluster's"
    );
    Ok(())
}

/// The same by what the API server does and not only says: its check against giving more than one has.
#[tokio::test]
async fn an_admin_of_a_namespace_binds_no_role_of_nudge_with_rights_that_an_admin_lacks() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let space = cluster.space("owned").await?;
    let admin = user(&space, "admin").await?;
    let client = cluster.client(&cluster.user(&admin, &[])).await?;
    let bind = async |role: &str, subject: Value| {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        });
        let api: Api<RoleBinding> = Api::namespaced(client.clone(), &space.name);
        let binding = serde_json::from_value(binding)?;
        Ok::<_, anyhow::Error>(api.create(&PostParams::default(), &binding).await.map(drop))
    };
    let oneself = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": admin});
    // The admin may bind what an admin has, and so the refusals concern these roles.
    let view = async || bind("view", oneself.clone()).await.ok()?.ok();
    eventually(WAIT_TIMEOUT, "the admin may bind", view).await?;
    for role in ["nudge-namespace", "nudge-namespace-hub", "nudge-injector", "nudge-hub", "nudge-certs"] {
        for subject in [oneself.clone(), account("nudge-injector"), account("nudge-hub")] {
            let refused = bind(role, subject).await?.err().with_context(|| format!("{role} was bound"))?;
            ensure!(refused.to_string().contains("attempting to grant"), "{role}: {refused}");
        }
    }
    // What the admin has, the admin may give: to read and write Secrets here. It matters once an admin of the cluster
    // has enabled the namespace.
    for (role, to) in [
        ("nudge-secrets", "nudge-injector"),
        ("nudge-secrets-hub", "nudge-hub"),
        ("nudge-publish-secrets", "nudge-injector"),
    ] {
        bind(role, account(to)).await??;
    }
    Ok(())
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE})
}

/// The rights of the accounts where their roles are bound, and the rights that they have nowhere.
#[tokio::test]
async fn each_role_has_its_rights_and_no_others() -> Result<()> {
    let Some(cluster) = installed().await? else { return Ok(()) };
    let (space, other) = (cluster.space("bound").await?, cluster.space("foreign").await?);
    for role in ["nudge-namespace", "nudge-secrets", "nudge-restart"] {
        bind(&space, role).await?;
    }
    let account_user = |name: &str| format!("system:serviceaccount:{NAMESPACE}:{name}");
    let (control, hub, certs) = (account_user(ACCOUNT), account_user(HUB_ACCOUNT), account_user(CERTS_ACCOUNT));
    let bound = async || is_allowed(&space, &hub, "patch", "/pods/status", None).await.ok()?.then_some(());
    eventually(WAIT_TIMEOUT, "the roles are bound", bound).await?;
    for (user, verb, what) in [
        (&control, "update", "/configmaps/"),
        (&control, "update", "nudge.dev/versionedconfigs/status"),
        (&control, "update", "nudge.dev/versionapprovals/status"),
        (&control, "delete", "/secrets/"),
        (&control, "patch", "apps/deployments/"),
        (&hub, "patch", "/pods/status"),
        (&hub, "get", "/secrets/"),
        (&hub, "get", "/configmaps/"),
        (&hub, "list", "/serviceaccounts/"),
        (&hub, "watch", "/serviceaccounts/"),
    ] {
        ensure!(is_allowed(&space, user, verb, what, None).await?, "{user} {verb} {what}");
        ensure!(!is_allowed(&other, user, verb, what, None).await?, "{user} {verb} {what} where nobody has bound it");
    }
    let secrets = TestNamespace { client: space.client.clone(), name: NAMESPACE.to_owned() };
    for (name, user) in [("nudge-authority", &certs), ("nudge-serving", &certs), ("nudge-content-key", &certs)] {
        for verb in ["get", "update"] {
            ensure!(is_allowed(&secrets, user, verb, "/secrets/", Some(name)).await?, "{verb} {name}");
            for other in [&control, &hub] {
                ensure!(!is_allowed(&secrets, other, verb, "/secrets/", Some(name)).await?, "{other} {verb} {name}");
            }
        }
    }
    let webhooks = "admissionregistration.k8s.io/validatingwebhookconfigurations/";
    ensure!(is_allowed(&space, &certs, "patch", webhooks, Some("nudge-injector")).await?, "caBundle");
    ensure!(!is_allowed(&space, &certs, "patch", webhooks, Some("another")).await?, "the webhooks of others");
    for (user, verb, what) in [
        (&control, "patch", webhooks),
        (&control, "patch", "/pods/"),
        (&control, "patch", "/pods/status"),
        (&control, "create", "authentication.k8s.io/tokenreviews/"),
        (&control, "list", "/serviceaccounts/"),
        (&certs, "list", "/serviceaccounts/"),
        (&hub, "get", "/serviceaccounts/"),
        (&hub, "patch", webhooks),
        (&hub, "create", "/configmaps/"),
        (&hub, "update", "/configmaps/"),
        (&hub, "update", "nudge.dev/versionedconfigs/status"),
        (&hub, "update", "nudge.dev/versionapprovals/status"),
        (&hub, "update", "nudge.dev/rolloutpolicies/status"),
        (&control, "update", "nudge.dev/rolloutpolicies/"),
        (&hub, "delete", "/secrets/"),
        (&hub, "patch", "/pods/"),
        (&hub, "patch", "apps/deployments/"),
        (&certs, "list", "/secrets/"),
        (&certs, "get", "/configmaps/"),
        (&certs, "get", "/pods/"),
        (&certs, "create", "nudge.dev/versionedconfigs/"),
    ] {
        ensure!(!is_allowed(&space, user, verb, what, Some("nudge-injector")).await?, "{user} {verb} {what}");
    }
    for user in [&control, &hub, &certs] {
        for (verb, what) in [
            ("create", "/secrets/"),
            ("update", "/secrets/"),
            ("create", "/pods/"),
            ("create", "/pods/exec"),
            ("update", "apps/deployments/"),
            ("update", "nudge.dev/versionedconfigs/"),
            ("create", "/serviceaccounts/token"),
            ("update", "/serviceaccounts/"),
            ("delete", "/serviceaccounts/"),
            ("create", "rbac.authorization.k8s.io/rolebindings/"),
            ("create", "coordination.k8s.io/leases/"),
        ] {
            for place in [&space, &other, &secrets] {
                ensure!(!is_allowed(place, user, verb, what, None).await?, "{user} {verb} {what} in {}", place.name);
            }
        }
    }
    // Only if it is bound, and for nobody else.
    bind(&space, "nudge-publish-secrets").await?;
    for verb in ["create", "update"] {
        let bound = async || is_allowed(&space, &control, verb, "/secrets/", None).await.ok()?.then_some(());
        eventually(WAIT_TIMEOUT, "Secrets may be published", bound).await?;
        for (place, user) in [(&other, &control), (&secrets, &control), (&space, &hub), (&space, &certs)] {
            ensure!(!is_allowed(place, user, verb, "/secrets/", None).await?, "{user} {verb} in {}", place.name);
        }
    }
    Ok(())
}
