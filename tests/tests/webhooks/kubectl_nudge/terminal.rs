//! What a terminal shows.

use std::process::Command;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use nudge_api::VersionedConfig;
use nudge_tests::cluster::TestNamespace;
use nudge_tests::{Installation, Terminal, binary};
use serde_json::{Value, json};

use crate::kubectl_nudge::scene::{pod, run, run_successfully, set_rollout};

/// Returns whether a terminal does nothing with the text but show it.
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
        "currentVersion": "1", "previousVersion": evil, "publishedVersion": evil, "conditions": [condition],
        "versions": [version("1", &map), version("2", &other), version(evil, &other)],
        "pods": {"total": 1, "onTarget": 1, "ready": 1, "failed": 0, "summary": evil},
        "rollout": {"watch": {"seconds": 1, "reason": evil}}, "internal": {"revision": 1},
        "releases": [{"version": "2", "fromVersion": "1", "requestedBy": evil, "startTime": "2026-01-01T00:00:00Z", "message": evil,
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
    let text = run_successfully(installation, &space, &["status", "shop"]).await?;
    ensure!(
        text.contains(r"\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\rfine\u{7f}\u{202e}enif\u{2069}\nConfig:    forged"),
        "{text}"
    );
    // Documents mean the same as before.
    for format in ["json", "yaml"] {
        let document: Value =
            serde_json::from_str(&run_successfully(installation, &space, &["get", "shop", "-o", format]).await?)?;
        assert_eq!(document["greeting"], evil);
    }
    Ok(())
}

/// Returns the command on a terminal of this width.
fn on_terminal(
    installation: &Installation<'_>,
    space: &TestNamespace,
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
        run_successfully(installation, &space, &["create", "game", version, "--from-literal=lives=5"]).await?;
    }
    set_rollout(&space, json!({"minReadySeconds": 1, "bakeSeconds": 1})).await?;
    let arguments = ["use", "game", "2", "--wait"];
    let terminal = on_terminal(installation, &space, 80, &arguments, &[("NO_COLOR", "1")])?;
    let (status, screens, raw) = terminal.wait_for_end().await?;
    ensure!(status.success(), "{status}: {screens:#?}");
    let first = "config game: spec.version is 2";
    assert_eq!(
        screens.last().map(|screen| screen.join("\n")),
        Some(format!("{first}\nconfig game: version 2 is current"))
    );
    let assigned = "moving to version 2: assigned to 1 of 1 pod";
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
    run_successfully(installation, &space, &["hold", "game", "--reason=audit"]).await?;
    let terminal = on_terminal(installation, &space, 40, &["use", "game", "3", "--wait"], &[])?;
    // A warning says the same before the bar is there.
    let is_held = |screen: &[String]| {
        let bar: Vec<&str> = screen.iter().map(String::as_str).skip_while(|line| !line.starts_with('[')).collect();
        bar.concat().contains("unhold")
    };
    let message = terminal.wait_for_screen("it is on hold", is_held).await?;
    ensure!(message.iter().all(|line| line.chars().count() <= 40) && message.len() > 3, "{message:#?}");
    terminal.process.signal(nix::sys::signal::Signal::SIGINT)?;
    let (status, screens, _) = terminal.wait_for_end().await?;
    assert_eq!(status.code(), Some(130));
    let last = screens.last().cloned().unwrap_or_default();
    assert_eq!(last.iter().filter(|line| line.starts_with('[')).count(), 1, "{last:#?}");
    assert!(last.concat().contains("version 3; the rollout continues"), "{last:#?}");

    // A terminal that can't move its cursor gets lines.
    run_successfully(installation, &space, &["unhold", "game"]).await?;
    run_successfully(installation, &space, &["rollback", "game", "--wait"]).await?;
    let terminal = on_terminal(installation, &space, 80, &["use", "game", "3", "--wait"], &[("TERM", "dumb")])?;
    let (status, screens, raw) = terminal.wait_for_end().await?;
    ensure!(status.success() && !raw.contains('\u{1b}'), "{status} {raw:?}");
    let last = screens.last().map(|screen| screen.join("\n")).unwrap_or_default();
    assert!(last.contains("\nmoving to version 3: assigned to 1 of 1 pod\n"), "{last}");
    Ok(())
}
