//! Namespaces are enabled and disabled.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use nudge_api::{PartKind, VersionedConfig, VersionedConfigSpec};
use nudge_tests::cluster::TestNamespace;
use nudge_tests::cluster::space::user;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::{
    WAIT_TIMEOUT, becomes_current, run_by, run_expecting, run_failing, run_successfully,
};

/// Returns the names of the RoleBindings of a namespace, and whether it is enabled.
async fn bindings_and_state(space: &TestNamespace) -> Result<(Vec<String>, bool)> {
    let names = ListParams::default();
    let bindings = space.api::<RoleBinding>().list(&names).await?.iter().map(ResourceExt::name_any).collect();
    let namespace = Api::<Namespace>::all(space.client.clone()).get(&space.name).await?;
    Ok((bindings, namespace.labels().contains_key("nudge.dev/enabled")))
}

#[tokio::test]
async fn a_namespace_is_disabled_as_it_was_enabled_and_only_by_an_admin_of_the_cluster() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let cluster = installation.cluster;
    let space = cluster.space("able").await?;
    let nothing = (Vec::new(), false);

    // An admin of the namespace may neither bind these roles nor set the label, and leaves nothing behind.
    let rules = json!([
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
    ]);
    space.grant("admin", rules, user("jane")).await?;
    let kubeconfig = cluster.folder().join("jane.kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig_of(&cluster.user("jane", &[])))?;
    let reads = async || {
        let refused = run_by(&kubeconfig, &space, &["enable", &space.name]).await.ok()?.stderr;
        refused.contains("labelling namespace").then_some(refused)
    };
    let refused = eventually(WAIT_TIMEOUT, "jane may read the namespace", reads).await?;
    assert!(refused.contains("cannot patch") && refused.ends_with("ask an admin of the cluster\n"), "{refused}");
    space.api::<RoleBinding>().delete("admin", &DeleteParams::default()).await?;
    space.api::<Role>().delete("admin", &DeleteParams::default()).await?;
    assert_eq!(bindings_and_state(&space).await?, nothing);

    run_successfully(installation, &space, &["enable", &space.name]).await?;
    // What comes next is asked about, and answered, at once: a name that only a webhook refuses.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let config = VersionedConfig::new(&"a".repeat(64), VersionedConfigSpec::default());
    let refused = space.api::<VersionedConfig>().create(&dry, &config).await.err().map(|error| error.to_string());
    ensure!(refused.as_ref().is_some_and(|message| message.contains("configs.nudge.dev")), "{refused:?}");
    let bindings = ["nudge-namespace", "nudge-namespace-hub", "nudge-restart"].map(str::to_owned).to_vec();
    assert_eq!(bindings_and_state(&space).await?, (bindings, true));
    run_successfully(installation, &space, &["enable", &space.name, "--secrets", "--publish-secrets"]).await?;
    assert_eq!(bindings_and_state(&space).await?.0.len(), 6);

    let dry = run_successfully(installation, &space, &["disable", &space.name, "--dry-run=server"]).await?;
    assert_eq!(dry.lines().count(), 7, "{dry}");
    assert_eq!(bindings_and_state(&space).await?.0.len(), 6);
    let done = run_successfully(installation, &space, &["disable", &space.name]).await?;
    assert!(done.starts_with(&format!("namespace/{} disabled\n", space.name)), "{done}");
    assert_eq!(bindings_and_state(&space).await?, nothing);
    run_successfully(installation, &space, &["disable", &space.name]).await.map(drop)
}

