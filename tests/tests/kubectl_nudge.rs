//! `kubectl nudge` as users run it, against a real API server with the control plane.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::installation::{agent_token, bind, hub_ca, injected_pod};
use nudge_tests::cluster::servers::ISSUER;
use nudge_tests::cluster::{Identity, Space};
use nudge_tests::{Finished, Installation, Pod, Replica, Terminal, binary, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Runs the command with these arguments in the namespace, with a kubeconfig.
async fn run_by(kubeconfig: &Path, space: &Space, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command.args(arguments).arg("--namespace").arg(&space.name).arg("--kubeconfig").arg(kubeconfig);
    tokio::task::spawn_blocking(move || Finished::of(&mut command)).await?
}

async fn run(installation: &Installation<'_>, space: &Space, arguments: &[&str]) -> Result<Finished> {
    run_by(&installation.cluster.kubeconfig(), space, arguments).await
}

/// Runs the command, which must end with this exit code, and returns its output.
async fn ends(installation: &Installation<'_>, space: &Space, code: i32, arguments: &[&str]) -> Result<Finished> {
    let finished = run(installation, space, arguments).await?;
    ensure!(finished.code == Some(code), "kubectl nudge {arguments:?} did not end with {code}: {finished:?}");
    Ok(finished)
}

async fn works(installation: &Installation<'_>, space: &Space, arguments: &[&str]) -> Result<String> {
    Ok(ends(installation, space, 0, arguments).await?.stdout)
}

async fn fails(installation: &Installation<'_>, space: &Space, arguments: &[&str]) -> Result<String> {
    Ok(ends(installation, space, 1, arguments).await?.stderr)
}

/// Waits until the status meets the condition.
async fn status(
    space: &Space,
    name: &str,
    what: &str,
    expected: impl Fn(&VersionedConfigStatus) -> bool,
) -> Result<()> {
    let is = |config: &VersionedConfig| config.status.as_ref().is_some_and(&expected);
    space.object_until(SOON, name, what, is).await.map(drop)
}

async fn becomes_current(space: &Space, name: &str, version: &str) -> Result<()> {
    status(space, name, "it is current", |status| status.current.as_deref() == Some(version)).await
}

#[tokio::test]
async fn a_version_is_created_used_compared_rolled_back_and_deleted() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("life").await?;
    bind(&space, "nudge-secrets").await?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("game.properties"), "lives=3\nspeed=1\n")?;
    let from = format!("--from-file={}", folder.path().display());

    let made =
        works(installation, &space, &["create", "game", "1.0.0", &from, "--from-literal=greeting=hello"]).await?;
    assert_eq!(
        made,
        "configmap/game-1.0.0 created\nconfig game created; 1.0.0 becomes current, because it is the first version\n"
    );
    becomes_current(&space, "game", "1.0.0").await?;
    assert_eq!(works(installation, &space, &["current", "game"]).await?, "1.0.0\n");

    std::fs::write(folder.path().join("game.properties"), "lives=5\nspeed=1\n")?;
    let secret = "--secret-from-literal=pin=hidden-4711";
    let made = works(installation, &space, &["create", "game", "1.0.1", &from, secret]).await?;
    assert_eq!(made, "configmap/game-1.0.1-1 created\nsecret/game-1.0.1-2 created\n");
    let again = fails(installation, &space, &["create", "game", "1.0.1", &from]).await?;
    assert!(again.contains("version 1.0.1 of config game already exists"), "{again}");
    let missing = fails(installation, &space, &["use", "game", "7", "--wait"]).await?;
    assert!(missing.starts_with("error: config game has no complete version 7; it has: 1.0.0"), "{missing}");

    // Right after the creation, the command waits until the version is sealed.
    let used = ends(installation, &space, 0, &["use", "game", "1.0.1", "--wait", "--timeout=30s"]).await?;
    assert_eq!(used.stdout, "config game: spec.current is 1.0.1\nconfig game: version 1.0.1 is current\n");
    let used = works(installation, &space, &["use", "game", "1.0.1"]).await?;
    assert_eq!(used, "config game: version 1.0.1 is already current\n");

    let versions = works(installation, &space, &["versions", "game"]).await?;
    let rows: Vec<Vec<&str>> = versions.lines().map(|line| line.split_whitespace().take(5).collect()).collect();
    assert_eq!(rows[0], ["VERSION", "STATE", "OBJECTS", "KEYS", "BYTES"]);
    assert_eq!(rows[1][..4], ["1.0.0", "Available", "1", "2"]);
    assert_eq!(rows[2][..4], ["1.0.1", "Current", "2", "2"]);
    assert_eq!(works(installation, &space, &["versions", "game", "-o", "name"]).await?, "1.0.0\n1.0.1\n");

    let diff = works(installation, &space, &["diff", "game", "1.0.0", "current"]).await?;
    assert_eq!(
        diff,
        "--- game.properties (1.0.0)\n+++ game.properties (1.0.1)\n@@ -1,2 +1,2 @@\n-lives=3\n+lives=5\n speed=1\n\
         --- greeting (1.0.0)\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n\\ No newline at end of file\npin: added (Secret)\n"
    );
    let masked = works(installation, &space, &["get", "game", "-o", "json"]).await?;
    let masked: Value = serde_json::from_str(&masked)?;
    assert_eq!(masked["pin"], "***");
    assert_eq!(
        (&masked["game.properties"], &masked["nudge.configs"]),
        (&json!("lives=5\nspeed=1\n"), &json!("game=1.0.1"))
    );
    let shown = works(installation, &space, &["get", "game", "--show-secrets"]).await?;
    assert!(shown.contains("hidden-4711"));

    for (version, reason) in [("1.0.1", "is current"), ("1.0.0", "is the version to roll back to")] {
        let held = fails(installation, &space, &["delete", "game", version]).await?;
        assert!(held.contains(reason), "{held}");
    }
    let back = works(installation, &space, &["rollback", "game", "--wait"]).await?;
    assert!(back.ends_with("config game: version 1.0.0 is current\n"), "{back}");
    let history = works(installation, &space, &["history", "game"]).await?;
    let rows: Vec<Vec<&str>> = history.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["VERSION", "FROM", "OUTCOME", "BEGAN", "ENDED", "PODS", "REQUESTED-BY", "MESSAGE"]);
    let short: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1], row[2], row[6])).collect();
    let expected = [
        ("1.0.0", "1.0.1", "Returned", "admin"),
        ("1.0.1", "1.0.0", "Current", "admin"),
        ("1.0.0", "-", "Current", "<unknown>"),
    ];
    assert_eq!(short, expected, "{history}");
    let changed = works(installation, &space, &["history", "game", "--diff"]).await?;
    let headings: Vec<&str> = changed.lines().filter(|line| line.contains("requested by admin")).collect();
    assert!(headings.len() == 2 && headings[1].starts_with("1.0.1 from 1.0.0: Current, "), "{changed}");
    assert!(changed.contains(&diff) && changed.contains("pin: removed (Secret)\n"), "{changed}");
    assert!(!changed.contains("hidden-4711"), "{changed}");
    let json: Value = serde_json::from_str(&works(installation, &space, &["history", "game", "-o", "json"]).await?)?;
    assert_eq!((&json[0]["version"], &json[2]["outcome"]), (&json!("1.0.0"), &json!("Returned")));
    assert_eq!(works(installation, &space, &["history", "game", "-o", "name"]).await?, "1.0.0\n1.0.1\n1.0.0\n");
    ends(installation, &space, 2, &["history", "game", "--diff", "-o", "json"]).await?;
    // A version that was rolled back is not a previous version.
    let nowhere = fails(installation, &space, &["rollback", "game"]).await?;
    assert!(nowhere.contains("has no previous version; choose one of kubectl nudge versions game"), "{nowhere}");
    works(installation, &space, &["delete", "game", "1.0.1"]).await?;
    works(installation, &space, &["create", "game", "1.0.2", "--from-literal=a=b"]).await?;
    status(&space, "game", "1.0.2 is sealed", |status| status.version("1.0.2").is_some()).await?;
    works(installation, &space, &["delete", "game", "1.0.2", "--dry-run=server"]).await?;
    assert!(space.api::<ConfigMap>().get_opt("game-1.0.2").await?.is_some());
    assert_eq!(
        works(installation, &space, &["delete", "game", "1.0.2"]).await?,
        "version 1.0.2 of config game deleted\n"
    );
    assert!(space.api::<ConfigMap>().get_opt("game-1.0.2").await?.is_none());
    works(installation, &space, &["delete", "game"]).await?;
    let gone = async || space.api::<ConfigMap>().get_opt("game-1.0.0").await.ok()?.is_none().then_some(());
    eventually(SOON, "the versions are deleted with the config", gone).await?;
    let none = fails(installation, &space, &["current", "game"]).await?;
    assert!(none.starts_with("error: there is no config game in namespace life-"), "{none}");
    Ok(())
}

