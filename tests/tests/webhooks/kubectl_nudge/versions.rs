//! Versions are created, used, compared, rolled back and deleted.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::cluster::Identity;
use nudge_tests::cluster::installation::bind;
use nudge_tests::cluster::servers::ISSUER;
use nudge_tests::{Installation, eventually};
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::{
    WAIT_TIMEOUT, becomes_current, run_by, run_expecting, run_failing, run_successfully, status,
};

#[tokio::test]
async fn a_version_is_created_used_compared_rolled_back_and_deleted() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("life").await?;
    bind(&space, "nudge-secrets").await?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("game.properties"), "lives=3\nspeed=1\n")?;
    let from = format!("--from-file={}", folder.path().display());

    let create_output =
        run_successfully(installation, &space, &["create", "game", "1.0.0", &from, "--from-literal=greeting=hello"])
            .await?;
    assert_eq!(
        create_output,
        "configmap/game-1.0.0 created\nconfig game created; 1.0.0 becomes current, because it is the first version\n"
    );
    becomes_current(&space, "game", "1.0.0").await?;
    assert_eq!(run_successfully(installation, &space, &["current", "game"]).await?, "1.0.0\n");

    std::fs::write(folder.path().join("game.properties"), "lives=5\nspeed=1\n")?;
    let secret = "--secret-from-literal=pin=hidden-4711";
    let create_output = run_successfully(installation, &space, &["create", "game", "1.0.1", &from, secret]).await?;
    assert_eq!(create_output, "configmap/game-1.0.1-1 created\nsecret/game-1.0.1-2 created\n");
    let again = run_failing(installation, &space, &["create", "game", "1.0.1", &from]).await?;
    assert!(again.contains("version 1.0.1 of config game already exists"), "{again}");
    let missing = run_failing(installation, &space, &["use", "game", "7", "--wait"]).await?;
    assert!(missing.starts_with("error: config game has no complete version 7; it has: 1.0.0"), "{missing}");

    // Right after the creation, the command waits until the version is sealed.
    let used = run_expecting(installation, &space, 0, &["use", "game", "1.0.1", "--wait", "--timeout=30s"]).await?;
    assert_eq!(used.stdout, "config game: spec.version is 1.0.1\nconfig game: version 1.0.1 is current\n");
    let used = run_successfully(installation, &space, &["use", "game", "1.0.1"]).await?;
    assert_eq!(used, "config game: version 1.0.1 is already current\n");

    let versions = run_successfully(installation, &space, &["versions", "game"]).await?;
    let rows: Vec<Vec<&str>> = versions.lines().map(|line| line.split_whitespace().take(6).collect()).collect();
    assert_eq!(rows[0], ["VERSION", "STATE", "OBJECTS", "KEYS", "BYTES", "DIGEST"]);
    assert_eq!(rows[1][..4], ["1.0.0", "Available", "1", "2"]);
    assert_eq!(rows[2][..4], ["1.0.1", "Current", "2", "2"]);
    assert_eq!(run_successfully(installation, &space, &["versions", "game", "-o", "name"]).await?, "1.0.0\n1.0.1\n");

    let sealed = space.api::<VersionedConfig>().get("game").await?.status.unwrap_or_default();
    let digests: Vec<&str> = sealed.versions.iter().map(|version| version.digest.as_str()).collect();
    assert_eq!([rows[1][5], rows[2][5]], digests[..]);
    let printed = run_successfully(installation, &space, &["diff", "game", "1.0.0", "current"]).await?;
    let heads = format!("--- version 1.0.0, digest {}\n+++ version 1.0.1, digest {}\n", digests[0], digests[1]);
    let diff = printed.strip_prefix(&heads).unwrap_or(&printed);
    assert_eq!(
        diff,
        "--- game.properties (1.0.0)\n+++ game.properties (1.0.1)\n@@ -1,2 +1,2 @@\n-lives=3\n+lives=5\n speed=1\n\
         --- greeting (1.0.0)\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n\\ No newline at end of file\npin: added (Secret)\n"
    );
    let masked = run_successfully(installation, &space, &["get", "game", "-o", "json"]).await?;
    let masked: Value = serde_json::from_str(&masked)?;
    assert_eq!(masked["pin"], "***");
    assert_eq!(
        (&masked["game.properties"], &masked["nudge.configs"]),
        (&json!("lives=5\nspeed=1\n"), &json!("game=1.0.1"))
    );
    let shown = run_successfully(installation, &space, &["get", "game", "--show-secrets"]).await?;
    assert!(shown.contains("hidden-4711"));

    for (version, reason) in [("1.0.1", "is current"), ("1.0.0", "is the version to roll back to")] {
        let held = run_failing(installation, &space, &["delete", "game", version]).await?;
        assert!(held.contains(reason), "{held}");
    }
    let back = run_successfully(installation, &space, &["rollback", "game", "--wait"]).await?;
    assert!(back.ends_with("config game: version 1.0.0 is current\n"), "{back}");
    let history = run_successfully(installation, &space, &["history", "game"]).await?;
    let rows: Vec<Vec<&str>> = history.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["VERSION", "FROM", "OUTCOME", "BEGAN", "ENDED", "PODS", "REQUESTED-BY", "MESSAGE"]);
    let short: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1], row[2], row[6])).collect();
    let expected = [
        ("1.0.0", "1.0.1", "Returned", "admin"),
        ("1.0.1", "1.0.0", "Current", "admin"),
        ("1.0.0", "-", "Current", "<unknown>"),
    ];
    assert_eq!(short, expected, "{history}");
    let changed = run_successfully(installation, &space, &["history", "game", "--diff"]).await?;
    let headings: Vec<&str> = changed.lines().filter(|line| line.contains("requested by admin")).collect();
    assert!(headings.len() == 2 && headings[1].starts_with("1.0.1 from 1.0.0: Current, "), "{changed}");
    assert!(changed.contains(diff) && changed.contains("pin: removed (Secret)\n"), "{changed}");
    assert!(!changed.contains("hidden-4711"), "{changed}");
    let json: Value =
        serde_json::from_str(&run_successfully(installation, &space, &["history", "game", "-o", "json"]).await?)?;
    assert_eq!((&json[0]["version"], &json[2]["outcome"]), (&json!("1.0.0"), &json!("Returned")));
    assert_eq!(
        run_successfully(installation, &space, &["history", "game", "-o", "name"]).await?,
        "1.0.0\n1.0.1\n1.0.0\n"
    );
    run_expecting(installation, &space, 2, &["history", "game", "--diff", "-o", "json"]).await?;
    // A version that was rolled back is not a previous version.
    let nowhere = run_failing(installation, &space, &["rollback", "game"]).await?;
    assert!(nowhere.contains("has no previous version; choose one of kubectl nudge versions game"), "{nowhere}");
    run_successfully(installation, &space, &["delete", "game", "1.0.1"]).await?;
    run_successfully(installation, &space, &["create", "game", "1.0.2", "--from-literal=a=b"]).await?;
    status(&space, "game", "1.0.2 is sealed", |status| status.version("1.0.2").is_some()).await?;
    run_successfully(installation, &space, &["delete", "game", "1.0.2", "--dry-run=server"]).await?;
    assert!(space.api::<ConfigMap>().get_opt("game-1.0.2").await?.is_some());
    assert_eq!(
        run_successfully(installation, &space, &["delete", "game", "1.0.2"]).await?,
        "version 1.0.2 of config game deleted\n"
    );
    assert!(space.api::<ConfigMap>().get_opt("game-1.0.2").await?.is_none());
    run_successfully(installation, &space, &["delete", "game"]).await?;
    let gone = async || space.api::<ConfigMap>().get_opt("game-1.0.0").await.ok()?.is_none().then_some(());
    eventually(WAIT_TIMEOUT, "the versions are deleted with the config", gone).await?;
    let none = run_failing(installation, &space, &["current", "game"]).await?;
    assert!(none.starts_with("error: there is no config game in namespace life-"), "{none}");
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
    assert!(failed.stderr.contains("; 3 objects created before were removed"), "{}", failed.stderr);
    assert!(!failed.stderr.contains("hidden"));
    let selector = ListParams::default().labels("nudge.dev/config=big");
    assert!(space.api::<ConfigMap>().list(&selector).await?.items.is_empty());
    assert!(space.api::<VersionedConfig>().get_opt("big").await?.is_none());

    let create_output = run_successfully(installation, &space, &["create", "big", "1", &from]).await?;
    assert!(
        create_output.starts_with("configmap/big-1-1 created\nconfigmap/big-1-2 created\nconfigmap/big-1-3 created\n"),
        "{create_output}"
    );
    becomes_current(&space, "big", "1").await?;

    // Two versions whose names give the same DNS name, and a name that another object has.
    space.create_object::<ConfigMap>(json!({"metadata": {"name": "big-2"}, "data": {}})).await?;
    for version in ["Blue", "blue", "2"] {
        let create_output =
            run_successfully(installation, &space, &["create", "big", version, "--from-literal=a=b", "-o", "name"])
                .await?;
        let stem = format!("configmap/big-{}", version.to_lowercase());
        assert!(
            create_output.starts_with(&stem) && (create_output.trim() == stem) == (version == "blue"),
            "{create_output}"
        );
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
    let text =
        run_successfully(installation, &space, &["create", "game", "1", literal, "--dry-run=client", "-o", "yaml"])
            .await?;
    let server = run_successfully(installation, &space, &["create", "game", "1", literal, "--dry-run=server"]).await?;
    assert!(server.starts_with("configmap/game-1 created (server dry run)\n"), "{server}");
    assert!(space.api::<ConfigMap>().get_opt("game-1").await?.is_none());
    let secret = ["create", "game", "1", "--secret-from-literal=pin=hidden-4711", "--dry-run=client", "-o", "yaml"];
    let refused = run_expecting(installation, &space, 2, &secret).await?;
    assert!(!format!("{refused:?}").contains("hidden"), "{refused:?}");
    // kubectl accepts the printed manifest.
    installation.cluster.kubectl_on(&["apply", "--server-side"], &text).await?;
    let map = space.api::<ConfigMap>().get("game-1").await?;
    assert_eq!((map.immutable, map.data), (Some(true), Some([("lives".to_owned(), "3".to_owned())].into())));
    for bad in [
        &["use", "game"][..],
        &["create", "game", "1"],
        &["create", "game", "current", literal],
        &["create", "game", "2", literal, "--secret-type=Opaque"],
    ] {
        run_expecting(installation, &space, 2, bad).await?;
    }
    Ok(())
}

#[tokio::test]
async fn secrets_have_the_type_that_is_requested() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("typed").await?;
    let content = ["--secret-from-literal=tls.crt=c", "--secret-from-literal=tls.key=k"];
    let tls = [&["create", "web", "1", "--secret-type=kubernetes.io/tls"][..], &content].concat();
    run_successfully(installation, &space, &tls).await?;
    run_successfully(installation, &space, &[&["create", "web", "2"][..], &content].concat()).await?;
    for (name, type_) in [("web-1", "kubernetes.io/tls"), ("web-2", "Opaque")] {
        assert_eq!(space.api::<Secret>().get(name).await?.type_.as_deref(), Some(type_), "{name}");
    }
    Ok(())
}
