//! A workload is restarted.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use nudge_tests::{Finished, Installation, binary};
use serde_json::json;

use crate::kubectl_nudge::scene::{becomes_current, fails, works};

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