/// A pod of config `game` whose agent runs version 1.
async fn pod(installation: &Installation<'_>, replica: &Replica, space: &Space) -> Result<Pod> {
    works(installation, space, &["create", "game", "1", "--from-literal=lives=3"]).await?;
    becomes_current(space, "game", "1").await?;
    let object = injected_pod(space, "web", "game").await?;
    let hub = format!("https://{}", replica.hub);
    let mut pod = Pod::of(hub, &hub_ca(space).await?, &agent_token(space, &object).await?)?;
    pod.configs = "game";
    let mut client = pod.start().await?;
    pod.serves(&mut client, "game=1").await?;
    let applied = |status: &VersionedConfigStatus| status.pods.summary == "1/1";
    status(space, "game", "the pod is counted", applied).await?;
    Ok(pod)
}

async fn set_rollout(space: &Space, rollout: Value) -> Result<()> {
    let patch = json!({"spec": {"rollout": rollout}});
    space.api::<VersionedConfig>().patch("game", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn set_ready(space: &Space, ready: bool) -> Result<()> {
    space.set_ready("web", ready).await
}

#[tokio::test]
async fn waiting_ends_with_the_result_of_the_rollout() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("waits").await?;
    let _pod = pod(installation, replica, &space).await?;
    works(installation, &space, &["create", "game", "2", "--from-literal=lives=5"]).await?;

    // A paused rollout: the timeout ends, and the rollout stays.
    set_rollout(&space, json!({"minReadySeconds": 0, "bakeSeconds": 0})).await?;
    assert_eq!(works(installation, &space, &["pause", "game"]).await?, "config game paused\n");
    assert_eq!(works(installation, &space, &["pause", "game"]).await?, "config game is already paused\n");
    let late = ends(installation, &space, 124, &["use", "game", "2", "--wait", "--timeout=2s"]).await?;
    assert!(late.stderr.contains("the move to version 2 is paused"), "{}", late.stderr);
    assert!(
        late.stderr.contains("or run kubectl nudge resume game\n") && !late.stderr.contains('\u{1b}'),
        "{}",
        late.stderr
    );
    assert!(late.stderr.contains("is not current after 2 s; the rollout continues"), "{}", late.stderr);
    assert_eq!(works(installation, &space, &["resume", "game"]).await?, "config game resumed\n");
    becomes_current(&space, "game", "2").await?;

    let report = works(installation, &space, &["status", "game", "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(
        (&report["current"], &report["desired"], &report["phase"]),
        (&json!("2"), &json!("2"), &json!("Current"))
    );
    assert_eq!(
        report["pods"],
        json!([{"pod": "web", "agent": "0.1.0", "ready": true, "assigned": "2", "version": "2"}])
    );
    let text = works(installation, &space, &["status", "game"]).await?;
    assert!(text.contains("Pods:      1/1 updated, 0 failed\n"), "{text}");
    let headers = text.lines().find(|line| line.starts_with("POD ")).unwrap_or_default();
    let headers: Vec<&str> = headers.split_whitespace().collect();
    assert_eq!(headers, ["POD", "WORKLOAD", "VERSION", "ASSIGNED", "READY", "AGENT", "MESSAGE"], "{text}");
    let listed = works(installation, &space, &["status"]).await?;
    let row: Vec<&str> = listed.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row, ["game", "2", "2", "Current", "1/1"]);
    let dictionary = works(installation, &space, &["get", "pod/web"]).await?;
    assert!(dictionary.contains("lives: \"5\"") && dictionary.contains("nudge.configs: game=2"), "{dictionary}");

    // A failed rollout: the pod is not Ready with the new version.
    works(installation, &space, &["create", "game", "3", "--from-literal=lives=-1"]).await?;
    set_rollout(&space, json!({"bakeSeconds": 600})).await?;
    let waiting = ends(installation, &space, 3, &["use", "game", "3", "--wait", "--timeout=50s"]);
    let breaking = async {
        let runs = |status: &VersionedConfigStatus| {
            status.target.as_deref() == Some("3") && status.rollout.threshold > 0 && status.pods.updated == 1
        };
        status(&space, "game", "the step is watched", runs).await?;
        set_ready(&space, false).await
    };
    let (failed, broken) = tokio::join!(waiting, breaking);
    broken?;
    let failed = failed?.stderr;
    assert!(failed.contains("rolling back from version 3"), "{failed}");
    assert!(
        failed.contains("error: config game: version 3 failed and 2 runs again (PodNotReady): 1 of 1 pod on 3 became unready (first: web, "),
        "{failed}"
    );

    // The version is tried again when it is used again; a rollback returns to the current one.
    set_ready(&space, true).await?;
    works(installation, &space, &["use", "game", "3"]).await?;
    status(&space, "game", "it is tried again", |status| status.target.as_deref() == Some("3")).await?;
    let back = works(installation, &space, &["rollback", "game", "--wait", "--timeout=50s"]).await?;
    assert!(back.ends_with("config game: version 2 is current\n"), "{back}");

    // A config with pods is deleted only with --force.
    let held = fails(installation, &space, &["delete", "game"]).await?;
    assert!(held.contains("kubectl nudge delete --force does that"), "{held}");
    works(installation, &space, &["delete", "game", "--force"]).await.map(drop)
}

#[tokio::test]
async fn a_tool_that_sets_the_field_back_is_named() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("gitops").await?;
    for version in ["1", "2"] {
        works(installation, &space, &["create", "game", version, "--from-literal=lives=3"]).await?;
    }
    let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "game"}, "spec": {"current": "1"}});
    let apply = ["apply", "--server-side", "--field-manager=kustomize-controller", "--namespace", &space.name];
    installation.cluster.kubectl_on(&apply, &format!("---\n{object}\n")).await?;
    let first = ends(installation, &space, 0, &["use", "game", "2"]).await?;
    assert!(
        first.stderr.contains("warning: spec.current of config game is managed by \"kustomize-controller\""),
        "{}",
        first.stderr
    );
    let config = space.api::<VersionedConfig>().get("game").await?;
    let managers: Vec<String> =
        config.metadata.managed_fields.unwrap_or_default().into_iter().filter_map(|it| it.manager).collect();
    assert!(managers.contains(&"nudge-cli".to_owned()), "{managers:?}");
    Ok(())
}