#[tokio::test]
async fn a_namespace_is_enabled_and_existing_config_maps_get_versions() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.cluster.space("existing").await?;
    for (name, data) in [("one", "1"), ("two", "2")] {
        space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": {"key": data}})).await?;
    }
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "fixed"}, "immutable": true, "data": {}})).await?;
    let dry = run_successfully(installation, &space, &["enable", &space.name, "--secrets", "--dry-run=server"]).await?;
    assert_eq!(dry.lines().filter(|line| line.ends_with("(server dry run)")).count(), 6, "{dry}");
    assert!(space.api::<RoleBinding>().list(&ListParams::default()).await?.items.is_empty());
    for _ in 0..2 {
        run_successfully(installation, &space, &["enable", &space.name, "--secrets"]).await?;
    }
    let namespace = Api::<Namespace>::all(space.client.clone()).get(&space.name).await?;
    assert_eq!(namespace.metadata.labels.unwrap_or_default()["nudge.dev/enabled"], "true");
    let missing = run_failing(installation, &space, &["enable", "nowhere"]).await?;
    assert!(missing.contains("there is no namespace nowhere"), "{missing}");
    run_expecting(installation, &space, 2, &["enable", &space.name, "--secrets=one"]).await?;
    let refused = run_expecting(installation, &space, 2, &["enable", &space.name, "--publish-secrets"]).await?;
    assert!(refused.stderr.contains("--publish-secrets needs --secrets"), "{}", refused.stderr);

    // A first version would lack the content of the existing ConfigMap.
    let kept = run_failing(installation, &space, &["create", "one", "2", "--from-literal=a=b"]).await?;
    assert!(kept.contains("keep its content with kubectl nudge baseline one"), "{kept}");
    let taken = run_successfully(installation, &space, &["baseline", "one"]).await?;
    assert_eq!(taken, "config one follows configmap/one\n");
    becomes_current(&space, "one", "1.0.0").await?;
    let config_object = space.api::<VersionedConfig>().get("one").await?;
    assert_eq!(config_object.spec.objects, [PartKind::ConfigMap], "its readers get the next version");
    let refused = run_failing(installation, &space, &["baseline", "fixed"]).await?;
    assert!(refused.contains("ConfigMap fixed can't become a version: it is immutable"), "{refused}");
    let baseline_output = run_successfully(installation, &space, &["baseline", "--all"]).await?;
    assert!(baseline_output.contains("configmap/fixed left alone: it is immutable\n"), "{baseline_output}");
    assert!(baseline_output.contains("config two follows configmap/two\n"), "{baseline_output}");
    assert!(
        baseline_output.contains("configmap/one left alone: ") && !baseline_output.contains("config one follows"),
        "{baseline_output}"
    );
    becomes_current(&space, "two", "1.0.0").await?;
    let names = run_successfully(installation, &space, &["status", "-o", "name"]).await?;
    assert_eq!(names, "versionedconfig.nudge.dev/one\nversionedconfig.nudge.dev/two\n");
    let dictionary = run_successfully(installation, &space, &["get", "one", "-o", "name"]).await?;
    assert_eq!(dictionary, "key\nnudge.config.one.version\nnudge.configs\n");
    ensure!(space.api::<Secret>().list(&ListParams::default().labels("nudge.dev/config")).await?.items.is_empty());
    Ok(())
}

/// A Deployment's pod that mounts a ConfigMap and reads a Secret by a variable.
fn reading_pod() -> Value {
    let app = json!({
        "name": "app", "image": "test", "volumeMounts": [{"name": "conf", "mountPath": "/etc/shop"}],
        "env": [{"name": "PIN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "pin"}}}],
        "envFrom": [{"configMapRef": {"name": "web-6ct58987ht"}}],
    });
    json!({
        "metadata": {"name": "web", "labels": {"nudge.dev/inject": "true"}},
        "spec": {
            "automountServiceAccountToken": false, "containers": [app],
            "volumes": [{"name": "conf", "configMap": {"name": "shop"}}],
        },
    })
}

#[tokio::test]
async fn existing_objects_become_configs_by_the_label_of_their_namespace_and_come_back() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.cluster.space("baseline").await?;
    for name in ["shop", "web-6ct58987ht", "unread"] {
        space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": {"key": "1"}})).await?;
    }
    space.create_object::<Secret>(json!({"metadata": {"name": "keys"}, "stringData": {"pin": "hunter2"}})).await?;
    let flags = ["--baseline", "--secrets", "--publish-secrets"];
    run_successfully(installation, &space, &[&["enable", &space.name], &flags[..]].concat()).await?;
    let pod: Pod = serde_json::from_value(reading_pod())?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    // The replica learns a moment later that it may read Secrets.
    let injected = eventually(WAIT_TIMEOUT, "the pod has both configs", async || {
        let pod = space.api::<Pod>().create(&dry, &pod).await.ok()?;
        let text = serde_json::to_string(&pod).ok()?;
        text.contains("\"shop,keys\"").then_some(pod)
    })
    .await?;
    let warnings = &injected.annotations()["nudge.dev/warnings"];
    ensure!(
        warnings.contains("no config is made of ConfigMap web-6ct58987ht, because its name ends in a hash"),
        "{warnings}"
    );
    space.api::<Pod>().create(&PostParams::default(), &pod).await?;
    for name in ["shop", "keys"] {
        becomes_current(&space, name, "1.0.0").await?;
    }
    let configs = space.api::<VersionedConfig>();
    ensure!(configs.get_opt("unread").await?.is_none(), "no pod reads it");
    run_successfully(installation, &space, &["enable", &space.name, "--baseline=all"]).await?;
    becomes_current(&space, "unread", "1.0.0").await?;
    let deleted = run_expecting(installation, &space, 0, &["delete", "unread"]).await?;
    let warning = "VersionedConfig unread comes back while its namespace has the label nudge.dev/baseline";
    ensure!(deleted.stderr.contains(warning), "{}", deleted.stderr);
    becomes_current(&space, "unread", "1.0.0").await?;
    run_expecting(installation, &space, 2, &["enable", &space.name, "--baseline=some"]).await.map(drop)
}
