//! The command waits for rollouts, and says who else sets the version.

use anyhow::{Result, ensure};
use nudge_api::{VersionedConfig, VersionedConfigStatus};
use nudge_tests::Installation;
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::{
    becomes_current, pod, run_expecting, run_failing, run_successfully, set_ready, set_rollout, status,
};

#[tokio::test]
async fn waiting_ends_with_the_result_of_the_rollout() -> Result<()> {
    let Some((installation, replica)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("waits").await?;
    let _pod = pod(installation, replica, &space).await?;
    run_successfully(installation, &space, &["create", "game", "2", "--from-literal=lives=5"]).await?;

    // A config on hold: the timeout ends, and the rollout stays.
    set_rollout(&space, json!({"minReadySeconds": 0, "bakeSeconds": 0})).await?;
    for _ in 0..2 {
        let held = run_successfully(installation, &space, &["hold", "game", "--reason=audit"]).await?;
        assert_eq!(held, "config game on hold until kubectl nudge unhold\n");
    }
    let late = run_expecting(installation, &space, 124, &["use", "game", "2", "--wait", "--timeout=2s"]).await?;
    let why = "the config is on hold until spec.rollout.hold is removed (kubectl nudge unhold): audit";
    assert!(late.stderr.lines().any(|line| line == why) && !late.stderr.contains('\u{1b}'), "{}", late.stderr);
    assert!(late.stderr.contains("is not current after 2 s; the rollout continues"), "{}", late.stderr);
    assert_eq!(
        run_successfully(installation, &space, &["unhold", "game"]).await?,
        "config game not on hold any more\n"
    );
    becomes_current(&space, "game", "2").await?;

    let report = run_successfully(installation, &space, &["status", "game", "-o", "json"]).await?;
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(
        (&report["current"], &report["desired"], &report["state"]),
        (&json!("2"), &json!("2"), &json!("Current"))
    );
    assert_eq!(
        report["pods"],
        json!([{"pod": "web", "agent": "0.1.0", "ready": true, "assigned": "2", "version": "2"}])
    );
    let text = run_successfully(installation, &space, &["status", "game"]).await?;
    assert!(text.contains("Pods:      1/1 on target, 0 failed\n"), "{text}");
    let headers = text.lines().find(|line| line.starts_with("POD ")).unwrap_or_default();
    let headers: Vec<&str> = headers.split_whitespace().collect();
    assert_eq!(headers, ["POD", "WORKLOAD", "VERSION", "ASSIGNED", "READY", "AGENT", "MESSAGE"], "{text}");
    let listed = run_successfully(installation, &space, &["status"]).await?;
    let row: Vec<&str> = listed.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row, ["game", "2", "2", "Current", "1/1"]);
    let dictionary = run_successfully(installation, &space, &["get", "pod/web"]).await?;
    assert!(dictionary.contains("lives: \"5\"") && dictionary.contains("nudge.configs: game=2"), "{dictionary}");

    // A failed rollout: the pod is not Ready with the new version.
    run_successfully(installation, &space, &["create", "game", "3", "--from-literal=lives=-1"]).await?;
    set_rollout(&space, json!({"bakeSeconds": 600})).await?;
    let waiting = run_expecting(installation, &space, 3, &["use", "game", "3", "--wait", "--timeout=50s"]);
    let breaking = async {
        let runs = |status: &VersionedConfigStatus| {
            status.target_version.as_deref() == Some("3") && status.internal.threshold > 0 && status.pods.on_target == 1
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

    // The version is tried again when it is used again, and its first attempt does not end the wait. A rollback returns
    // to the current one.
    set_ready(&space, true).await?;
    let late = run_expecting(installation, &space, 124, &["use", "game", "3", "--wait", "--timeout=2s"]).await?;
    assert!(late.stderr.contains("is not current after 2 s; the rollout continues"), "{}", late.stderr);
    status(&space, "game", "it is tried again", |status| status.target_version.as_deref() == Some("3")).await?;
    let back = run_successfully(installation, &space, &["rollback", "game", "--wait", "--timeout=50s"]).await?;
    assert!(back.ends_with("config game: version 2 is current\n"), "{back}");

    // A config with pods is deleted only with --force.
    let held = run_failing(installation, &space, &["delete", "game"]).await?;
    assert!(held.contains("kubectl nudge delete --force does that"), "{held}");
    run_successfully(installation, &space, &["delete", "game", "--force"]).await.map(drop)
}

#[tokio::test]
async fn a_tool_that_sets_the_field_back_is_named() -> Result<()> {
    let Some((installation, _)) = Installation::shared_with_webhooks().await? else { return Ok(()) };
    let space = installation.enabled("gitops").await?;
    for version in ["1", "2"] {
        run_successfully(installation, &space, &["create", "game", version, "--from-literal=lives=3"]).await?;
    }
    let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "game"}, "spec": {"version": "1"}});
    let apply = ["apply", "--server-side", "--field-manager=kustomize-controller", "--namespace", &space.name];
    installation.cluster.kubectl_on(&apply, &format!("---\n{object}\n")).await?;
    let first = run_expecting(installation, &space, 0, &["use", "game", "2"]).await?;
    assert!(
        first.stderr.contains("warning: spec.version of config game is managed by \"kustomize-controller\""),
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
        run_successfully(installation, &space, &["create", "game", version, "--from-literal=lives=3"]).await?;
    }
    let object = json!({"apiVersion": "nudge.dev/v1alpha1", "kind": "VersionedConfig", "metadata": {"name": "game"}, "spec": {"version": "1"}});
    let text = format!("---\n{object}\n");
    for (apply, manager) in [
        (&["apply", "--namespace", &space.name][..], "kubectl-client-side-apply"),
        (&["apply", "--server-side", "--force-conflicts", "--namespace", &space.name][..], "kubectl"),
    ] {
        installation.cluster.kubectl_on(apply, &text).await?;
        let config = space.api::<VersionedConfig>().get("game").await?;
        let managers = config.metadata.managed_fields.unwrap_or_default();
        ensure!(managers.iter().any(|it| it.manager.as_deref() == Some(manager)), "{managers:?}");
        let used = run_expecting(installation, &space, 0, &["use", "game", "2"]).await?;
        assert_eq!(used.stderr, "", "{manager}");
    }
    Ok(())
}