/// Nothing sets the field back after a manual kubectl command, so there is nothing to warn of.
#[tokio::test]
async fn kubectl_as_manager_of_the_field_causes_no_warning() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("by-hand").await?;
    for version in ["1", "2"] {
        works(installation, &space, &["create", "game", version, "--from-literal=lives=3"]).await?;
    }
    let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "game"}, "spec": {"current": "1"}});
    let text = format!("---\n{object}\n");
    for (apply, manager) in [
        (&["apply", "--namespace", &space.name][..], "kubectl-client-side-apply"),
        (&["apply", "--server-side", "--force-conflicts", "--namespace", &space.name][..], "kubectl"),
    ] {
        installation.cluster.kubectl_on(apply, &text).await?;
        let config = space.api::<VersionedConfig>().get("game").await?;
        let managers = config.metadata.managed_fields.unwrap_or_default();
        ensure!(managers.iter().any(|it| it.manager.as_deref() == Some(manager)), "{managers:?}");
        let used = ends(installation, &space, 0, &["use", "game", "2"]).await?;
        assert_eq!(used.stderr, "", "{manager}");
    }
    Ok(())
}

#[tokio::test]
async fn all_objects_of_a_version_are_created_or_none() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("whole").await?;
    let folder = tempfile::tempdir()?;
    for name in ["a", "b", "c"] {
        std::fs::write(folder.path().join(name), name.repeat(700_000))?;
    }
    let from = format!("--from-file={}", folder.path().display());
    // An account that may create ConfigMaps but no Secrets.
    space.service_account("maker").await?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "update", "delete"]},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": ["get", "list", "create"]},
    ]);
    space.allow("maker", rules).await?;
    let token = space.token("maker", ISSUER, None).await?;
    let kubeconfig = folder.path().with_extension("kubeconfig");
    std::fs::write(&kubeconfig, installation.cluster.kubeconfig_of(&Identity::Token(&token)))?;
    let failed =
        run_by(&kubeconfig, &space, &["create", "big", "1", &from, "--secret-from-literal=pin=hidden-4711"]).await?;
    std::fs::remove_file(&kubeconfig)?;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("; the 3 objects created before were removed"), "{}", failed.stderr);
    assert!(!failed.stderr.contains("hidden"));
    let selector = ListParams::default().labels("nudge.dev/config=big");
    assert!(space.api::<ConfigMap>().list(&selector).await?.items.is_empty());
    assert!(space.api::<VersionedConfig>().get_opt("big").await?.is_none());

    let made = works(installation, &space, &["create", "big", "1", &from]).await?;
    assert!(
        made.starts_with("configmap/big-1-1 created\nconfigmap/big-1-2 created\nconfigmap/big-1-3 created\n"),
        "{made}"
    );
    becomes_current(&space, "big", "1").await?;

    // Two versions whose names give the same DNS name, and a name that another object has.
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "big-2"}, "data": {}})).await?;
    for version in ["Blue", "blue", "2"] {
        let made = works(installation, &space, &["create", "big", version, "--from-literal=a=b", "-o", "name"]).await?;
        let stem = format!("configmap/big-{}", version.to_lowercase());
        assert!(made.starts_with(&stem) && (made.trim() == stem) == (version == "blue"), "{made}");
        let sealed = |status: &VersionedConfigStatus| status.version(version).is_some();
        status(&space, "big", "it is sealed", sealed).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_prints_manifests() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("dry").await?;
    let literal = "--from-literal=lives=3";
    let text = works(installation, &space, &["create", "game", "1", literal, "--dry-run=client", "-o", "yaml"]).await?;
    let server = works(installation, &space, &["create", "game", "1", literal, "--dry-run=server"]).await?;
    assert!(server.starts_with("configmap/game-1 created (server dry run)\n"), "{server}");
    assert!(space.api::<ConfigMap>().get_opt("game-1").await?.is_none());
    let secret = ["create", "game", "1", "--secret-from-literal=pin=hidden-4711", "--dry-run=client", "-o", "yaml"];
    let refused = ends(installation, &space, 2, &secret).await?;
    assert!(!format!("{refused:?}").contains("hidden"), "{refused:?}");
    // kubectl accepts the printed manifest.
    installation.cluster.kubectl_on(&["apply", "--server-side"], &text).await?;
    let map = space.api::<ConfigMap>().get("game-1").await?;
    assert_eq!((map.immutable, map.data), (Some(true), Some([("lives".to_owned(), "3".to_owned())].into())));
    for bad in [
        &["use", "game"][..],
        &["create", "game", "1"],
        &["restart", "pod/web"],
        &["create", "game", "current", literal],
        &["create", "game", "2", literal, "--secret-type=Opaque"],
    ] {
        ends(installation, &space, 2, bad).await?;
    }
    Ok(())
}

#[tokio::test]
async fn secrets_have_the_type_that_is_asked_for() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("typed").await?;
    let content = ["--secret-from-literal=tls.crt=c", "--secret-from-literal=tls.key=k"];
    let tls = [&["create", "web", "1", "--secret-type=kubernetes.io/tls"][..], &content].concat();
    works(installation, &space, &tls).await?;
    works(installation, &space, &[&["create", "web", "2"][..], &content].concat()).await?;
    for (name, type_) in [("web-1", "kubernetes.io/tls"), ("web-2", "Opaque")] {
        assert_eq!(space.api::<Secret>().get(name).await?.type_.as_deref(), Some(type_), "{name}");
    }
    Ok(())
}

/// The names of the RoleBindings and Roles of a namespace, and whether it is enabled.
async fn enabled(space: &Space) -> Result<(Vec<String>, Vec<String>, bool)> {
    let names = ListParams::default();
    let bindings = space.api::<RoleBinding>().list(&names).await?.iter().map(ResourceExt::name_any).collect();
    let roles = space.api::<Role>().list(&names).await?.iter().map(ResourceExt::name_any).collect();
    let namespace = Api::<Namespace>::all(space.client.clone()).get(&space.name).await?;
    Ok((bindings, roles, namespace.labels().contains_key("nudge.dev/enabled")))
}

#[tokio::test]
async fn a_namespace_is_disabled_as_it_was_enabled_and_only_by_an_admin_of_the_cluster() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let cluster = installation.cluster;
    let space = cluster.space("able").await?;
    let nothing = (Vec::new(), Vec::new(), false);

    // An admin of the namespace may neither bind these roles nor set the label, and leaves nothing behind.
    let rules = json!([
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
    ]);
    space.create_object::<Role>(json!({"metadata": {"name": "admin"}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    space.create_object::<RoleBinding>(binding).await?;
    let kubeconfig = cluster.folder().join("jane.kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig_of(&cluster.user("jane", &[])))?;
    let reads = async || {
        let refused = run_by(&kubeconfig, &space, &["enable", &space.name]).await.ok()?.stderr;
        refused.contains("labelling namespace").then_some(refused)
    };
    let refused = eventually(SOON, "jane may read the namespace", reads).await?;
    assert!(refused.contains("cannot patch") && refused.ends_with("ask an admin of the cluster\n"), "{refused}");
    space.api::<RoleBinding>().delete("admin", &DeleteParams::default()).await?;
    space.api::<Role>().delete("admin", &DeleteParams::default()).await?;
    assert_eq!(enabled(&space).await?, nothing);

    // By names: a Role for these Secrets, and no right to others.
    let named = works(installation, &space, &["enable", &space.name, "--secrets=one,two"]).await?;
    assert!(named.contains("role.rbac.authorization.k8s.io/nudge-secrets-named applied\n"), "{named}");
    let rules = space.api::<Role>().get("nudge-secrets-named").await?.rules.unwrap_or_default();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].resource_names.as_deref(), Some(&["one".to_owned(), "two".to_owned()][..]));
    let (bindings, roles, is_enabled) = enabled(&space).await?;
    assert_eq!(bindings, ["nudge-namespace", "nudge-namespace-hub", "nudge-secrets-named"]);
    assert_eq!((roles, is_enabled), (vec!["nudge-secrets-named".to_owned()], true));
    works(installation, &space, &["enable", &space.name, "--secrets", "--publish-secrets", "--restart"]).await?;
    assert_eq!(enabled(&space).await?.0.len(), 7);

    let dry = works(installation, &space, &["disable", &space.name, "--dry-run=server"]).await?;
    assert_eq!(dry.lines().count(), 9, "{dry}");
    assert_eq!(enabled(&space).await?.0.len(), 7);
    let done = works(installation, &space, &["disable", &space.name]).await?;
    assert!(done.starts_with(&format!("namespace/{} disabled\n", space.name)), "{done}");
    assert_eq!(enabled(&space).await?, nothing);
    works(installation, &space, &["disable", &space.name]).await.map(drop)
}

#[tokio::test]
async fn a_namespace_is_enabled_and_existing_config_maps_get_versions() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.cluster.space("existing").await?;
    for (name, data) in [("one", "1"), ("two", "2")] {
        space.create_object::<ConfigMap>(json!({"metadata": {"name": name}, "data": {"key": data}})).await?;
    }
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "fixed"}, "immutable": true, "data": {}})).await?;
    let dry = works(installation, &space, &["enable", &space.name, "--secrets", "--dry-run=server"]).await?;
    assert_eq!(dry.lines().filter(|line| line.ends_with("(server dry run)")).count(), 5, "{dry}");
    assert!(space.api::<RoleBinding>().list(&ListParams::default()).await?.items.is_empty());
    for _ in 0..2 {
        works(installation, &space, &["enable", &space.name, "--secrets"]).await?;
    }
    let namespace = Api::<Namespace>::all(space.client.clone()).get(&space.name).await?;
    assert_eq!(namespace.metadata.labels.unwrap_or_default()["nudge.dev/enabled"], "true");
    let missing = fails(installation, &space, &["enable", "nowhere"]).await?;
    assert!(missing.contains("there is no namespace nowhere"), "{missing}");
    let empty = ends(installation, &space, 2, &["enable", &space.name, "--secrets=a,,b"]).await?;
    assert!(empty.stderr.contains("--secrets has an empty name"), "{}", empty.stderr);
    for alone in [&["--publish-secrets"][..], &["--publish-secrets", "--secrets=a"]] {
        let refused = ends(installation, &space, 2, &[&["enable", &space.name][..], alone].concat()).await?;
        assert!(refused.stderr.contains("--publish-secrets needs --secrets without names"), "{}", refused.stderr);
    }

    // A first version would overwrite the existing ConfigMap.
    let kept = fails(installation, &space, &["create", "one", "2", "--from-literal=a=b"]).await?;
    assert!(kept.contains("keep its content with kubectl nudge baseline one"), "{kept}");
    let taken = works(installation, &space, &["baseline", "one"]).await?;
    assert_eq!(taken, "configmap/one is version 1.0.0 of config one\n");
    becomes_current(&space, "one", "1.0.0").await?;
    let refused = fails(installation, &space, &["baseline", "fixed"]).await?;
    assert!(refused.contains("ConfigMap fixed can't become a version: it is immutable"), "{refused}");
    let all = works(installation, &space, &["baseline", "--all"]).await?;
    assert!(all.contains("configmap/fixed left alone: it is immutable\n"), "{all}");
    assert!(all.contains("configmap/two is version 1.0.0 of config two\n"), "{all}");
    assert!(all.contains("configmap/one left alone: ") && !all.contains("configmap/one is version"), "{all}");
    becomes_current(&space, "two", "1.0.0").await?;
    let names = works(installation, &space, &["status", "-o", "name"]).await?;
    assert_eq!(names, "versionedconfig.nudge.dev/one\nversionedconfig.nudge.dev/two\n");
    let dictionary = works(installation, &space, &["get", "one", "-o", "name"]).await?;
    assert_eq!(dictionary, "key\nnudge.config.one.version\nnudge.configs\n");
    ensure!(space.api::<Secret>().list(&ListParams::default().labels("nudge.dev/config")).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_workload_is_restarted_and_arguments_are_completed() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("words").await?;
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "test"}]},
        }},
    });
    space.create_object::<Deployment>(deployment).await?;
    let annotation = async || -> Result<Option<String>> {
        let template = space.api::<Deployment>().get("web").await?.spec.context("no specification")?.template;
        Ok(template.metadata.and_then(|meta| meta.annotations?.remove("nudge.dev/restarted-at")))
    };
    works(installation, &space, &["restart", "deploy/web", "--dry-run"]).await?;
    assert_eq!(annotation().await?, None);
    assert_eq!(works(installation, &space, &["restart", "deploy/web"]).await?, "deployment.apps/web restarted\n");
    assert!(annotation().await?.is_some());
    let missing = fails(installation, &space, &["restart", "sts/db"]).await?;
    assert!(missing.contains("statefulset"), "{missing}");

    works(installation, &space, &["create", "game", "1.0.0", "--from-literal=a=b"]).await?;
    becomes_current(&space, "game", "1.0.0").await?;
    // kubectl runs a program of this name with the words of the command line.
    let link = tempfile::tempdir()?;
    let program = link.path().join("kubectl_complete-nudge");
    std::os::unix::fs::symlink(binary::kubectl_nudge()?, &program)?;
    let kubeconfig = installation.cluster.kubeconfig();
    let complete = async |words: &[&str]| -> Result<String> {
        let mut command = Command::new(&program);
        command.arg("--kubeconfig").arg(&kubeconfig).args(["-n", &space.name]).args(words);
        let finished = tokio::task::spawn_blocking(move || Finished::of(&mut command)).await??;
        ensure!(finished.code == Some(0), "{finished:?}");
        Ok(finished.stdout)
    };
    assert_eq!(complete(&["use", ""]).await?, "game\n:4\n");
    assert_eq!(complete(&["use", "game", "1"]).await?, "1.0.0\tCurrent\n:4\n");
    assert_eq!(complete(&["restart", "dep"]).await?, "deployment/web\n:4\n");
    let script = works(installation, &space, &["completion"]).await?;
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("__complete"), "{script}");
    Ok(())
}

/// Whether a terminal does nothing with the text but show it.
fn is_harmless(text: &str) -> bool {
    let bidi = |char| matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|char| char != '\n' && char != '\t' && (char.is_control() || bidi(char)))
}

#[tokio::test]
async fn what_the_cluster_says_cannot_command_the_terminal() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    // Not enabled: no controller rewrites the status.
    let space = installation.cluster.space("escapes").await?;
    // Clears the screen, sets the title, writes over the line, reverses it, and adds a line of its own.
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\rfine\u{7f}\u{202e}enif\u{2069}\nConfig:    forged";
    let object = json!({
        "metadata": {"name": "shop-1"}, "immutable": true, "data": {"greeting": evil, "list": format!("a\r\nb{evil}\n")},
    });
    let map: ConfigMap = space.create_object(object).await?;
    let other: ConfigMap = space
        .create_object(json!({"metadata": {"name": "shop-2"}, "immutable": true, "data": {"list": "a\nb\n"}}))
        .await?;
    space.create_object::<VersionedConfig>(json!({"metadata": {"name": "shop"}, "spec": {}})).await?;
    let version = |name: &str, map: &ConfigMap| {
        let part =
            json!({"kind": "ConfigMap", "name": map.metadata.name, "uid": map.metadata.uid, "digest": "sha256:0"});
        json!({"version": name, "state": "Available", "keys": 2, "bytes": 9, "parts": [part]})
    };
    let condition = json!({"type": "Ready", "status": "False", "reason": "VersionInvalid", "message": evil,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {
        "current": "1", "previous": evil, "published": evil, "phase": "Waiting", "conditions": [condition],
        "versions": [version("1", &map), version("2", &other), version(evil, &other)],
        "pods": {"total": 1, "updated": 1, "ready": 1, "failed": 0, "summary": evil},
        "rollout": {"revision": 1, "watch": {"seconds": 1, "reason": evil}},
        "releases": [{"version": "2", "from": "1", "requestedBy": evil, "beganAt": "2026-01-01T00:00:00Z", "message": evil,
            "reason": "Leaving", "outcome": "Left", "override": {"reason": evil, "requestedBy": evil}}],
    }});
    space.api::<VersionedConfig>().patch_status("shop", &PatchParams::default(), &Patch::Merge(&status)).await?;
    space.service_account("app").await?;
    let pod = json!({
        "metadata": {"name": "web", "labels": {"nudge.dev/agent": "0.1.0"}, "annotations": {"nudge.dev/warnings": evil}},
        "spec": {"serviceAccountName": "app", "automountServiceAccountToken": false, "containers": [
            {"name": "nudge-agent", "image": "test", "env": [{"name": "NUDGE_CONFIGS", "value": "shop"}]},
            {"name": "app", "image": "test"}]},
    });
    space.create_object::<k8s_openapi::api::core::v1::Pod>(pod).await?;
    let report = json!({"status": {"conditions": [{"type": "nudge.dev/ConfigCurrent", "status": "False",
        "reason": "NoHandler", "message": format!("shop=1; {evil}")}]}});
    let pods = space.api::<k8s_openapi::api::core::v1::Pod>();
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(&report)).await?;

    for arguments in [
        &["status"][..],
        &["status", "shop"],
        &["status", "shop", "-o", "json"],
        &["status", "shop", "-o", "yaml"],
        &["status", "-o", "name"],
        &["versions", "shop"],
        &["versions", "shop", "-o", "json"],
        &["versions", "shop", "-o", "yaml"],
        &["versions", "shop", "-o", "name"],
        &["history", "shop"],
        &["history", "shop", "--diff"],
        &["history", "shop", "-o", "json"],
        &["history", "shop", "-o", "yaml"],
        &["get", "shop"],
        &["get", "shop", "-o", "json"],
        &["get", "web", "-o", "yaml"],
        &["diff", "shop", "1", "2"],
        &["use", "shop", "9"],
        &["rollback", "shop", "--dry-run=server"],
    ] {
        let finished = run(installation, &space, arguments).await?;
        ensure!(is_harmless(&finished.stdout) && is_harmless(&finished.stderr), "{arguments:?}: {finished:?}");
        let forged = |text: &str| text.lines().any(|line| line.starts_with("Config:    forged"));
        // The lines of a value are lines of a diff, which begin with a sign.
        ensure!(!forged(&finished.stdout) && !forged(&finished.stderr), "{arguments:?}: {finished:?}");
    }
    let text = works(installation, &space, &["status", "shop"]).await?;
    ensure!(
        text.contains(r"\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\rfine\u{7f}\u{202e}enif\u{2069}\nConfig:    forged"),
        "{text}"
    );
    // Documents mean the same as before.
    for format in ["json", "yaml"] {
        let document: Value =
            serde_json::from_str(&works(installation, &space, &["get", "shop", "-o", format]).await?)?;
        assert_eq!(document["greeting"], evil);
    }
    Ok(())
}

#[tokio::test]
async fn who_may_read_little_sees_that_and_learns_which_right_is_missing() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("viewer").await?;
    bind(&space, "nudge-secrets").await?;
    let secret = "--secret-from-literal=pin=hidden-4711";
    works(installation, &space, &["create", "game", "1", "--from-literal=lives=3", secret]).await?;
    becomes_current(&space, "game", "1").await?;
    works(installation, &space, &["create", "game", "2", "--from-literal=lives=4", secret]).await?;
    status(&space, "game", "2 is sealed", |status| status.version("2").is_some()).await?;
    let folder = tempfile::tempdir()?;
    let as_user = async |name: &str, rules: Option<Value>| -> Result<std::path::PathBuf> {
        space.service_account(name).await?;
        if let Some(rules) = rules {
            space.allow(name, rules).await?;
        }
        let token = space.token(name, ISSUER, None).await?;
        let file = folder.path().join(name);
        std::fs::write(&file, installation.cluster.kubeconfig_of(&Identity::Token(&token)))?;
        Ok(file)
    };
    let read = ["get", "list", "watch"];
    let viewer = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": read},
        {"apiGroups": ["nudge.dev"], "resources": ["versionedconfigs"], "verbs": read},
    ]);
    let viewer = as_user("viewer", Some(viewer)).await?;
    let nobody = as_user("nobody", None).await?;
    let ends = async |by: &Path, code: i32, arguments: &[&str], stdout: &str, stderr: &str| -> Result<()> {
        let finished = run_by(by, &space, arguments).await?;
        let is = finished.code == Some(code) && finished.stdout.contains(stdout) && finished.stderr.contains(stderr);
        ensure!(is && !format!("{finished:?}").contains("hidden"), "{arguments:?}: {finished:?}");
        ensure!(stderr.is_empty() == finished.stderr.is_empty(), "{arguments:?}: {finished:?}");
        ensure!(finished.stderr.lines().count() <= 1, "{arguments:?}: {finished:?}");
        Ok(())
    };
    let pods = "warning: pods are not shown: pods is forbidden";
    ends(&viewer, 0, &["status"], "game     1", pods).await?;
    ends(&viewer, 0, &["status", "game"], "Current:   1", pods).await?;
    ends(&viewer, 0, &["versions", "game"], "1         Current", "").await?;
    ends(&viewer, 0, &["current", "game"], "1\n", "").await?;
    let keys = "warning: the keys of Secret game-1-2 are not shown: reading Secret game-1-2: secrets \"game-1-2\" is forbidden";
    ends(&viewer, 0, &["get", "game"], "lives: \"3\"", keys).await?;
    let refused = "error: reading Secret game-1-2: secrets \"game-1-2\" is forbidden";
    ends(&viewer, 1, &["get", "game", "--show-secrets"], "", refused).await?;
    ends(&viewer, 1, &["diff", "game", "1", "2"], "", refused).await?;
    ends(&viewer, 1, &["get", "web"], "", "error: reading pod web: pods \"web\" is forbidden").await?;
    ends(&viewer, 1, &["use", "game", "2"], "", "; ask the namespace's admin for that right").await?;
    ends(&nobody, 1, &["status"], "", "error: listing configs: versionedconfigs.nudge.dev is forbidden").await?;
    ends(&nobody, 1, &["get", "game"], "", "error: reading config game: versionedconfigs.nudge.dev \"game\" is")
        .await?;
    Ok(())
}

/// The command on a terminal of this width.
fn on_terminal(
    installation: &Installation<'_>,
    space: &Space,
    columns: u16,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<Terminal> {
    let mut command = Command::new(binary::kubectl_nudge()?);
    command
        .args(arguments)
        .arg("--namespace")
        .arg(&space.name)
        .arg("--kubeconfig")
        .arg(installation.cluster.kubeconfig());
    command.env("TERM", "xterm-256color").envs(variables.iter().copied());
    Terminal::spawn("kubectl-nudge", &mut command, (24, columns))
}

#[tokio::test]
async fn a_terminal_shows_a_bar_that_is_cleared_at_the_end() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("bar").await?;
    let _pod = pod(installation, replica, &space).await?;
    for version in ["2", "3"] {
        works(installation, &space, &["create", "game", version, "--from-literal=lives=5"]).await?;
    }
    set_rollout(&space, json!({"minReadySeconds": 1, "bakeSeconds": 1})).await?;
    let arguments = ["use", "game", "2", "--wait"];
    let terminal = on_terminal(installation, &space, 80, &arguments, &[("NO_COLOR", "1")])?;
    let (status, screens, raw) = terminal.ends().await?;
    ensure!(status.success(), "{status}: {screens:#?}");
    let first = "config game: spec.current is 2";
    assert_eq!(
        screens.last().map(|screen| screen.join("\n")),
        Some(format!("{first}\nconfig game: version 2 is current"))
    );
    let assigned = "moving to version 2: assigned to 1 of 1 pods";
    let bar = |screen: &&Vec<String>| {
        screen.get(1).is_some_and(|line| line.starts_with("[===")) && screen.get(2).is_some_and(|line| line == assigned)
    };
    ensure!(screens.iter().any(|screen| bar(&screen)), "no bar: {screens:#?}");
    // Never two bars, and no remains of an older one.
    let leftover = screens.iter().find(|screen| screen.len() > 3 || screen.first().is_some_and(|line| line != first));
    ensure!(leftover.is_none(), "{leftover:#?}");
    // Styles are `ESC [ … m`.
    let styled = raw
        .split("\u{1b}[")
        .skip(1)
        .any(|rest| rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == ';').starts_with('m'));
    ensure!(!styled, "{raw:?}");

    // Long lines are wrapped and cleared completely. Ctrl-C ends the wait, and the rollout continues.
    works(installation, &space, &["pause", "game"]).await?;
    let terminal = on_terminal(installation, &space, 40, &["use", "game", "3", "--wait"], &[])?;
    let said = terminal.shows("it is paused", |screen| screen.concat().contains("resume game")).await?;
    ensure!(said.iter().all(|line| line.chars().count() <= 40) && said.len() > 3, "{said:#?}");
    terminal.process.signal(nix::sys::signal::Signal::SIGINT)?;
    let (status, screens, _) = terminal.ends().await?;
    assert_eq!(status.code(), Some(130));
    let last = screens.last().cloned().unwrap_or_default();
    assert_eq!(last.iter().filter(|line| line.starts_with('[')).count(), 1, "{last:#?}");
    assert!(last.concat().contains("version 3; the rollout continues"), "{last:#?}");

    // A terminal that can't move its cursor gets lines.
    works(installation, &space, &["resume", "game"]).await?;
    works(installation, &space, &["rollback", "game", "--wait"]).await?;
    let terminal = on_terminal(installation, &space, 80, &["use", "game", "3", "--wait"], &[("TERM", "dumb")])?;
    let (status, screens, raw) = terminal.ends().await?;
    ensure!(status.success() && !raw.contains('\u{1b}'), "{status} {raw:?}");
    let last = screens.last().map(|screen| screen.join("\n")).unwrap_or_default();
    assert!(last.contains("\nmoving to version 3: assigned to 1 of 1 pods\n"), "{last}");
    Ok(())
}
